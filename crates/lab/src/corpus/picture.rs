//! Page of a corpus: a plot with a curve for each policy over the cells, in the order of its own ratios, and
//! tables.

use super::{Half, Ran, RowScore, Scores, score};
use crate::report::{COLOURS, GRID, INK, STYLE, escaped};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 520);
/// Position and spacing of names.
const NAMES: (i32, i32) = (590, 22);
/// Ratios above this value are drawn at the edge.
const HIGHEST: f64 = 32.0;
/// Policy with an emphasised curve.
const OURS: &str = "equi";

/// The page: the published half first, and the tuning half apart.
pub fn page(ran: &Ran, seed: u64, quick: bool) -> String {
    let mut body = "<h1>The corpus: policies on many cells</h1>\n".to_owned();
    if quick {
        body += "<p class=\"fails\">Made with --quick: too short to judge by.</p>\n";
    }
    if !ran.missing_cells.is_empty() {
        body += &format!(
            "<p class=\"fails\">{} cells did not run: their traces are missing.</p>\n",
            ran.missing_cells.len()
        );
    }
    match score(ran, Half::Published) {
        Some(scores) => body += &section(&scores, "The published half", seed),
        None => {
            body +=
                "<p class=\"fails\">No cell of the published half ran: nothing here is to be published.</p>\n"
        }
    }
    if let Some(scores) = score(ran, Half::Tuning) {
        body +=
            &section(&scores, "The tuning half, which constants were chosen by: not to be published", seed);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>Braid: the corpus</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn section(scores: &Scores, title: &str, seed: u64) -> String {
    let mut text = format!(
        "<h2>{title}</h2>\n<p>{} cells of seed {seed}. A ratio is the mean latency of the judged half to that of the best policy of the cell; \
         1 is the best, and less is better. Each curve has the cells in the order of its own ratios.</p>\n\
         <figure role=\"img\" aria-label=\"ratios of each policy, sorted\">{}</figure>\n",
        scores.cell_count,
        svg(scores).trim()
    );
    text += "<div class=\"wide\"><table>\n<tr><th>row</th><th>begins with</th><th>cells</th><th>geometric mean</th><th>worst</th><th>lost by &gt; 5 %</th>\
             <th>to best incl. splits</th><th>bound, in parts of it</th><th>p99</th><th>throughput</th><th>SSD written, GB</th><th>not steady</th><th>recovery, s</th></tr>\n";
    scores.rows.iter().filter(|row| row.fitting_cells > 0).for_each(|row| text += &line(row));
    text += "</table></div>\n<h3>The worst cell of each row</h3>\n<ul>\n";
    for row in scores.rows.iter().filter(|row| row.fitting_cells > 0) {
        text += &format!(
            "<li>{}: {:.2} in <code>{}</code></li>\n",
            escaped(&row.row),
            row.worst_ratio,
            escaped(&row.worst_cell)
        );
    }
    text + "</ul>\n"
}

fn line(row: &RowScore) -> String {
    let begins = if row.group.competes() { "the cell's layout" } else { "its own" };
    let share = row.bound_share.map_or("-".to_owned(), |share| format!("{share:.2}"));
    let recovery = row.recovery_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.1}"));
    format!(
        "<tr><td>{}</td><td>{begins}</td><td>{}</td><td>{:.2}</td><td>{:.1}</td><td>{}</td><td>{:.2}</td><td>{share}</td><td>{:.2}</td><td>{:.2}</td><td>{:.1}</td><td>{}</td><td>{recovery}</td></tr>\n",
        escaped(&row.row),
        row.fitting_cells,
        row.mean_ratio,
        row.worst_ratio,
        row.lost_cells,
        row.mean_ratio_with_splits,
        row.p99_ratio,
        row.throughput_ratio,
        row.ssd_written_bytes as f64 / 1e9,
        row.unsteady_cells,
    )
}

/// Curves of the rows that begin with the cell's own layout.
fn svg(scores: &Scores) -> String {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    draw(&area, scores).and_then(|()| area.present()).expect("nothing can fail when a string is drawn into");
    drop(area);
    text
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    scores: &Scores,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let rows: Vec<&RowScore> =
        scores.rows.iter().filter(|row| row.group.competes() && row.fitting_cells > 0).collect();
    let (plot, names) = area.split_horizontally(NAMES.0);
    let mut chart = ChartBuilder::on(&plot)
        .margin(10)
        .x_label_area_size(46)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..100.0, 0.0..HIGHEST.log2())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_desc("cells, %")
        .y_desc("ratio to the best policy of the cell")
        .axis_desc_style(("sans-serif", 15).into_font().color(&INK))
        .label_style(("sans-serif", 14).into_font().color(&INK))
        .y_labels(6)
        .y_label_formatter(&|y| format!("{:.0}", y.exp2()))
        .draw()?;
    for (number, row) in rows.iter().enumerate() {
        let style = COLOURS[number % COLOURS.len()].stroke_width(if row.row == OURS { 5 } else { 2 });
        let along = |place: usize| 100.0 * (place as f64 + 0.5) / row.ratios.len() as f64;
        let points = row.ratios.iter().enumerate();
        let points: Vec<(f64, f64)> =
            points.map(|(place, ratio)| (along(place), ratio.clamp(1.0, HIGHEST).log2())).collect();
        match number < COLOURS.len() {
            true => chart.draw_series(LineSeries::new(points, style))?,
            false => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
        };
        let y = 20 + number as i32 * NAMES.1;
        let ends: &[(i32, i32)] = if number < COLOURS.len() { &[(5, 35)] } else { &[(5, 17), (23, 35)] };
        for &(from, to) in ends {
            names.draw(&PathElement::new([(from, y), (to, y)], style))?;
        }
        let name = format!("{:.2}  {}", row.mean_ratio, row.row);
        names.draw(&Text::new(name, (42, y - 7), ("sans-serif", 14).into_font().color(&INK)))?;
    }
    Ok(())
}
