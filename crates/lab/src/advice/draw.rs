//! Plots: policies as points with their intervals, and latency over the size of the SSD.

use super::ask::{Forecast, SizeCurve};
use crate::report::{COLOURS, Drawn, GRID, INK};
use plotters::prelude::*;

/// Width of a picture in pixels; it scales.
const WIDTH: u32 = 900;
/// Height of a curve's picture, without the names below.
const HEIGHT: u32 = 400;
/// Height of a line of names.
const LINE: i32 = 22;
/// Room for the names of policies.
const NAMES: i32 = 300;
/// Radius of a mark.
const MARK: i32 = 4;
/// Factor of the lowest value at which a logarithmic axis begins.
const BELOW: f64 = 0.8;

/// Each policy's mean latency with its interval, on a logarithmic axis; the present policy is emphasised.
pub(crate) fn rows(rows: &[Forecast], present: &str) -> String {
    let height = 60 + rows.len() as i32 * LINE;
    let ends = rows.iter().flat_map(|row| {
        let most = row.latency_ns_high.unwrap_or(row.latency_ns_mean);
        [row.latency_ns_low.filter(|low| *low > 0.0).unwrap_or(row.latency_ns_mean), most]
    });
    let Some((low, high)) = span(ends) else { return String::new() };
    let along = |ns: f64| {
        let share = (ns.max(low) / low).ln() / (high / low).ln();
        NAMES + (share * f64::from(WIDTH as i32 - NAMES - 30)) as i32
    };
    svg((WIDTH, height as u32), |area| {
        let font = || ("sans-serif", 14).into_font().color(&INK);
        for tick in ticks(low, high) {
            let x = along(tick);
            area.draw(&PathElement::new([(x, 8), (x, height - 44)], GRID))?;
            area.draw(&Text::new(millis(tick), (x - 14, height - 38), font()))?;
        }
        area.draw(&Text::new("mean latency, ms", (NAMES + 200, height - 18), font()))?;
        for (place, row) in rows.iter().enumerate() {
            let y = 20 + place as i32 * LINE;
            let colour = if row.policy == present { COLOURS[1] } else { COLOURS[0] };
            area.draw(&Text::new(short(&row.policy), (8, y - 8), font()))?;
            if let (Some(from), Some(to)) = (row.latency_ns_low, row.latency_ns_high) {
                let ends = [(along(from), y), (along(to), y)];
                area.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
            }
            area.draw(&Circle::new((along(row.latency_ns_mean), y), MARK + 1, colour.filled()))?;
        }
        Ok(())
    })
}

/// Latency over the size of the SSDs, on logarithmic axes; the knee has a ring.
pub(crate) fn curves(curves: &[SizeCurve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let latencies = points().map(|point| point.latency_ns_mean / 1e6);
    let sizes = points().map(|point| gib(point.ssd_bytes));
    let (Some((low, high)), Some((small, large))) = (span(latencies), span(sizes)) else {
        return String::new();
    };
    let names = curves.len() as i32 * LINE + 8;
    svg((WIDTH, HEIGHT + names as u32), |area| {
        let (plot, legend) = area.split_vertically(HEIGHT);
        let mut chart = ChartBuilder::on(&plot)
            .margin(10)
            .x_label_area_size(46)
            .y_label_area_size(80)
            .build_cartesian_2d(small.log2()..large.log2(), low.log2()..high.log2())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc("all SSDs together, GiB")
            .y_desc("mean latency, ms")
            .axis_desc_style(("sans-serif", 15).into_font().color(&INK))
            .label_style(("sans-serif", 14).into_font().color(&INK))
            .y_labels(8)
            .x_label_formatter(&|x| number(x.exp2()))
            .y_label_formatter(&|y| number(y.exp2()))
            .draw()?;
        for (place, curve) in curves.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let at = |bytes: u64, ns: f64| (gib(bytes).log2(), (ns / 1e6).log2());
            let points: Vec<(f64, f64)> =
                curve.points.iter().map(|point| at(point.ssd_bytes, point.latency_ns_mean)).collect();
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            chart.draw_series(points.iter().map(|&point| Circle::new(point, MARK, colour.filled())))?;
            let knee = curve.points.iter().find(|point| Some(point.ssd_bytes) == curve.knee_bytes);
            let ring = knee.map(|knee| at(knee.ssd_bytes, knee.latency_ns_mean));
            chart.draw_series(ring.map(|at| Circle::new(at, MARK + 5, INK.stroke_width(2))))?;
            for point in &curve.points {
                if let (Some(from), Some(to)) = (point.latency_ns_low, point.latency_ns_high) {
                    let ends = [from.max(low * 1e6), to].map(|ns| at(point.ssd_bytes, ns));
                    chart.draw_series([PathElement::new(ends, colour.stroke_width(1))])?;
                }
            }
            let y = 10 + place as i32 * LINE;
            legend.draw(&PathElement::new([(80, y), (110, y)], colour.stroke_width(2)))?;
            let name = format!("{} on {}", short(&curve.policy), curve.ssd_models);
            legend.draw(&Text::new(name, (118, y - 8), ("sans-serif", 15).into_font().color(&INK)))?;
        }
        Ok(())
    })
}

/// Draws a document without a background.
pub(crate) fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn,
) -> String {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    draw(&area).and_then(|()| area.present()).expect("nothing can fail when a string is drawn into");
    drop(area);
    text
}

/// Ends of a logarithmic axis around these values; `None` if no value is above zero.
pub(crate) fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let is_drawn = |value: &f64| value.is_finite() && *value > 0.0;
    let ends = values
        .filter(is_drawn)
        .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    (ends.1 > 0.0).then_some((ends.0 * BELOW, ends.1 / BELOW))
}

/// 1, 2 and 5 times the powers of ten in the range; only the powers if there are many.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let steps: &[f64] = if powers.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

fn gib(bytes: u64) -> f64 {
    bytes.max(1) as f64 / f64::from(1 << 30)
}

fn millis(ns: f64) -> String {
    number(ns / 1e6)
}

/// Formats a number with three digits.
pub(crate) fn number(value: f64) -> String {
    let places = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 5) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A policy, shortened to the available room.
fn short(policy: &str) -> String {
    const ROOM: usize = 40;
    match policy.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", &policy[..end]),
        None => policy.to_owned(),
    }
}
