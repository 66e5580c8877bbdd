//! Documents: their links lead somewhere, and each is as short as its reader needs.
//!
//! | document | limit |
//! |---|---|
//! | `README.md` | under 130 lines |
//! | `ARCHITECTURE.md` | 2,000 words; a glossary of at most 40 terms |
//! | a page of `docs/design/` | 600 words |
//! | `CHANGELOG.md` | 60 lines for the newest release |
//! | all of the above | lines of at most 110 columns, except tables and code; a link counts with its text |

use std::fs;
use std::path::Path;

/// Lines of the README. Longer text belongs in `docs/`.
const README_LINES: usize = 130;
/// Words of `ARCHITECTURE.md`, as `wc -w` counts them. Longer text belongs in `docs/design/`.
const ARCHITECTURE_WORDS: usize = 2000;
/// Words of a page about a mechanism: a longer page describes two.
const DESIGN_WORDS: usize = 600;
/// Lines of the changelog for its newest release: a line for each change noticed by users.
const RELEASE_LINES: usize = 60;
/// Terms of the glossary: a reader has to learn all terms.
const GLOSSARY_TERMS: usize = 40;
/// Columns of a line of prose.
const COLUMNS: usize = 110;

/// Folder of the pages about mechanisms.
const DESIGN: &str = "docs/design/";

/// Faults of the documents below `root`: a sentence for each.
pub fn documents(root: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "python/README.md"].map(str::to_owned).into();
    collect_pages(root, "docs", &mut names);
    names.sort();
    names.iter().flat_map(|name| check(root, name, &read(root, name))).collect()
}

/// Adds the Markdown pages of a folder and its subfolders to `names`.
fn collect_pages(root: &Path, folder: &str, names: &mut Vec<String>) {
    let entries = fs::read_dir(root.join(folder)).unwrap_or_else(|e| panic!("{folder}/ cannot be read: {e}"));
    for entry in entries {
        let entry = entry.unwrap_or_else(|e| panic!("{folder}/ cannot be read: {e}"));
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() {
            collect_pages(root, &path, names);
        } else if name.ends_with(".md") {
            names.push(path);
        }
    }
}

fn read(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name} cannot be read: {e}"))
}

fn check(root: &Path, name: &str, text: &str) -> Vec<String> {
    let mut wrong = too_long(name, text);
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    for (number, line) in text.lines().enumerate() {
        for link in links(line) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { name.into() } else { folder.join(file) };
            let found = fs::read_to_string(root.join(&target))
                .ok()
                .or_else(|| root.join(&target).exists().then(String::new));
            if !found.is_some_and(|text| heading.is_empty() || anchors(&text).any(|a| a == heading)) {
                wrong.push(format!("{name}:{}: the link '{link}' leads nowhere", number + 1));
            }
        }
    }
    wrong
}

/// Limits that a document exceeds.
fn too_long(name: &str, text: &str) -> Vec<String> {
    let is_design = name.starts_with(DESIGN);
    let mut wrong = Vec::new();
    let mut limit = |count: usize, most: usize, what: &str, remedy: &str| {
        if count > most {
            wrong.push(format!("{name} has {count} {what}: keep {most} at most, {remedy}"));
        }
    };
    let words = text.split_whitespace().count();
    match name {
        "README.md" => limit(text.lines().count(), README_LINES - 1, "lines", "move the rest to docs/"),
        "ARCHITECTURE.md" => {
            limit(words, ARCHITECTURE_WORDS, "words", "move the rest to docs/design/");
            let terms = section(text, "## Glossary").filter(|line| line.starts_with("- **")).count();
            limit(terms, GLOSSARY_TERMS, "terms in its glossary", "use a word of the field for the others");
        }
        "CHANGELOG.md" => {
            let lines = newest_release(text).count();
            limit(lines, RELEASE_LINES, "lines for its newest release", "one for what a user notices");
        }
        _ if is_design => limit(words, DESIGN_WORDS, "words", "or make two pages of it"),
        _ => {}
    }
    if is_design || matches!(name, "README.md" | "ARCHITECTURE.md" | "CHANGELOG.md") {
        wrong.extend(wide_lines(text).map(|(number, columns)| {
            format!("{name}:{number}: a line of {columns} columns: end it at {COLUMNS}")
        }));
    }
    wrong
}

/// The lines of a section, without its heading, up to the next heading of any level.
fn section<'a>(text: &'a str, heading: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().skip_while(move |line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'))
}

/// Lines of a changelog from its first release to the second.
fn newest_release(text: &str) -> impl Iterator<Item = &str> {
    let from_first = text.lines().skip_while(|line| !line.starts_with("## "));
    from_first.enumerate().take_while(|(n, line)| *n == 0 || !line.starts_with("## ")).map(|(_, line)| line)
}

/// Lines of prose that are too wide, with their numbers and columns. The text of a link counts, not its
/// target.
fn wide_lines(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let (mut is_fenced, mut may_be_code) = (false, true);
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        // Indented code follows an empty line; otherwise an indented line continues a list.
        let is_code = may_be_code && line.starts_with("    ");
        may_be_code = is_code || line.is_empty();
        !is_fence && !is_fenced && !is_code && !line.starts_with('|')
    });
    prose.map(|(n, line)| (n + 1, columns(line))).filter(|(_, columns)| *columns > COLUMNS)
}

