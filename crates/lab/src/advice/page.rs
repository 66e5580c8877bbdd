//! Page of an advice: the recommendation, then the plots, then their tables. The page is self-contained.

use super::ask::{Advice, Forecast, SizePoint};
use super::draw::{self, number};
use crate::report::{STYLE, escaped};

/// A page; `sentences` are the recommendation, and `command` is the command to type.
pub fn page(advice: &Advice, sentences: &[String], command: Option<&str>) -> String {
    let mut body = format!("<h1>Advice for {}</h1>\n", escaped(&advice.load));
    sentences.iter().for_each(|sentence| body += &format!("<p>{}</p>\n", escaped(sentence)));
    if let Some(command) = command {
        body += &format!("<p><code>{}</code></p>\n", escaped(command));
    }
    body += "<h2>Policies</h2>\n<p>Mean latency with its 95 % interval. The present policy has a colour of its own.</p>\n";
    body += &figure("mean latency of each policy", &draw::rows(&advice.rows, &advice.present_policy));
    body += "<div class=\"wide\"><table>\n<tr><th>policy</th><th>mean, ms</th><th>interval</th><th>p99, ms</th>\
             <th>to the present, ms</th><th>keeps up</th><th>SSD written, GB/day</th><th>drive writes a day</th></tr>\n";
    advice.rows.iter().for_each(|row| body += &line(row));
    body += "</table></div>\n";
    if !advice.unfit_policies.is_empty() {
        body += "<h3>Policies without room</h3>\n<ul>\n";
        for unfit in &advice.unfit_policies {
            body += &format!("<li><code>{}</code>: {}</li>\n", escaped(&unfit.policy), escaped(&unfit.why));
        }
        body += "</ul>\n";
    }
    if !advice.curves.is_empty() {
        body += "<h2>Size of the SSD</h2>\n<p>A ring marks the size from which on a larger SSD gains less than a tenth.</p>\n";
        body += &figure("mean latency over the size of the SSDs", &draw::curves(&advice.curves));
        body += "<div class=\"wide\"><table>\n<tr><th>policy</th><th>SSD</th><th>GB</th><th>mean, ms</th><th>interval</th><th>p99, ms</th></tr>\n";
        for curve in &advice.curves {
            for point in &curve.points {
                body += &format!(
                    "<tr><td>{}</td><td>{}</td>{}</tr>\n",
                    escaped(&curve.policy),
                    escaped(&curve.ssd_models),
                    size(point)
                );
            }
        }
        body += "</table></div>\n";
    }
    document("advice", &body)
}

/// A complete HTML document.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>Braid: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

pub(crate) fn figure(label: &str, svg: &str) -> String {
    format!("<figure role=\"img\" aria-label=\"{label}\">{}</figure>\n", svg.trim())
}

fn line(row: &Forecast) -> String {
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        escaped(&row.policy),
        number(row.latency_ns_mean / 1e6),
        interval(row.latency_ns_low, row.latency_ns_high),
        number(row.latency_ns_p99 as f64 / 1e6),
        interval(row.difference_ns_low, row.difference_ns_high),
        if row.keeps_up { "yes" } else { "no" },
        number(row.ssd_written_bytes_per_day / 1e9),
        number(row.drive_writes_per_day),
    )
}

fn size(point: &SizePoint) -> String {
    format!(
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
        number(point.ssd_bytes as f64 / 1e9),
        number(point.latency_ns_mean / 1e6),
        interval(point.latency_ns_low, point.latency_ns_high),
        number(point.latency_ns_p99 as f64 / 1e6),
    )
}

fn interval(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", number(low / 1e6), number(high / 1e6)),
        _ => "-".to_owned(),
    }
}
