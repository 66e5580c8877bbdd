//! The files of the dashboard, part of the program: no file, build step or network is needed.

use axum::http::header;
use axum::response::{IntoResponse, Response};

const INDEX: &str = include_str!("../page/index.html");
const LOGIN: &str = include_str!("../page/login.html");
const STYLE: &str = include_str!("../page/style.css");
const ICON: &str = include_str!("../page/icon.svg");
const SCRIPT: &str = include_str!("../page/app.js");
const MAP: &str = include_str!("../page/map.js");
const CHARTS: &str = include_str!("../page/charts.js");
const ALERTS: &str = include_str!("../page/alerts.js");
const ADVICE: &str = include_str!("../page/advice.js");
const WORDS: &str = include_str!("../page/text.js");
/// The charts' library, unchanged, from the folder that the reports of `braid lab` use, with its licence.
const UPLOT: &str = include_str!("../../lab/assets/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../lab/assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../lab/assets/uplot/LICENSE");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// Files by address, with their types.
pub(crate) const FILES: [(&str, &str, &str); 13] = [
    ("/", HTML, INDEX),
    ("/login", HTML, LOGIN),
    ("/style.css", CSS, STYLE),
    ("/icon.svg", SVG, ICON),
    ("/app.js", JAVASCRIPT, SCRIPT),
    ("/map.js", JAVASCRIPT, MAP),
    ("/charts.js", JAVASCRIPT, CHARTS),
    ("/alerts.js", JAVASCRIPT, ALERTS),
    ("/advice.js", JAVASCRIPT, ADVICE),
    ("/text.js", JAVASCRIPT, WORDS),
    ("/uplot.js", JAVASCRIPT, UPLOT),
    ("/uplot.css", CSS, UPLOT_STYLE),
    ("/uplot-licence.txt", TEXT, UPLOT_LICENCE),
];

/// Answers with a file.
pub(crate) fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
