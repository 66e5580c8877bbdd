//! Page of a plan: the devices to buy, a plot of cost against the target, and all mixes.

use super::draw::{number, span, svg};
use super::page::{document, figure};
use super::plan::{Plan, Priced};
use crate::report::{COLOURS, GRID, INK, escaped};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 440);
/// Radius of a mark.
const MARK: i32 = 5;

/// A page; `sentences` are the result in words.
pub fn plan_page(plan: &Plan, sentences: &[String]) -> String {
    let mut body = format!("<h1>Devices for {}</h1>\n", escaped(&plan.load));
    sentences.iter().for_each(|sentence| body += &format!("<p>{}</p>\n", escaped(sentence)));
    body += "<h2>Cost and latency</h2>\n<p>Each mark is a mix of devices; full ones hold the target, which is the line. A ring marks the cheapest.</p>\n";
    body += &figure("cost against latency of each mix", &picture(plan));
    body += &format!(
        "<div class=\"wide\"><table>\n<tr><th>devices</th><th>{}</th><th>policy</th><th>{}, ms</th><th>mean, ms</th><th>holds</th></tr>\n",
        escaped(&plan.currency),
        escaped(&plan.target_statistic)
    );
    plan.mixes.iter().for_each(|mix| body += &line(mix));
    body += "</table></div>\n";
    document("plan", &body)
}

fn line(mix: &Priced) -> String {
    let ms = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| number(ns / 1e6));
    format!(
        "<tr><td>{}</td><td>{:.2}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escaped(&mix.mix),
        mix.price,
        escaped(&mix.policy),
        ms(mix.target_statistic_ns),
        ms(mix.latency_ns_mean),
        match (&mix.why, mix.holds) {
            (Some(why), _) => escaped(why),
            (None, true) => "yes".to_owned(),
            (None, false) => "no".to_owned(),
        }
    )
}

fn picture(plan: &Plan) -> String {
    let limit = plan.target_ns as f64 / 1e6;
    let value = |mix: &Priced| mix.target_statistic_ns.map(|ns| ns / 1e6);
    let values = plan.mixes.iter().filter_map(value).chain([limit]);
    let highest = plan.mixes.iter().map(|mix| mix.price).fold(0.0, f64::max);
    let Some((low, high)) = span(values) else { return String::new() };
    let end = if highest > 0.0 { highest * 1.05 } else { 1.0 };
    svg(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(46)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..end, low.log2()..high.log2())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(format!("price, {}", plan.currency))
            .y_desc(format!("{}, ms", plan.target_statistic))
            .axis_desc_style(("sans-serif", 15).into_font().color(&INK))
            .label_style(("sans-serif", 14).into_font().color(&INK))
            .y_labels(8)
            .y_label_formatter(&|y| number(y.exp2()))
            .draw()?;
        let line = [(0.0, limit.log2()), (end, limit.log2())];
        chart.draw_series(DashedLineSeries::new(line, 8, 5, COLOURS[1].stroke_width(2)))?;
        for mix in &plan.mixes {
            let Some(ms) = value(mix).filter(|ms| *ms > 0.0) else { continue };
            let style = if mix.holds { COLOURS[0].filled() } else { COLOURS[5].stroke_width(1) };
            chart.draw_series([Circle::new((mix.price, ms.log2()), MARK, style)])?;
        }
        if let Some(cheapest) = &plan.cheapest
            && let Some(ms) = value(cheapest).filter(|ms| *ms > 0.0)
        {
            let ring = Circle::new((cheapest.price, ms.log2()), MARK + 5, INK.stroke_width(2));
            chart.draw_series([ring])?;
        }
        Ok(())
    })
}
