//! Style of pages without scripts (corpus and advice), with plots in SVG.

/// For screens of all widths, light and dark, and for paper. Plots are drawn in black without a background:
/// on a dark screen the ink turns white.
pub(crate) const STYLE: &str = "
:root { --ink: #1a1a1a; --page: #ffffff; --faint: #666666; --line: #cccccc; --good: #00693e; --bad: #a33000; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --page: #16181c; --faint: #a0a0a0; --line: #444444; --good: #5fd08f; --bad: #ff9a6b; }
  figure svg [fill='#000000'] { fill: #e8e8e8; }
  figure svg [stroke='#000000'] { stroke: #e8e8e8; }
  figure svg [stroke='#CCCCCC'] { stroke: #444444; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 60rem;
  margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; } h3 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
a { color: inherit; } .faint { color: var(--faint); } .holds { color: var(--good); font-weight: 600; }
.fails { color: var(--bad); font-weight: 600; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; flex: 1 1 20rem; max-width: 45rem; }
figure svg { width: 100%; height: auto; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { text-align: left; min-width: 6rem; } td.text, th.text { text-align: left; }
code { font-size: .85em; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding: .6rem; } table { font-size: .8rem; } th, td { padding: .2rem .3rem; }
  th:first-child, td:first-child { min-width: 4rem; } figure { overflow-x: auto; } figure svg { width: 36rem; } }
@media print { body { font-size: 10pt; max-width: none; padding: 0; } .wide { overflow: visible; }
  figure, tr, li { break-inside: avoid; } h2, h3 { break-after: avoid; } figure { flex-basis: 45%; } }
";

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
