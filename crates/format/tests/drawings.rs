//! The drawings in `docs/format.md` are those of the source: a change of one that is not made in the other
//! fails here.

use std::fs;
use std::path::Path;

#[test]
fn every_drawing_of_the_source_is_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/format.md")).unwrap();
    let mut drawings = 0;
    for folder in ["src", "src/journal", "src/superblock"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                for drawing in drawings_of(&fs::read_to_string(&path).unwrap()) {
                    assert!(
                        page.contains(&drawing),
                        "{} draws, docs/format.md does not:\n{drawing}",
                        path.display()
                    );
                    drawings += 1;
                }
            }
        }
    }
    assert!(drawings >= 12, "{drawings} drawings found: the source is where this test looks for it");
}

/// The ```` ```text ```` blocks of a file's head.
fn drawings_of(source: &str) -> Vec<String> {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let head: Vec<&str> = head.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    head.split(|line| line.starts_with("```"))
        .skip(1)
        .step_by(2)
        .map(|drawing| format!("```text\n{}\n```\n", drawing.join("\n")))
        .collect()
}
