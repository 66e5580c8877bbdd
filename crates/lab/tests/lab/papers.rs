//! `docs/papers.md` says what is simulated. All of it takes an hour and more; here are a few experiments that
//! take seconds, with as many seeds as the document has.

use braid_lab::experiments::find;
use braid_lab::report::rows;
use braid_lab::study::{Folder, How, Seeds, study};
use std::ops::ControlFlow;

/// Of two papers.
const SUBSET: [&str; 2] = ["hystor/chunk", "working-set/model"];

#[test]
fn papers_document_matches_simulated_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers.md");
    let document = std::fs::read_to_string(path).unwrap();
    let experiments = find(&SUBSET.map(str::to_owned)).unwrap();
    let how = How { seed: 1, seeds: Seeds::AsNeeded, quick: false, threads: None };
    let studies = study(&experiments, how, &Folder::none(), |_| ControlFlow::Continue(())).unwrap();
    let mut wrong = String::new();
    for study in &studies {
        let simulated = [rows(study, true), rows(study, false)].concat();
        assert!(!simulated.is_empty(), "{}", study.id);
        for row in simulated.iter().filter(|row| !document.contains(*row)) {
            wrong += &format!("not in the document: {row}");
        }
        let is_of_study = |line: &&str| line.starts_with('|') && line.contains(&format!("`{}`, ", study.id));
        for line in document.lines().filter(is_of_study) {
            if !simulated.iter().any(|row| row.trim_end() == line) {
                wrong += &format!("not simulated:       {line}\n");
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/papers.md is not what is simulated: run `braid lab report --markdown docs/papers.md` (an hour and more)\n{wrong}"
    );
}
