//! The page: a summary of all claims, then a section for each experiment.

use super::figures;
use crate::experiment::Origin;
use crate::judge::{Judged, Number, Ruling, Verdict};
use crate::study::{Study, Table};

/// One page about these studies.
pub fn page(studies: &[Study]) -> String {
    let mut body = String::new();
    summary(&mut body, studies);
    let mut paper = None;
    for study in studies {
        if paper != Some(&study.paper) {
            paper = Some(&study.paper);
            about_paper(&mut body, study);
        }
        section(&mut body, study);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>Braid: papers made again</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Screens of all widths, light and dark, and paper. Plots are drawn black on nothing: on a dark screen their ink turns
/// white.
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

fn summary(out: &mut String, studies: &[Study]) {
    out.push_str(
        "<h1>Papers made again by Braid</h1>\n<p>Each section makes a table or figure of a paper again: on Braid's own engine, \
         in virtual time, on models of the paper's devices. <code>braid lab report</code> makes this page, and the same \
         command gives the same figures.</p>\n",
    );
    if studies.iter().any(|study| study.quick) {
        out.push_str("<p class=\"fails\">Made with --quick: too short to compare with anything.</p>\n");
    }
    if let Some(one) = studies.iter().find(|study| !study.quick && study.seeds < study.seeds_needed) {
        *out += &format!(
            "<p class=\"fails\">Made with one seed: numbers, and no verdict. A verdict takes {} or more (--seeds).</p>\n",
            one.seeds_needed
        );
    }
    summary_of(out, studies, "What holds of the papers", "claim of the paper", Judged::is_of_paper);
    summary_of(
        out,
        studies,
        "Braid's own aims, and claims repeated under other conditions",
        "claim",
        |judged| !judged.is_of_paper(),
    );
}

/// A table of the claims that are meant; nothing if there are none.
fn summary_of(
    out: &mut String,
    studies: &[Study],
    title: &str,
    column: &str,
    is_meant: impl Fn(&Judged) -> bool,
) {
    let mut rows = String::new();
    for study in studies {
        for judged in study.claims.iter().filter(|judged| judged.is_tested() && is_meant(judged)) {
            rows += &format!(
                "<tr><td><a href=\"#{0}\">{1}</a></td><td class=\"text\">{2}</td><td class=\"text\">{3}</td></tr>\n",
                escaped(&study.id),
                escaped(&study.id).replace('/', "/<wbr/>"),
                escaped(&judged.claim),
                verdicts(judged)
            );
        }
    }
    if !rows.is_empty() {
        *out += &format!("<h2>{title}</h2>\n<div class=\"wide\"><table>\n<tr><th>experiment</th>");
        *out += &format!(
            "<th class=\"text\">{column}</th><th class=\"text\">here</th></tr>\n{rows}</table></div>\n"
        );
    }
}

fn about_paper(out: &mut String, study: &Study) {
    *out += &format!("<h2>{}</h2>\n<p>What differs in all of its experiments:</p>\n", escaped(&study.paper));
    list(out, &study.differs_in_all);
}

fn section(out: &mut String, study: &Study) {
    let (id, title) = (escaped(&study.id), escaped(&study.title));
    *out += &format!(
        "<section id=\"{id}\">\n<h2>{id}: {title}</h2>\n<p class=\"faint\">{}; ",
        escaped(&study.place)
    );
    *out += &format!(
        "{}, {} s measured after {} s. <code>braid lab run {id}</code></p>\n",
        study.seeds_shown(),
        study.measured_seconds,
        study.warm_up_seconds
    );
    for judged in study.claims.iter().filter(|judged| judged.is_tested()) {
        *out += &format!("<p>{}{}: {}", verdicts(judged), origin(judged.origin), escaped(&judged.claim));
        if !judged.untestable.is_empty() {
            *out += &format!(" <em>Untestable:</em> {}.", escaped(&judged.untestable.join("; ")));
        }
        if let Some(why) = &judged.why {
            *out += &format!(" <em>Why:</em> {}", escaped(why));
        }
        for number in &judged.instead {
            *out +=
                &format!(" <em>Another run:</em> {}: {}.", escaped(&number.quantity), number.ours_shown());
        }
        out.push_str("</p>\n");
    }
    out.push_str("<div class=\"plots\">\n");
    for (figure, table) in figures(study).iter().zip(&study.tables) {
        *out += &format!(
            "<figure role=\"img\" aria-label=\"{}, {}\">{}</figure>\n",
            escaped(&table.measure),
            escaped(&table.unit),
            figure.svg.trim()
        );
    }
    out.push_str("</div>\n");
    compared(out, study);
    study.tables.iter().for_each(|table| values(out, study, table));
    for (title, items) in [
        ("What of the paper's results went into the models", &study.calibrated),
        ("Where the paper says otherwise elsewhere", &study.contradictions),
        ("What differs from the paper here", &study.differs),
    ] {
        if !items.is_empty() {
            *out += &format!("<h3>{title}</h3>\n");
            list(out, items);
        }
    }
    simulated(out, study);
    out.push_str("</section>\n");
}

fn compared(out: &mut String, study: &Study) {
    *out += &format!("<h3>The paper's values beside ours</h3>\n<p>{}</p>\n", escaped(&study.published));
    let of_claims =
        study.claims.iter().flat_map(|claim| &claim.verdicts).flat_map(|verdict| &verdict.numbers);
    rows(out, of_claims);
    if !study.baselines.is_empty() {
        out.push_str(
            "<h3>The paper's devices alone</h3>\n<p>Claims about a policy are judged only if all of these are \
             within 15 % of the paper's.</p>\n",
        );
        rows(out, study.baselines.iter());
    }
}

/// Numbers, each once.
fn rows<'a>(out: &mut String, numbers: impl Iterator<Item = &'a Number>) {
    out.push_str(
        "<div class=\"wide\"><table>\n<tr><th></th><th>paper</th><th>ours</th><th>ours/paper</th><th>needed</th><th></th></tr>\n",
    );
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for number in numbers {
        let key = (number.quantity.as_str(), number.needed.as_str());
        if !seen.contains(&key) {
            seen.push(key);
            row(out, number);
        }
    }
    out.push_str("</table></div>\n");
}

fn row(out: &mut String, number: &Number) {
    *out += &format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escaped(&number.quantity),
        escaped(&number.claimed),
        number.ours_shown(),
        number.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        escaped(&number.needed),
        number.ruling.map(marked).unwrap_or_default()
    );
}

