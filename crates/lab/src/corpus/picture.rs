//! The curves: rows from top to bottom, each with its cells from best to worst, as an area above the best row
//! of the cell.
//!
//! A policy that is safe to choose has a flat strip of the first colour. What rises at the right end are the
//! cells that it loses, as high as it loses them; the height is logarithmic, and ends at ten times the best.

use super::score::{Line, SURE, Totals};
use crate::report::escaped;

/// Pixels: width of names, of a curve and of the figures behind it; height of a row and of the heading.
const NAMES: f64 = 250.0;
const CURVE: f64 = 420.0;
const FIGURES: f64 = 250.0;
const ROW: f64 = 40.0;
const HEAD: f64 = 46.0;
/// The ratio at the top of a strip.
const TOP: f64 = 10.0;

/// The rows of these totals as an SVG document without a background.
pub fn svg(totals: &Totals) -> String {
    let (width, rows) = (NAMES + CURVE + FIGURES, totals.lines.len());
    let height = HEAD + ROW * rows as f64 + 24.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"14\" fill=\"#000000\">\n"
    );
    let heads = [(NAMES, "start", "cells, best to worst: 1 to 10 × the best of the cell")];
    for (x, anchor, words) in heads {
        out += &text(x, 16.0, anchor, words);
    }
    for (at, words) in ["mean", "worst", "lost"].into_iter().enumerate() {
        out += &text(column(at), 36.0, "end", words);
    }
    for (place, line) in totals.lines.iter().enumerate() {
        strip(&mut out, HEAD + ROW * place as f64, line);
    }
    let foot = format!(
        "{} cells. Colours: within 5 % of the best, above it, above twice. mean: geometric; lost: cells above 5 %.",
        totals.cells
    );
    out += &text(8.0, height - 6.0, "start", &foot);
    out.push_str("</svg>\n");
    out
}

fn column(at: usize) -> f64 {
    NAMES + CURVE + 70.0 + 75.0 * at as f64
}

/// A row: its name, its curve, its figures.
fn strip(out: &mut String, top: f64, line: &Line) {
    let bottom = top + ROW - 5.0;
    let mut ratios: Vec<f64> = line.ratios.iter().flatten().copied().collect();
    ratios.sort_by(f64::total_cmp);
    let step = CURVE / ratios.len().max(1) as f64;
    let name = if line.competes { escaped(&line.name) } else { format!("({})", escaped(&line.name)) };
    *out += &text(NAMES - 10.0, bottom - 8.0, "end", &name);
    for (place, ratio) in ratios.iter().enumerate() {
        let height = (ratio.clamp(1.0, TOP).ln() / TOP.ln() * (ROW - 7.0)).max(2.0);
        let colour = match *ratio {
            ratio if ratio <= 1.0 + SURE => "#009169",
            ratio if ratio <= 2.0 => "#D59E00",
            _ => "#C0392B",
        };
        *out += &format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{height:.1}\" fill=\"{colour}\"/>\n",
            NAMES + step * place as f64,
            bottom - height,
            step + 0.2
        );
    }
    *out += &format!(
        "<line x1=\"{NAMES}\" y1=\"{bottom:.1}\" x2=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#CCCCCC\"/>\n",
        NAMES + CURVE
    );
    let figures =
        [format!("{:.2}", line.geometric_mean), format!("{:.1}", line.worst), line.lost.to_string()];
    for (at, figure) in figures.iter().enumerate() {
        *out += &text(column(at), bottom - 8.0, "end", figure);
    }
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
}
