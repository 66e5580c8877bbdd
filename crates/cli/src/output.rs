//! Answers: text for people, or JSON. Errors: a sentence on standard error, and with `--json` an object as the answer.

use braid_control::Error;
use serde::Serialize;
use std::io::Write;

/// How answers are given.
#[derive(Clone, Copy)]
pub struct Output {
    /// As JSON.
    pub json: bool,
}

impl Output {
    /// Gives a report: in full as JSON on one line, or as `text`.
    pub fn show(self, report: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            print(&serde_json::to_string(report).expect("a report is plain text and numbers"));
        } else {
            print(text().trim_end());
        }
    }

    /// Gives a report as [`Output::show`] does, from a process that goes on whether anybody listens or not.
    pub fn announce(self, report: &impl Serialize, text: impl FnOnce() -> String) {
        let line = match self.json {
            true => serde_json::to_string(report).expect("a report is plain text and numbers"),
            false => text(),
        };
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            tracing::warn!("nobody reads standard output ({error}): {line}");
        }
    }

    /// Says why a command failed.
    pub fn fail(self, error: &Error) {
        if self.json {
            print(&serde_json::json!({ "error": error }).to_string());
        }
        eprintln!("braid: {error}");
    }
}

/// A line, or several, to standard output. Whoever closes that (`| head`) has read enough.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{text}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}
