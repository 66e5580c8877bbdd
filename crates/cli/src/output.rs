//! Answers of commands, as text or JSON. Errors are a sentence on standard error, and with `--json` also an
//! object as the answer.
//!
//! Text may contain strings chosen by others: names on devices, paths, messages of the kernel. Control
//! characters in text are escaped, because a terminal would obey them.

use braid_control::Error;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

/// Form of answers.
#[derive(Clone, Copy)]
pub struct Output {
    /// True for JSON, false for text.
    pub json: bool,
}

impl Output {
    /// Prints a report: in full as JSON on one line, or as `text`.
    pub fn show(self, report: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            print_line(&json(report));
        } else {
            print_line(visible(&text()).trim_end());
        }
    }

    /// Prints a report like [`Output::show`], for a process that continues if standard output fails: the
    /// failure is only logged.
    pub fn announce(self, report: &impl Serialize, text: impl FnOnce() -> String) {
        let line = if self.json { json(report) } else { visible(&text()) };
        if let Err(error) = write_line(&line) {
            tracing::warn!("standard output: {error}: {line}");
        }
    }

    /// Reports why a command failed.
    pub fn fail(self, error: &Error) {
        self.answer(error);
        complain(&format!("braid: {error}"));
    }

    /// Prints an error as the answer, with `--json` only.
    pub fn answer(self, error: &Error) {
        if self.json {
            print_line(&json(&serde_json::json!({ "error": error })));
        }
    }
}

/// Prints one or more lines of text to standard output.
pub fn print(text: &str) {
    print_line(&visible(text));
}

/// Returns a path quoted as a word of a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Prints a line to standard error.
pub fn complain(text: &str) {
    // There is no other channel to report this failure.
    let _ = writeln!(io::stderr().lock(), "{}", visible(text));
}

/// Returns the final exit status of a command that ended with `status`: at least 1 if its answer was not
/// written. A reader that closes its end (`| head`) has read enough, which is no failure.
pub fn exit_status(status: u8) -> u8 {
    match FAILURE.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("braid: standard output: {error}: the answer is incomplete"));
            status.max(1)
        }
        _ => status,
    }
}

/// True if standard output accepts more.
pub fn is_open() -> bool {
    FAILURE.get().is_none()
}

/// The first failure of standard output.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

fn print_line(line: &str) {
    if is_open()
        && let Err(error) = write_line(line)
    {
        // The first failure counts.
        let _ = FAILURE.set(error);
    }
}

fn write_line(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush())
}

/// Serialises a report. JSON itself escapes ASCII control characters; the remaining control characters and
/// characters that change the direction of text are escaped as `\u…`.
fn json(report: &impl Serialize) -> String {
    let text = serde_json::to_string(report).expect("a report is plain text and numbers");
    escape(&text, |c| format!("\\u{:04x}", u32::from(c)))
}

/// Returns text with the characters escaped that a terminal would obey, except new lines and tabs:
/// `\u{1b}[2J` instead of a cleared screen.
fn visible(text: &str) -> String {
    escape(text, |c| c.escape_unicode().to_string())
}

fn escape(text: &str, escaped: impl Fn(char) -> String) -> String {
    if !text.contains(is_obeyed) {
        return text.to_owned();
    }
    text.chars().map(|c| if is_obeyed(c) { escaped(c) } else { c.to_string() }).collect()
}

/// True for control characters except new line and tab, and for characters that change the direction of text.
fn is_obeyed(c: char) -> bool {
    let turns_text =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns_text || c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(visible("a\tb\nc µ\n"), "a\tb\nc µ\n");
        assert_eq!(visible("\u{1b}[2Jgone\u{7}\r"), "\\u{1b}[2Jgone\\u{7}\\u{d}");
        assert_eq!(visible("\u{9b}2J \u{202e}gpj"), "\\u{9b}2J \\u{202e}gpj");
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("/dev/disk/by-id/ata-WDC_1")), "/dev/disk/by-id/ata-WDC_1");
        assert_eq!(quoted(Path::new("my disk.img")), "'my disk.img'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }

    #[test]
    fn json_escapes_control_characters_and_keeps_the_value() {
        let hostile = "\u{1b}[2J\u{9b}2J\u{202e}\n";
        let line = json(&hostile);
        assert!(!line.contains(is_obeyed) && !line.contains('\n'), "{line:?}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), hostile);
    }
}
