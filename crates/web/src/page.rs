//! The files of the dashboard, part of the program: no file, build step or network is needed.

use axum::http::header;
use axum::response::{IntoResponse, Response};

const LOGIN: &str = include_str!("../page/login.html");
const STYLE: &str = include_str!("../page/style.css");
const ICON: &str = include_str!("../page/icon.svg");

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Files by address, with their types.
pub(crate) const FILES: [(&str, &str, &str); 3] =
    [("/login", HTML, LOGIN), ("/style.css", CSS, STYLE), ("/icon.svg", SVG, ICON)];

/// Answers with a file.
pub(crate) fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
