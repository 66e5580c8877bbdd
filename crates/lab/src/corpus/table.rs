//! Every value of a run as comma-separated text: for other programmes, and for a later run that need not do
//! the same again.

use super::rows::{Row, named};
use super::run::{CellOutcome, Outcome, Value};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The first line.
const HEAD: &str = "cell;half;row;repetition;outcome;mean_ns;p99_ns;requests;requests_per_second;bytes_per_second;\
                    ssd_written_bytes;recovery_seconds;is_overloaded;measured_seconds";
/// Policies have commas in their settings.
const SEPARATOR: char = ';';

/// Why a row of an earlier run has no value: the table does not say.
const EARLIER: &str = "as in the earlier run";

/// A line for each value, and for each row that has none.
pub fn table(rows: &[Row], outcomes: &[CellOutcome]) -> String {
    let mut out = format!("{HEAD}\n");
    for CellOutcome { cell, rows: of, .. } in outcomes {
        for (row, outcome) in rows.iter().zip(of) {
            let begin = |repetition: usize| format!("{};{};{};{repetition}", cell.name, cell.half, row.name);
            match outcome {
                Outcome::NotApplicable(_) => out += &format!("{};not-applicable\n", begin(0)),
                Outcome::Failed(_) => out += &format!("{};failed\n", begin(0)),
                Outcome::Measured(values) => {
                    for (repetition, v) in values.iter().enumerate() {
                        let recovery = v.recovery_seconds.map(|s| s.to_string()).unwrap_or_default();
                        out += &format!(
                            "{};measured;{};{};{};{};{};{};{recovery};{};{}\n",
                            begin(repetition),
                            v.mean_ns,
                            v.p99_ns,
                            v.requests,
                            v.requests_per_second,
                            v.bytes_per_second,
                            v.ssd_written_bytes,
                            v.is_overloaded,
                            v.measured_seconds
                        );
                    }
                }
            }
        }
    }
    out
}

/// Adds the rows of an earlier run to these outcomes, but those that are there already.
///
/// # Errors
/// A text that is no such table, or that lacks one of the cells.
pub fn add_earlier(text: &str, rows: &mut Vec<Row>, outcomes: &mut [CellOutcome]) -> Result<()> {
    if text.lines().next() != Some(HEAD) {
        return Err(Error::setup("the earlier run is no table of a corpus: make one with --table"));
    }
    let (mut names, mut known) = (Vec::new(), BTreeMap::<(&str, &str), Outcome>::new());
    for (number, line) in text.lines().enumerate().skip(1) {
        let wrong =
            || Error::setup(format!("line {} of the earlier run is no value of a corpus", number + 1));
        let fields: Vec<&str> = line.split(SEPARATOR).collect();
        let [cell, _, row, _, outcome, rest @ ..] = fields.as_slice() else { return Err(wrong()) };
        let is_new = !names.contains(row) && !rows.iter().any(|known| known.name == **row);
        names.extend(is_new.then_some(*row));
        let place = known.entry((*cell, *row));
        match *outcome {
            "not-applicable" => {
                place.or_insert_with(|| Outcome::NotApplicable(EARLIER.to_owned()));
            }
            "failed" => {
                place.or_insert_with(|| Outcome::Failed(EARLIER.to_owned()));
            }
            _ => match place.or_insert(Outcome::Measured(Vec::new())) {
                Outcome::Measured(values) => values.push(value(rest).ok_or_else(wrong)?),
                Outcome::NotApplicable(_) | Outcome::Failed(_) => return Err(wrong()),
            },
        }
    }
    for outcome in outcomes {
        for name in &names {
            let of = known.get(&(outcome.cell.name.as_str(), *name)).cloned().ok_or_else(|| {
                Error::setup(format!(
                    "the earlier run has no {name} in cell {}: make it anew",
                    outcome.cell.name
                ))
            })?;
            outcome.rows.push(of);
        }
    }
    rows.extend(names.iter().map(|name| named(name)).collect::<Result<Vec<Row>>>()?);
    Ok(())
}

fn value(fields: &[&str]) -> Option<Value> {
    let [mean, p99, requests, rate, bytes, written, recovery, overloaded, seconds] = fields else {
        return None;
    };
    Some(Value {
        mean_ns: mean.parse().ok()?,
        p99_ns: p99.parse().ok()?,
        requests: requests.parse().ok()?,
        requests_per_second: rate.parse().ok()?,
        bytes_per_second: bytes.parse().ok()?,
        ssd_written_bytes: written.parse().ok()?,
        recovery_seconds: if recovery.is_empty() { None } else { Some(recovery.parse().ok()?) },
        is_overloaded: overloaded.parse().ok()?,
        measured_seconds: seconds.parse().ok()?,
    })
}
