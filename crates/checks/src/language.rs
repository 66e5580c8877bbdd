//! Language of comments: terms instead of pronouns, and lines that fit a page.
//!
//! A pronoun may stand for the subject of the same sentence only: a crate has few pronouns. The share is
//! measured over a whole crate, because rooms differ.

use super::style::rust_files;
use std::collections::BTreeMap;
use std::path::Path;

/// Columns of a comment line. Drawings and tables may be wider.
const COLUMNS: usize = 110;
/// Pronouns in 1,000 words of a crate's comments.
const PRONOUNS: usize = 60;
/// Words of comments in a crate; the share of fewer words is chance.
const FEWEST_WORDS: usize = 500;

/// Pronouns, and words at the beginning of a relative clause.
const COUNTED: &[&str] = &[
    "it", "its", "that", "this", "these", "those", "what", "which", "who", "whose", "one", "ones", "they",
    "them", "their", "so", "other", "others",
];

/// Faults of the comments in the Rust files below `root`: a sentence for each.
pub fn language(root: &Path) -> Vec<String> {
    check(&rust_files(root))
}

fn check(files: &[(String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut shares: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (file, text) in files {
        let (pronouns, words) = shares.entry(package(file)).or_default();
        for (number, line) in prose(text) {
            let columns = line.chars().count();
            if columns > COLUMNS {
                let number = number + 1;
                wrong.push(format!("{file}:{number}: a comment of {columns} columns: end it at {COLUMNS}"));
            }
            for word in words_of(line) {
                *words += 1;
                *pronouns += usize::from(COUNTED.iter().any(|counted| word.eq_ignore_ascii_case(counted)));
            }
        }
    }
    for (package, (pronouns, words)) in shares {
        if words >= FEWEST_WORDS && pronouns * 1000 > words * PRONOUNS {
            let share = pronouns * 1000 / words;
            wrong.push(format!(
                "{package}: {share} of 1,000 words in comments are pronouns: name the thing again, {PRONOUNS} at most"
            ));
        }
    }
    wrong
}

/// Package of a file: its folder below `crates`, or its first folder.
fn package(file: &str) -> &str {
    let rest = file.strip_prefix("crates/").unwrap_or(file);
    rest.split('/').next().unwrap_or(rest)
}

/// Lines of comments with their numbers from 0, without code blocks, drawings and tables.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_fenced = false;
            return false;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        let is_fence = comment.starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced && !comment.starts_with('|')
    })
}

/// Words of a comment line, without code in backticks.
fn words_of(line: &str) -> impl Iterator<Item = &str> {
    let text = line.split('`').step_by(2);
    text.flat_map(|part| part.split(|c: char| !c.is_ascii_alphabetic() && c != '\''))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        check(&[("crates/engine/src/map.rs".to_owned(), text.to_owned())])
    }

    #[test]
    fn wide_comment_is_reported_with_its_line() {
        let wide = format!("// {}\n", "word ".repeat(30));
        let found = faults(&format!("fn f() {{}}\n{wide}"));
        assert!(found.len() == 1 && found[0].starts_with("crates/engine/src/map.rs:2: "), "{found:?}");
        assert_eq!(faults(&format!("//! ```text\n{wide}//! ```\n")), Vec::<String>::new());
        assert_eq!(faults(&format!("//! | {}\n", wide.trim())), Vec::<String>::new());
    }

    #[test]
    fn crate_with_many_pronouns_is_reported() {
        let plain = "/// Returns the home of an extent after a move.\n".repeat(100);
        assert_eq!(faults(&plain), Vec::<String>::new());
        let found = faults(&format!("{plain}{}", "/// It is what that one was.\n".repeat(20)));
        assert!(found.len() == 1 && found[0].starts_with("engine: "), "{found:?}");
    }

    #[test]
    fn code_and_short_texts_are_no_prose() {
        assert_eq!(faults("/// It is what that one was.\n"), Vec::<String>::new());
        assert_eq!(words_of("// Calls `it that one` twice.").collect::<Vec<_>>(), ["Calls", "twice"]);
    }
}
