//! Documents: their links lead somewhere, and the README stays short enough to be read.

use std::fs;
use std::path::Path;

/// Lines of the README: what does not fit belongs in `docs/`.
const README_LINES: usize = 130;

/// What is wrong in the documents below `root`: a sentence for each.
pub fn documents(root: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "python/README.md"].map(str::to_owned).into();
    let pages = fs::read_dir(root.join("docs")).unwrap_or_else(|e| panic!("docs/ cannot be read: {e}"));
    names.extend(pages.filter_map(|page| {
        let name = page.ok()?.file_name().into_string().ok()?;
        name.ends_with(".md").then(|| format!("docs/{name}"))
    }));
    names.sort();
    names.iter().flat_map(|name| check(root, name, &read(root, name))).collect()
}

fn read(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name} cannot be read: {e}"))
}

fn check(root: &Path, name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines = text.lines().count();
    if name == "README.md" && lines >= README_LINES {
        wrong.push(format!("{name} has {lines} lines: keep it under {README_LINES}, move the rest to docs/"));
    }
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    for (number, line) in text.lines().enumerate() {
        for link in links(line) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { name.into() } else { folder.join(file) };
            let found = fs::read_to_string(root.join(&target))
                .ok()
                .or_else(|| root.join(&target).is_dir().then(String::new));
            if !found.is_some_and(|text| heading.is_empty() || anchors(&text).any(|a| a == heading)) {
                wrong.push(format!("{name}:{}: the link '{link}' leads nowhere", number + 1));
            }
        }
    }
    wrong
}

/// Targets of the links of a line, but those to other hosts.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://"))
}

/// The anchors of a page's headings, as renderers of Markdown make them.
fn anchors(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_named_with_their_line() {
        let text =
            "# What is it\n[a](#what-is-it) [b](https://example.org/c)\n[c](gone.md) [d](#elsewhere)\n";
        let root = std::env::temp_dir().join(format!("braid-documents-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder");
        fs::write(root.join("page.md"), text).expect("a file");
        let found = check(&root, "page.md", text);
        fs::remove_dir_all(&root).expect("the folder goes");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("page.md:3: ") && found[0].contains("'gone.md'"), "{found:?}");
        assert!(found[1].starts_with("page.md:3: ") && found[1].contains("'#elsewhere'"), "{found:?}");
    }

    #[test]
    fn a_long_readme_is_found() {
        let root = Path::new(".");
        assert!(check(root, "README.md", &"x\n".repeat(README_LINES - 1)).is_empty());
        assert_eq!(check(root, "README.md", &"x\n".repeat(README_LINES)).len(), 1);
        assert!(check(root, "docs/json.md", &"x\n".repeat(README_LINES)).is_empty());
    }
}
