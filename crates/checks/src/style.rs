//! Mechanical rules of style.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file in lines, without its tests.
const LONGEST: usize = 500;

/// Names of modules that attract unrelated code.
const NOT_A_ROOM: &[&str] = &["common", "utils", "util", "helpers", "helper", "misc", "manager"];

/// Marks of open work: open work belongs in the tracker. Written in parts: otherwise the check would find its
/// own source.
const LEFT_TO_DO: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Faults of the Rust files below `root`: a sentence for each.
pub fn style(root: &Path) -> Vec<String> {
    rust_files(root).iter().flat_map(|(file, text)| check(Path::new(file), text)).collect()
}

/// The Rust files below `root`, sorted: the path of each from there, and its text.
pub(crate) fn rust_files(root: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in ["crates", "bench", "fuzz", "python/src"] {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 50, "the source is where this check looks for it");
    files.sort();
    let read = |file: &PathBuf| {
        let text =
            fs::read_to_string(file).unwrap_or_else(|e| panic!("{} cannot be read: {e}", file.display()));
        (file.strip_prefix(root).unwrap_or(file).display().to_string(), text)
    };
    files.iter().map(read).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn check(file: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = file.display();
    let room =
        file.iter().filter_map(|part| Path::new(part).file_stem()?.to_str()).find(|r| NOT_A_ROOM.contains(r));
    if let Some(room) = room {
        wrong.push(format!(
            "{name}: '{room}' says nothing of what is in it: name the file after what it does"
        ));
    }
    let lines = lines_without_tests(text);
    if lines > LONGEST {
        wrong.push(format!("{name} has {lines} lines without its tests: split it, {LONGEST} at most"));
    }
    for (number, line) in text.lines().enumerate() {
        if let Some(mark) = LEFT_TO_DO.iter().find(|mark| line.contains(*mark)) {
            wrong.push(format!("{name}:{}: {mark}: do it, or say in words what is not done", number + 1));
        }
    }
    wrong
}

/// Lines of a file without its tests. Tests stand at the end.
fn lines_without_tests(text: &str) -> usize {
    let tests = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..tests].lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_fault_is_reported_with_file_and_line() {
        let found = check(Path::new("crates/engine/src/utils.rs"), concat!("fn f() {}\n// TO", "DO later\n"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("crates/engine/src/utils.rs:2: "), "{found:?}");
        assert!(check(Path::new("crates/nbd/tests/support/mod.rs"), "").is_empty());
    }

    #[test]
    fn tests_do_not_make_a_file_long() {
        let long = "x\n".repeat(LONGEST);
        let with_tests = format!("{long}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert!(check(Path::new("a.rs"), &with_tests).is_empty());
        assert_eq!(check(Path::new("a.rs"), &format!("{long}y\n")).len(), 1);
    }
}
