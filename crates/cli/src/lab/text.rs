//! A study as text: its tables, the published values beside ours, the differences, and a line for each claim.

use crate::table::Table;
use braid_lab::experiment::Origin;
use braid_lab::judge::{ClaimVerdict, Judged, Number, Ruling};
use braid_lab::study::Study;

/// Returns the whole study as text.
pub fn describe(study: &Study) -> String {
    let mut text =
        format!("{}: {}\n  {}, {}; {}", study.id, study.title, study.paper, study.place, study.seeds_shown());
    text += &match study.quick {
        true => format!(
            ", quick: {:.1} s measured after {:.1} s, too short to compare\n",
            study.measured_seconds, study.warm_up_seconds
        ),
        false => format!(", {}\n", study.measured_shown()),
    };
    for table in 0..study.tables.len() {
        text += &measured(study, table);
    }
    text += "\n  the paper's values beside ours\n";
    let verdicts = study.claims.iter().flat_map(|claim| &claim.verdicts);
    text += &compared(verdicts.flat_map(|verdict| &verdict.numbers));
    text += &format!("    {}\n", study.published);
    if !study.baselines.is_empty() {
        text += "\n  the paper's devices alone: if a value is off, claims about policies are untestable\n";
        text += &compared(study.baselines.iter());
    }
    for drawn in &study.jitter {
        text += &format!(
            "\n  each seed draws {{{}}} of the loads: {} to {}\n",
            drawn.name, drawn.low, drawn.high
        );
    }
    let differs: Vec<String> = study.differs.iter().chain(&study.differs_in_all).cloned().collect();
    for (title, items) in [
        ("results of the paper used in the models", &study.calibrated),
        ("contradictions in the paper", &study.contradictions),
        ("differences from the paper", &differs),
    ] {
        if !items.is_empty() {
            text += &format!("\n  {title}\n");
        }
        items.iter().for_each(|item| text += &wrapped("  - ", item));
    }
    text += "\n";
    if !study.quick && study.seeds < study.seeds_needed {
        text += &format!(
            "  {} seed: numbers, and no verdict. A verdict takes {} or more (--seeds)\n",
            study.seeds, study.seeds_needed
        );
    }
    for judged in &study.claims {
        text += &line(judged);
    }
    text
}

fn measured(study: &Study, table: usize) -> String {
    let measured = &study.tables[table];
    let mut columns = vec![format!(">{}", study.axis)];
    columns.extend(study.series.iter().map(|series| format!(">{}", series.label)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&columns);
    for (place, number) in study.axis_values.iter().enumerate() {
        let mut cells = vec![number.to_string()];
        cells.extend((0..measured.values.len()).map(|series| measured.shown(series, place)));
        table.row(cells);
    }
    let better = if measured.more_is_better { "more" } else { "less" };
    let better = if measured.unit == "%" { String::new() } else { format!("; {better} is better") };
    format!("\n  {}, {}{better}\n{}", measured.measure, measured.unit, table.render("  "))
}

fn compared<'a>(numbers: impl Iterator<Item = &'a Number>) -> String {
    let mut table = Table::new(&["", ">paper", ">ours", ">ours/paper", ">needed", ""]);
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for number in numbers {
        let key = (number.quantity.as_str(), number.needed.as_str());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        table.row(vec![
            number.quantity.clone(),
            number.claimed.clone(),
            number.ours_shown(),
            number.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            number.needed.clone(),
            number.ruling.map_or_else(String::new, |ruling| ruling.to_string()),
        ]);
    }
    table.render("    ")
}

/// A claim with its verdicts, as wrapped text; empty if the claim is not tested.
fn line(judged: &Judged) -> String {
    if !judged.is_tested() {
        return String::new();
    }
    let tested = judged.verdicts.iter().filter(|verdict| verdict.ruling.is_some());
    let said = |verdict: &ClaimVerdict| {
        let ruling = verdict.ruling.map_or("", Ruling::words);
        match &verdict.of {
            Some(of) => format!("{ruling} ({of})"),
            None => ruling.to_owned(),
        }
    };
    let verdicts = tested.map(said).collect::<Vec<_>>().join(", ");
    let mut text = wrapped("  ", &format!("{} {verdicts}: {}", kind(judged.origin), judged.claim));
    for reason in &judged.untestable {
        text += &wrapped("    ", &format!("untestable: {reason}"));
    }
    if let Some(why) = &judged.why {
        text += &wrapped("    ", &format!("why: {why}"));
    }
    for number in &judged.instead {
        text += &wrapped("    ", &format!("another run: {}: {}", number.quantity, number.ours_shown()));
    }
    text
}

/// Label for the origin of a claim.
pub fn kind(origin: Origin) -> &'static str {
    match origin {
        Origin::Paper | Origin::Fitted => "CLAIM",
        Origin::Aim => "AIM OF BRAID",
        Origin::Repeat => "REPEATED CLAIM",
    }
}

/// A paragraph in lines of 110 characters, the first begun with `lead`.
pub fn wrapped(lead: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), lead.to_owned());
    let indent = " ".repeat(lead.len() + 2);
    for word in text.split(' ') {
        if line.len() + word.len() > 110 {
            lines += line.trim_end();
            lines.push('\n');
            line = indent.clone();
        }
        line += word;
        line.push(' ');
    }
    lines + line.trim_end() + "\n"
}
