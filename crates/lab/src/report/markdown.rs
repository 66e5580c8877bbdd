//! Markdown document about the papers: a table of all papers, then for each paper a table of its claims with
//! figure, numbers, verdict and reason. `docs/papers.md` is this document; a test compares some rows with
//! simulations.

use super::tally::{Standing, system, tally};
use crate::judge::{Judged, Number, Ruling};
use crate::study::Study;

/// The whole document.
pub fn markdown(studies: &[Study]) -> String {
    let mut text = "# The papers, reproduced\n\n".to_owned();
    text += "Written by `braid lab report --markdown docs/papers.md`; edits are lost. Each row is a claim of a paper, tested on Braid's engine, in virtual time, on \
             models of the paper's devices. [What a verdict means](research.md#the-lab). A claim counts once, for the system as published, and the row shows its worst number, with the 95 % confidence \
             interval over seeds. `braid lab run ID` repeats a row, `braid lab show ID` prints its bounds, and `braid lab report` draws it.\n\n";
    if studies.iter().any(|study| study.quick) {
        text += "**Made with --quick: too short to compare with anything.**\n\n";
    }
    let tallies = tally(studies);
    let columns: Vec<&str> = Standing::ALL.iter().map(|standing| standing.words()).collect();
    text +=
        &format!("| paper | claims | {} |\n|---|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for tally in &tallies {
        let counts: Vec<String> = tally.of_paper.iter().map(usize::to_string).collect();
        let (authors, year) = (&tally.study.authors, tally.study.year);
        let all: usize = tally.of_paper.iter().sum();
        text += &format!("| {authors} {year} (`{}`) | {all} | {} |\n", tally.system, counts.join(" | "));
    }
    for tally in &tallies {
        let of_paper = || studies.iter().filter(|study| study.paper == tally.study.paper);
        text += &format!("\n## {} ({})\n\n", cell(&tally.study.paper), tally.study.year);
        table(&mut text, of_paper(), true);
        if tally.others.iter().sum::<usize>() > 0 {
            text += "\nBraid's own aims, and claims repeated under conditions that are not in the paper:\n\n";
            table(&mut text, of_paper(), false);
        }
        let contradictions: Vec<(&str, &String)> = of_paper()
            .flat_map(|study| study.contradictions.iter().map(|text| (study.id.as_str(), text)))
            .collect();
        let mut told: Vec<&String> = Vec::new();
        for (id, contradiction) in contradictions {
            if told.contains(&contradiction) {
                continue;
            }
            if told.is_empty() {
                text += "\nWhere the paper says otherwise elsewhere:\n\n";
            }
            told.push(contradiction);
            text += &format!("- `{id}`: {contradiction}\n");
        }
    }
    text
}

fn table<'a>(text: &mut String, studies: impl Iterator<Item = &'a Study>, of_paper: bool) {
    *text += "| figure | claim | paper | ours | needed | verdict | reason, with its run |\n|---|---|---|---|---|---|---|\n";
    for study in studies {
        rows(study, of_paper).iter().for_each(|row| *text += row);
    }
}

/// Rows of an experiment: of the paper's claims, or of Braid's own and repeated claims.
pub fn rows(study: &Study, of_paper: bool) -> Vec<String> {
    let claims = study.claims.iter().filter(|judged| judged.is_of_paper() == of_paper);
    claims.filter_map(|judged| row(study, judged)).collect()
}

fn row(study: &Study, judged: &Judged) -> Option<String> {
    let verdict = judged.verdicts.first()?;
    let ruling = verdict.ruling?;
    let number =
        verdict.numbers.iter().filter(|number| number.ruling.is_some()).max_by_key(|number| number.ruling)?;
    let seeds = if study.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", study.seeds) };
    Some(format!(
        "| {}: `{}`, {seeds} | {} | {} | {} | {} | {ruling} | {} |\n",
        cell(&judged.place),
        study.id,
        cell(&judged.claim),
        number.claimed,
        number.ours_shown(),
        number.needed,
        cell(&reason(judged, ruling, number, system(study)))
    ))
}

/// Reason why a claim fails, with the run that shows the reason; or the condition for a verdict.
fn reason(judged: &Judged, ruling: Ruling, number: &Number, system: &str) -> String {
    let mut parts = Vec::new();
    if ruling == Ruling::Untestable {
        let why = judged.untestable.join("; ");
        parts.push(match why.contains("× the paper's") {
            true => format!("{why}: a verdict needs the paper's own devices within 15 %"),
            false => format!("{why}: a verdict needs that parameter from the authors of {system}"),
        });
    }
    if ruling != Ruling::Holds && ruling != Ruling::Untestable {
        parts.push(format!("number: {}", number.quantity));
    }
    parts.extend(judged.why.clone());
    let other = |number: &Number| format!("another run: {}: {}", number.quantity, number.ours_shown());
    parts.extend(judged.instead.iter().map(other));
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end_matches('.')).collect();
    parts.join(". ")
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