fn values(out: &mut String, study: &Study, table: &Table) {
    *out += &format!(
        "<h3>{}, {}</h3>\n<div class=\"wide\"><table>\n<tr>",
        escaped(&table.measure),
        escaped(&table.unit)
    );
    *out += &format!("<th>{}</th>", escaped(&study.axis));
    study.series.iter().for_each(|series| out.push_str(&format!("<th>{}</th>", escaped(&series.label))));
    out.push_str("</tr>\n");
    for (place, number) in study.axis_values.iter().enumerate() {
        *out += &format!("<tr><td>{number}</td>");
        for series in 0..table.values.len() {
            *out += &format!("<td>{}</td>", table.shown(series, place));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn simulated(out: &mut String, study: &Study) {
    out.push_str("<h3>What was simulated</h3>\n<ul>\n");
    for series in &study.series {
        *out += &format!(
            "<li>{}: <code>{} --copies {} --policy {} --workload {}</code></li>\n",
            escaped(&series.label),
            escaped(&series.device_arguments.join(" ")),
            series.copies,
            escaped(&series.policy),
            escaped(&series.load)
        );
    }
    out.push_str("</ul>\n");
    for drawn in &study.jitter {
        *out += &format!(
            "<p><code>{{{}}}</code>: each seed draws {} to {}.</p>\n",
            drawn.name, drawn.low, drawn.high
        );
    }
}

/// What sets a claim apart from those of the paper.
fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Paper | Origin::Fitted => "",
        Origin::Aim => " (an aim of Braid)",
        Origin::Repeat => " (repeated under other conditions)",
    }
}

fn verdicts(judged: &Judged) -> String {
    let said = |verdict: &Verdict| {
        let ruling = marked(verdict.ruling?);
        let of = verdict.of.as_ref().map(|of| format!(" ({})", escaped(of))).unwrap_or_default();
        Some(format!("{ruling}{of}"))
    };
    judged.verdicts.iter().filter_map(said).collect::<Vec<_>>().join("; ")
}

/// What holds as published stands apart from the rest.
fn marked(ruling: Ruling) -> String {
    let class = match ruling {
        Ruling::Holds => "holds",
        Ruling::TooShort | Ruling::OneSeed | Ruling::Untestable | Ruling::Tie | Ruling::Undecided => "faint",
        Ruling::OtherMargin | Ruling::Fails => "fails",
    };
    format!("<span class=\"{class}\">{ruling}</span>")
}

fn list(out: &mut String, texts: &[String]) {
    out.push_str("<ul>\n");
    texts.iter().for_each(|text| out.push_str(&format!("<li>{}</li>\n", escaped(text))));
    out.push_str("</ul>\n");
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
