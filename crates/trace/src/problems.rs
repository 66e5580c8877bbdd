//! Bad records. The first few are kept with number and reason, all others are only counted. So a trace of
//! nothing but garbage takes no memory.

use crate::Error;
use crate::format::Format;
use std::fmt;

/// Reason for rejecting a record, as the text after "line 17: ".
pub(crate) type Reason = &'static str;

/// A skipped record.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Problem {
    /// Number of the line (from 1), or of the record or block in a binary format (from 0).
    pub record_number: u64,
    /// Reason, with the beginning of the record if the record is text.
    pub problem: String,
}

/// All skipped records.
#[derive(Clone, Debug)]
pub struct Problems {
    format: Format,
    kept: Vec<Problem>,
    count: u64,
    strict: bool,
}

/// Problems kept with their text.
pub const KEPT_PROBLEMS: usize = 20;

/// Characters shown of a bad line.
const EXCERPT: usize = 80;

impl Problems {
    pub(crate) fn new(format: Format, strict: bool) -> Problems {
        Problems { format, kept: Vec::new(), count: 0, strict }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Returns the first [`KEPT_PROBLEMS`] problems.
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// Returns the number of all problems.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns a problem as a sentence.
    pub fn describe(&self, problem: &Problem) -> String {
        format!("{} {}: {}", self.format.word_for_record(), problem.record_number, problem.problem)
    }

    /// Copies the problems of a part of the trace since the last call, each with the name of the part.
    /// `taken` is the number of problems copied before.
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

    /// Records a problem. Fails if reading is strict.
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

/// The beginning of a line, in printable form.
pub(crate) struct Excerpt<'a>(pub &'a [u8]);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaping makes each byte of binary content up to four characters long.
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
