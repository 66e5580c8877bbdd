//! `braid man`, hidden from the help: manual pages, for packages and `make install`.
//!
//! The definitions of the command line give help and manual alike. A page's sections after its options come
//! from the end of the help: paragraphs go to the section of their first word.

use crate::Cli;
use crate::output::{Output, print};
use braid_control::{Error, Result};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::PathBuf;

/// Write a manual page of each command into a directory
///
/// The pages carry the date of SOURCE_DATE_EPOCH (seconds since 1970), or else today's.
#[derive(Args)]
#[command(after_help = "\
Example:
  braid man /usr/local/share/man/man1")]
pub struct Arguments {
    /// Directory for the pages; created if missing
    directory: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments, _output: Output) -> Result<u8> {
    let directory = &arguments.directory;
    let failed = |error: io::Error| Error::io(directory.display(), &error);
    let mut command = without_help_command(Cli::command());
    command.build();
    std::fs::create_dir_all(directory).map_err(failed)?;
    for page in pages(&command, &date()) {
        let path = directory.join(&page.file_name);
        std::fs::write(&path, page.text).map_err(|error| Error::io(path.display(), &error))?;
        print(&path.display().to_string());
    }
    Ok(0)
}

/// A manual page.
struct Page {
    file_name: String,
    text: String,
}

/// Sections after a page's options, in the order of man-pages(7).
const SECTIONS: [&str; 6] = ["ENVIRONMENT", "FILES", "EXIT STATUS", "NOTES", "EXAMPLES", "JSON"];
/// First lines that only repeat the title of their section.
const TITLES: [&str; 3] = ["Example:", "Examples:", "Environment:"];

/// Removes the `help` commands: a page of each would repeat another page.
fn without_help_command(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_command)
}

/// Returns the pages of a command and of its visible subcommands.
fn pages(command: &Command, date: &str) -> Vec<Page> {
    let visible = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let below = visible.flat_map(|subcommand| pages(subcommand, date));
    std::iter::once(page(command, date)).chain(below).collect()
}

fn page(command: &Command, date: &str) -> Page {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone()).title(name.to_uppercase()).date(date).manual("Braid");
    let man = man.source(format!("braid {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    let has_subcommands = command.has_subcommands();
    let rendered = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| man.render_description_section(&mut text))
        .and_then(|()| if has_subcommands { man.render_subcommands_section(&mut text) } else { Ok(()) })
        .and_then(|()| man.render_options_section(&mut text))
        .and_then(|()| sections(&after).to_writer(&mut text));
    rendered.expect("memory takes all that is written to it");
    let mut text = tidied(&String::from_utf8_lossy(&text));
    if name != "braid" {
        text += ".SH \"SEE ALSO\"\n\\fBbraid\\fR(1)\n";
    }
    Page { file_name: man.get_filename(), text }
}

/// Renders the end of a command's help as sections.
fn sections(after_help: &str) -> Roff {
    let mut roff = Roff::new();
    for title in SECTIONS {
        let mut paragraphs = after_help.split("\n\n").filter(|text| section_of(text) == title).peekable();
        if paragraphs.peek().is_some() {
            roff.control("SH", [title]);
        }
        for (number, paragraph) in paragraphs.enumerate() {
            render_paragraph(&mut roff, paragraph, number == 0);
        }
    }
    roff
}

/// Title of a paragraph's section.
fn section_of(paragraph: &str) -> &'static str {
    let first = paragraph.trim_start();
    match () {
        () if first.is_empty() => "",
        () if first.starts_with("JSON") => "JSON",
        () if first.starts_with("/etc/") => "FILES",
        () if first.starts_with("Environment:") => "ENVIRONMENT",
        () if first.starts_with("Exit status:") => "EXIT STATUS",
        () if paragraph.contains("\n  ") => "EXAMPLES",
        () => "NOTES",
    }
}

/// Renders a paragraph. Indented lines are set as they are.
fn render_paragraph(roff: &mut Roff, paragraph: &str, is_first: bool) {
    if !is_first {
        roff.control("PP", []);
    }
    let mut is_verbatim = false;
    for line in paragraph.lines().filter(|line| !TITLES.contains(line)) {
        let indented = line.strip_prefix("  ");
        if indented.is_some() != is_verbatim {
            is_verbatim = indented.is_some();
            set_verbatim(roff, is_verbatim);
        }
        roff.text([roman(indented.unwrap_or(line))]);
    }
    if is_verbatim {
        set_verbatim(roff, false);
    }
}

/// Begins or ends a block of lines that are not filled.
fn set_verbatim(roff: &mut Roff, begin: bool) {
    if begin {
        roff.control("RS", ["4"]).control("nf", []);
    } else {
        roff.control("fi", []).control("RE", []);
    }
}

/// Removes empty lines, blanks at ends, and repeated breaks. A renderer would warn of them.
fn tidied(page: &str) -> String {
    let mut lines: Vec<&str> = page.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.dedup_by(|line, before| line == before && *line == ".br");
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Date of the pages, as `2026-11-29`.
fn date() -> String {
    let set = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let at = set.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    at.unwrap_or_else(jiff::Timestamp::now).strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_help_becomes_sections() {
        let help = "Examples:\n  braid a \\\n    b\n\nA note.\n\nJSON: name.\n\nExit status: 0 done.";
        let text = tidied(&sections(help).to_roff());
        let expected = ".SH \"EXIT STATUS\"\nExit status: 0 done.\n.SH NOTES\nA note.\n.SH EXAMPLES\n.RS 4\n.nf\n\
             braid a \\\\\n  b\n.fi\n.RE\n.SH JSON\nJSON: name.\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_visible_command_has_a_page() {
        let mut command = without_help_command(Cli::command());
        command.build();
        let pages = pages(&command, "2026-11-29");
        let names: Vec<&str> = pages.iter().map(|page| page.file_name.as_str()).collect();
        for name in ["braid.1", "braid-serve.1", "braid-device-add.1", "braid-lab-run.1"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.ends_with("-help.1") || *name == "braid-man.1"), "{names:?}");
        assert!(pages[0].text.contains(".TH BRAID 1 2026-11-29"), "{}", pages[0].text);
    }
}
