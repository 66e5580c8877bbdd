use crate::daemons::*;
use axum::http::StatusCode;
use std::path::Path;

const SCRIPTS: [&str; 6] = ["/app.js", "/map.js", "/charts.js", "/alerts.js", "/advice.js", "/text.js"];
const OTHER_FILES: [&str; 6] = ["/", "/login", "/style.css", "/icon.svg", "/uplot.js", "/uplot.css"];

#[tokio::test]
async fn page_is_small_and_complete() {
    let router = dashboard(Fake::with(&[]));
    let mut size = 0;
    for path in SCRIPTS.into_iter().chain(OTHER_FILES) {
        let answer = get(&router, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        size += answer.body.len();
    }
    assert!(size < 200_000, "{size} bytes");
    assert!(get(&router, "/uplot-licence.txt").await.body.contains("MIT"));
    // The page asks for no file that the dashboard lacks.
    let page = get(&router, "/").await.body;
    for part in page.split(['"', '\'']).filter(|part| part.starts_with('/')) {
        assert_eq!(get(&router, part).await.status, StatusCode::OK, "{part}");
    }
}

/// The policy for content forbids inline scripts and styles, and text of others must stay text.
#[test]
fn page_has_no_inline_script_and_inserts_text_only() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    for file in ["index.html", "login.html"] {
        let html = std::fs::read_to_string(folder.join(file)).unwrap();
        for forbidden in [" style=", " onclick=", "<style", "javascript:", "http://", "https://"] {
            assert!(!html.contains(forbidden), "{file}: {forbidden}");
        }
        for script in html.split("<script").skip(1) {
            assert!(script.split('>').next().unwrap().contains("src="), "{file}: {script}");
        }
    }
    let read = |path: &str| std::fs::read_to_string(folder.join(&path[1..])).unwrap();
    let script: String = SCRIPTS.into_iter().map(read).collect();
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http://",
        "https://",
    ] {
        assert!(!script.contains(forbidden), "{forbidden}");
    }
}