fn columns(line: &str) -> usize {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().chars().count();
    let after_target = |rest: &str| rest.split_once(')').map_or(rest, |(_, after)| after).chars().count();
    // The bracket before the target stays.
    first + parts.map(|rest| after_target(rest) + 1).sum::<usize>()
}

/// Targets of the links of a line, without links to other hosts.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://"))
}

/// Anchors of a page's headings, as renderers of Markdown make them.
fn anchors(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Folder for one test.
    fn folder(test: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("braid-documents-{test}-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder");
        root
    }

    #[test]
    fn dead_links_are_reported_with_line_number() {
        let text =
            "# What is it\n[a](#what-is-it) [b](https://example.org/c)\n[c](gone.md) [d](#elsewhere)\n";
        let root = folder("links");
        fs::write(root.join("page.md"), text).expect("a file");
        let found = check(&root, "page.md", text);
        fs::remove_dir_all(&root).expect("the folder goes");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("page.md:3: ") && found[0].contains("'gone.md'"), "{found:?}");
        assert!(found[1].starts_with("page.md:3: ") && found[1].contains("'#elsewhere'"), "{found:?}");
    }

    #[test]
    fn pages_in_folders_below_docs_are_checked() {
        let root = folder("folders");
        for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
            fs::write(root.join(name), "").expect("a file");
        }
        for name in ["python", "docs/guide/first"] {
            fs::create_dir_all(root.join(name)).expect("a folder");
        }
        fs::write(root.join("python/README.md"), "").expect("a file");
        fs::write(root.join("docs/guide/first/page.md"), "[up](../../page.md) [gone](../page.md)\n")
            .expect("a file");
        fs::write(root.join("docs/page.md"), "").expect("a file");
        let found = documents(&root);
        fs::remove_dir_all(&root).expect("the folder goes");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/guide/first/page.md:1: "), "{found:?}");
        assert!(found[0].contains("'../page.md'"), "{found:?}");
    }

    #[test]
    fn a_long_readme_is_found() {
        assert!(too_long("README.md", &"x\n".repeat(README_LINES - 1)).is_empty());
        assert_eq!(too_long("README.md", &"x\n".repeat(README_LINES)).len(), 1);
        assert!(too_long("docs/json.md", &"x\n".repeat(README_LINES)).is_empty());
    }

    #[test]
    fn a_long_architecture_is_found() {
        assert!(too_long("ARCHITECTURE.md", &"x\n".repeat(ARCHITECTURE_WORDS)).is_empty());
        let found = too_long("ARCHITECTURE.md", &"x\n".repeat(ARCHITECTURE_WORDS + 1));
        assert!(found.len() == 1 && found[0].contains("2001 words"), "{found:?}");
    }

    #[test]
    fn a_long_page_of_the_design_is_found() {
        assert!(too_long("docs/design/mirrors.md", &"x\n".repeat(DESIGN_WORDS)).is_empty());
        assert_eq!(too_long("docs/design/mirrors.md", &"x\n".repeat(DESIGN_WORDS + 1)).len(), 1);
        assert!(too_long("docs/format.md", &"x\n".repeat(DESIGN_WORDS + 1)).is_empty());
    }

    #[test]
    fn glossary_limit_counts_only_glossary_terms() {
        let list = |terms| "- **term**: word\n".repeat(terms);
        let page = |terms| format!("## Decisions\n{}## Glossary\n\n{}", list(GLOSSARY_TERMS), list(terms));
        assert!(too_long("ARCHITECTURE.md", &page(GLOSSARY_TERMS)).is_empty());
        let found = too_long("ARCHITECTURE.md", &page(GLOSSARY_TERMS + 1));
        assert!(found.len() == 1 && found[0].contains("41 terms"), "{found:?}");
    }

    #[test]
    fn the_changelog_of_the_newest_release_is_short() {
        let release = |lines: usize| format!("## [1.0]\n{}", "- x\n".repeat(lines - 1));
        let page = |newest, older| format!("# Changelog\n\n{}{}", release(newest), release(older));
        assert!(too_long("CHANGELOG.md", &page(RELEASE_LINES, RELEASE_LINES + 1)).is_empty());
        assert_eq!(too_long("CHANGELOG.md", &page(RELEASE_LINES + 1, 2)).len(), 1);
    }

    #[test]
    fn wide_prose_is_found_and_links_tables_and_code_may_be_wide() {
        let wide = "x".repeat(COLUMNS + 1);
        let found = too_long("docs/design/mirrors.md", &format!("{}\n{wide}\n", &wide[1..]));
        assert_eq!(found, ["docs/design/mirrors.md:2: a line of 111 columns: end it at 110"]);
        for text in ["| x |", "```text\nx\n```", "code:\n\n    x\n    x"] {
            assert!(too_long("README.md", &text.replace('x', &wide)).is_empty(), "{text}");
        }
        assert_eq!(too_long("README.md", &format!("10. a list\n    {wide}")).len(), 1);
        assert!(too_long("README.md", &format!("[{}]({wide})", &wide[3..])).is_empty());
        assert_eq!(too_long("README.md", &format!("[{}]({wide})", &wide[2..])).len(), 1);
        assert_eq!(too_long("CHANGELOG.md", &format!("```\n```\n{wide}")).len(), 1);
        assert!(too_long("docs/research.md", &wide).is_empty());
    }
}
