//! Bad records: the first are kept with number and reason, the rest counted, so that a trace of nothing but
//! rubbish costs no memory.

use crate::Error;
use crate::format::Format;
use std::fmt;

/// What is wrong with a record, in words that follow "line 17: ".
pub(crate) type Reason = &'static str;

/// A record that was skipped.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Problem {
    /// The number of the line (from 1), or of the record or block in a binary format (from 0).
    pub record_number: u64,
    /// What is wrong, with the beginning of the record where that is text.
    pub problem: String,
}

/// All the records that were skipped.
#[derive(Clone, Debug)]
pub struct Problems {
    format: Format,
    kept: Vec<Problem>,
    count: u64,
    strict: bool,
}

/// How many problems are kept word for word.
pub const KEPT_PROBLEMS: usize = 20;

/// How much of a bad line is shown.
const EXCERPT: usize = 80;

impl Problems {
    pub(crate) fn new(format: Format, strict: bool) -> Problems {
        Problems { format, kept: Vec::new(), count: 0, strict }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// The first [`KEPT_PROBLEMS`].
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// How many there are in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A problem as a sentence.
    pub fn describe(&self, problem: &Problem) -> String {
        format!("{} {}: {}", self.format.word_for_record(), problem.record_number, problem.problem)
    }

    /// Takes over the problems of a part of the trace that came since the last call, each with the name of
    /// the part. `taken` says how many were taken over before.
    pub(crate) fn take_over(&mut self, name: &str, part: &Problems, taken: &mut u64) {
        let new = part.kept.iter().skip(usize::try_from(*taken).unwrap_or(usize::MAX));
        self.count += part.count - *taken;
        *taken = part.count;
        let room = KEPT_PROBLEMS.saturating_sub(self.kept.len());
        self.kept.extend(
            new.take(room).map(|problem| Problem {
                problem: format!("{} ({name})", problem.problem),
                ..problem.clone()
            }),
        );
    }

    /// Notes a problem. Fails where reading is strict.
    pub(crate) fn note(&mut self, number: u64, reason: impl FnOnce() -> String) -> Result<(), Error> {
        self.count += 1;
        if self.kept.len() >= KEPT_PROBLEMS && !self.strict {
            return Ok(());
        }
        let reason = reason();
        if self.strict {
            let place = format!("{} {number}", self.format.word_for_record());
            return Err(Error::Strict { place, reason });
        }
        self.kept.push(Problem { record_number: number, problem: reason });
        Ok(())
    }
}

/// The beginning of a line, fit to be printed.
pub(crate) struct Excerpt<'a>(pub &'a [u8]);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is no text grows fourfold by being escaped.
        let mut shown = 0;
        f.write_str("'")?;
        for byte in self.0 {
            let escaped = byte.escape_ascii();
            shown += escaped.len();
            if shown > EXCERPT {
                return f.write_str("...'");
            }
            write!(f, "{escaped}")?;
        }
        f.write_str("'")
    }
}
