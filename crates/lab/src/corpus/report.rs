//! What a run came to, as a page and as text.

use super::picture::svg;
use super::rows::Row;
use super::run::{CellOutcome, Outcome};
use super::score::{Line, Totals};
use crate::report::{document, escaped};

/// The page: the picture, the figures behind it, and each cell. `about` says how it was made.
pub fn page(about: &str, totals: &Totals, rows: &[Row], outcomes: &[CellOutcome]) -> String {
    let mut body =
        format!("<h1>The corpus: which policy is safe to choose</h1>\n<p>{}</p>\n", escaped(about));
    for sentence in sentences(totals) {
        body += &format!("<p>{}</p>\n", escaped(&sentence));
    }
    body +=
        &format!("<figure role=\"img\" aria-label=\"ratios by policy\">{}</figure>\n", svg(totals).trim());
    body += &table(&totals.lines.iter().collect::<Vec<_>>());
    body.push_str("<h2>Rows that apply to some cells only</h2>\n");
    let pairs: Vec<&Line> = totals.partial.iter().flat_map(|pair| [&pair.line, &pair.beside]).collect();
    body += &table(&pairs);
    body.push_str("<h2>Cells</h2>\n<div class=\"wide\"><table>\n<tr><th>cell</th>");
    rows.iter().for_each(|row| body += &format!("<th>{}</th>", escaped(&row.name)));
    body.push_str("</tr>\n");
    for outcome in outcomes {
        body += &format!(
            "<tr><td title=\"{}\">{}</td>",
            escaped(&outcome.cell.to_string()),
            escaped(&outcome.cell.name)
        );
        outcome.rows.iter().for_each(|of| body += &format!("<td>{}</td>", escaped(&milliseconds(of))));
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n<p class=\"faint\">Mean latency in ms.</p>\n");
    document("Braid: the corpus", &body)
}

fn table(lines: &[&Line]) -> String {
    let mut out = "<div class=\"wide\"><table>\n<tr><th>row</th>".to_owned();
    HEADS.iter().for_each(|head| out += &format!("<th>{head}</th>"));
    out.push_str("</tr>\n");
    for line in lines {
        out += &format!("<tr><td>{}</td>", escaped(&line.name));
        figures(line).iter().for_each(|figure| out += &format!("<td>{}</td>", escaped(figure)));
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    out
}

/// The totals for a terminal.
pub fn text(totals: &Totals) -> String {
    let mut out = String::new();
    sentences(totals).iter().for_each(|sentence| out += &format!("{sentence}\n"));
    let name = |line: &Line| if line.competes { line.name.clone() } else { format!("({})", line.name) };
    let row = |out: &mut String, name: &str, figures: &[String]| {
        *out += &format!("{name:<38}");
        for (head, figure) in HEADS.iter().zip(figures) {
            *out += &format!("  {figure:>0$}", head.len());
        }
        out.push('\n');
    };
    row(&mut out, "", &HEADS.map(str::to_owned));
    totals.lines.iter().for_each(|line| row(&mut out, &name(line), &figures(line)));
    if !totals.partial.is_empty() {
        out.push_str("Rows that apply to some cells only, each above the first row over the same cells:\n");
    }
    for pair in &totals.partial {
        row(&mut out, &name(&pair.line), &figures(&pair.line));
        row(&mut out, &format!("  {}", pair.beside.name), &figures(&pair.beside));
    }
    out
}

const HEADS: [&str; 12] = [
    "cells",
    "mean",
    "worst",
    "lost",
    "unsure",
    "p99 mean",
    "p99 worst",
    "speed",
    "SSD written/B",
    "recovery s",
    "never",
    "overload",
];

fn figures(line: &Line) -> [String; 12] {
    [
        line.cells.to_string(),
        format!("{:.3}", line.geometric_mean),
        format!("{:.2}", line.worst),
        line.lost.to_string(),
        line.unsure.to_string(),
        format!("{:.2}", line.p99_geometric_mean),
        format!("{:.1}", line.p99_worst),
        format!("{:.3}", line.throughput_geometric_mean),
        format!("{:.2}", line.ssd_written_per_byte),
        line.recovery_seconds_median.map_or("-".to_owned(), |seconds| format!("{seconds:.2}")),
        line.never_recovered.to_string(),
        line.overloaded.to_string(),
    ]
}

fn sentences(totals: &Totals) -> Vec<String> {
    let mut all = vec![
        format!(
            "{} cells; the best row of a cell differs by {:.1} % from itself with the other seed (median), by more than \
             5 % in {} cells.",
            totals.cells,
            totals.noise_median * 100.0,
            totals.noisy_cells
        ),
        format!(
            "In {} cells a row is better than the clairvoyant cache, which is an estimate and no bound on latency.",
            totals.better_than_clairvoyant
        ),
    ];
    all.extend(totals.failed.iter().map(|why| format!("FAILED, and not counted: {why}")));
    all
}

fn milliseconds(of: &Outcome) -> String {
    match of {
        Outcome::Measured(values) => {
            let values: Vec<String> =
                values.iter().map(|value| format!("{:.3}", value.mean_ns / 1e6)).collect();
            values.join(" / ")
        }
        Outcome::NotApplicable(_) => "-".to_owned(),
        Outcome::Failed(_) => "failed".to_owned(),
    }
}
