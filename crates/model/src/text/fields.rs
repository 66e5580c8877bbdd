//! Fields of a text, read or written: one description of the fields serves both.

use crate::library::InvalidModel;
use crate::rate::Rate;
use braid_base::{Bytes, Nanos};
use std::fmt::{Display, Write};
use std::ops::RangeInclusive;
use toml::{Table, Value};

/// Visits fields. Each method takes the key, the current value, its limits and its documentation, and returns
/// the new value.
pub(super) trait Fields {
    fn text(&mut self, key: &'static str, value: &str, longest: usize, doc: &str) -> String;
    fn word<'a>(&mut self, key: &'static str, value: &'a str, words: &[&'a str], doc: &str) -> &'a str;
    fn flag(&mut self, key: &'static str, value: bool, doc: &str) -> bool;
    fn count(&mut self, key: &'static str, value: u64, limits: RangeInclusive<u64>, doc: &str) -> u64;
    /// A number that texts of earlier versions lack; absent means `before`.
    fn later_count(
        &mut self,
        key: &'static str,
        value: u64,
        before: u64,
        limits: RangeInclusive<u64>,
        doc: &str,
    ) -> u64;
    fn share(&mut self, key: &'static str, value: f64, limits: RangeInclusive<f64>, doc: &str) -> f64;
    fn size(&mut self, key: &'static str, value: Bytes, limits: RangeInclusive<Bytes>, doc: &str) -> Bytes;
    fn time(&mut self, key: &'static str, value: Nanos, limits: RangeInclusive<Nanos>, doc: &str) -> Nanos;
    fn rate(&mut self, key: &'static str, value: Rate, doc: &str) -> Rate;
    /// A time, or `none`.
    fn time_or_none(
        &mut self,
        key: &'static str,
        value: Option<Nanos>,
        limits: RangeInclusive<Nanos>,
        doc: &str,
    ) -> Option<Nanos>;
    /// A rate, or `none`.
    fn rate_or_none(&mut self, key: &'static str, value: Option<Rate>, doc: &str) -> Option<Rate>;
}

/// The lowest and the highest rate.
const RATES: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// Reads fields from a table. Remembers the first wrong field; later values are meaningless.
pub(super) struct Reader {
    table: Table,
    known: Vec<&'static str>,
    problem: Option<String>,
}

impl Reader {
    pub(super) fn new(table: Table) -> Reader {
        Reader { table, known: Vec::new(), problem: None }
    }

    /// # Errors
    /// The first wrong or missing field, or an unknown field.
    pub(super) fn finish(self) -> Result<(), InvalidModel> {
        if let Some(problem) = self.problem {
            return Err(InvalidModel(problem));
        }
        match self.table.keys().next() {
            Some(key) => {
                let problem = format!("unknown field '{key}': the fields here are {}", self.known.join(", "));
                Err(InvalidModel(problem))
            }
            None => Ok(()),
        }
    }

    fn refuse(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// Takes a field and reads it; `value` if reading fails.
    fn read<T>(
        &mut self,
        key: &'static str,
        value: T,
        doc: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> T {
        self.known.push(key);
        let Some(found) = self.table.remove(key) else {
            let meaning = if doc.is_empty() { String::new() } else { format!(" ({doc})") };
            self.refuse(format!("'{key}' is missing{meaning}: give {expected}"));
            return value;
        };
        read(&found).unwrap_or_else(|| {
            self.refuse(format!("{key} = {}: give {expected}", shown(&found)));
            value
        })
    }
}

fn between<T: Display>(limits: &RangeInclusive<T>, what: &str) -> String {
    format!("{what} from {} to {}", limits.start(), limits.end())
}

impl Fields for Reader {
    fn text(&mut self, key: &'static str, value: &str, longest: usize, doc: &str) -> String {
        let expected = format!("a text of 1 to {longest} bytes");
        self.read(key, value.to_owned(), doc, &expected, |found| {
            found.as_str().filter(|text| (1..=longest).contains(&text.len())).map(str::to_owned)
        })
    }

    fn word<'a>(&mut self, key: &'static str, value: &'a str, words: &[&'a str], doc: &str) -> &'a str {
        let expected = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        self.read(key, value, doc, &expected, |found| {
            words.iter().find(|word| found.as_str() == Some(word)).copied()
        })
    }

    fn flag(&mut self, key: &'static str, value: bool, doc: &str) -> bool {
        self.read(key, value, doc, "true or false", Value::as_bool)
    }

    fn count(&mut self, key: &'static str, value: u64, limits: RangeInclusive<u64>, doc: &str) -> u64 {
        let expected = between(&limits, "a number");
        self.read(key, value, doc, &expected, |found| {
            found.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| limits.contains(n))
        })
    }

    fn later_count(
        &mut self,
        key: &'static str,
        value: u64,
        before: u64,
        limits: RangeInclusive<u64>,
        doc: &str,
    ) -> u64 {
        if self.table.contains_key(key) {
            return self.count(key, value, limits, doc);
        }
        self.known.push(key);
        before
    }

    fn share(&mut self, key: &'static str, value: f64, limits: RangeInclusive<f64>, doc: &str) -> f64 {
        let expected = between(&limits, "a number");
        self.read(key, value, doc, &expected, |found| {
            let number = found.as_float().or_else(|| found.as_integer().map(|n| n as f64));
            number.filter(|number| limits.contains(number))
        })
    }

    fn size(&mut self, key: &'static str, value: Bytes, limits: RangeInclusive<Bytes>, doc: &str) -> Bytes {
        let expected = between(&limits, "a size such as \"256KiB\"");
        self.read(key, value, doc, &expected, |found| {
            found.as_str().and_then(|text| text.parse().ok()).filter(|size| limits.contains(size))
        })
    }

    fn time(&mut self, key: &'static str, value: Nanos, limits: RangeInclusive<Nanos>, doc: &str) -> Nanos {
        let expected = between(&limits, "a time such as \"50us\"");
        self.read(key, value, doc, &expected, |found| read_time(found, &limits))
    }

    fn rate(&mut self, key: &'static str, value: Rate, doc: &str) -> Rate {
        self.read(key, value, doc, RATE, read_rate)
    }

    fn time_or_none(
        &mut self,
        key: &'static str,
        value: Option<Nanos>,
        limits: RangeInclusive<Nanos>,
        doc: &str,
    ) -> Option<Nanos> {
        let expected = between(&limits, "\"none\", or a time such as \"50us\"");
        self.read(key, value, doc, &expected, |found| or_none(found, |found| read_time(found, &limits)))
    }

    fn rate_or_none(&mut self, key: &'static str, value: Option<Rate>, doc: &str) -> Option<Rate> {
        self.read(key, value, doc, &format!("\"none\", or {RATE}"), |found| or_none(found, read_rate))
    }
}

const RATE: &str = "a rate such as \"262MB/s\" from 1MB/s to 1TB/s";

/// `Some(None)` for the word `none`, otherwise the result of `read`.
fn or_none<T>(found: &Value, read: impl FnOnce(&Value) -> Option<T>) -> Option<Option<T>> {
    if found.as_str() == Some("none") { Some(None) } else { read(found).map(Some) }
}

fn read_time(found: &Value, limits: &RangeInclusive<Nanos>) -> Option<Nanos> {
    found.as_str().and_then(|text| text.parse().ok()).filter(|time| limits.contains(time))
}

fn read_rate(found: &Value) -> Option<Rate> {
    let bytes: Bytes = found.as_str()?.strip_suffix("/s")?.parse().ok()?;
    RATES.contains(&bytes.0).then_some(Rate(bytes.0))
}

/// Writes fields, each below its documentation.
pub(super) struct Writer(String);

impl Writer {
    /// A text that begins with a comment.
    pub(super) fn new(head: &str) -> Writer {
        let mut writer = Writer(String::new());
        writer.comment(head);
        writer
    }

    pub(super) fn text(self) -> String {
        self.0
    }

    fn comment(&mut self, text: &str) {
        for line in text.lines() {
            self.line(format_args!("# {line}"));
        }
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("a string takes what is written to it");
    }

    fn put<T>(&mut self, key: &str, shown: impl Display, value: T, doc: &str) -> T {
        self.0.push('\n');
        self.comment(doc);
        self.line(format_args!("{key} = {shown}"));
        value
    }
}

impl Fields for Writer {
    fn text(&mut self, key: &'static str, value: &str, _: usize, doc: &str) -> String {
        self.put(key, quoted(value), value.to_owned(), doc)
    }

    fn word<'a>(&mut self, key: &'static str, value: &'a str, words: &[&'a str], doc: &str) -> &'a str {
        self.put(key, quoted(value), value, &format!("{doc}: {}", words.join(" or ")))
    }

    fn flag(&mut self, key: &'static str, value: bool, doc: &str) -> bool {
        self.put(key, value, value, doc)
    }

    fn count(&mut self, key: &'static str, value: u64, limits: RangeInclusive<u64>, doc: &str) -> u64 {
        self.put(key, value, value, &format!("{doc}; {} to {}", limits.start(), limits.end()))
    }

    fn later_count(
        &mut self,
        key: &'static str,
        value: u64,
        _: u64,
        limits: RangeInclusive<u64>,
        doc: &str,
    ) -> u64 {
        self.count(key, value, limits, doc)
    }

    fn share(&mut self, key: &'static str, value: f64, limits: RangeInclusive<f64>, doc: &str) -> f64 {
        self.put(key, format!("{value:?}"), value, &format!("{doc}; {} to {}", limits.start(), limits.end()))
    }

    fn size(&mut self, key: &'static str, value: Bytes, _: RangeInclusive<Bytes>, doc: &str) -> Bytes {
        self.put(key, quoted(&exact(value.0, &SIZES)), value, doc)
    }

    fn time(&mut self, key: &'static str, value: Nanos, _: RangeInclusive<Nanos>, doc: &str) -> Nanos {
        self.put(key, quoted(&exact(value.0, &TIMES)), value, doc)
    }

    fn rate(&mut self, key: &'static str, value: Rate, doc: &str) -> Rate {
        self.put(key, quoted(&exact(value.0, &PER_SECOND)), value, doc)
    }

    fn time_or_none(
        &mut self,
        key: &'static str,
        value: Option<Nanos>,
        _: RangeInclusive<Nanos>,
        doc: &str,
    ) -> Option<Nanos> {
        let shown = value.map_or("none".to_owned(), |time| exact(time.0, &TIMES));
        self.put(key, quoted(&shown), value, &format!("{doc}; or none"))
    }

    fn rate_or_none(&mut self, key: &'static str, value: Option<Rate>, doc: &str) -> Option<Rate> {
        let shown = value.map_or("none".to_owned(), |rate| exact(rate.0, &PER_SECOND));
        self.put(key, quoted(&shown), value, &format!("{doc}; or none"))
    }
}

const SIZES: [(u64, &str); 7] = [
    (1 << 40, "TiB"),
    (1_000_000_000_000, "TB"),
    (1 << 30, "GiB"),
    (1_000_000_000, "GB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
    (1, "B"),
];
const TIMES: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
const PER_SECOND: [(u64, &str); 3] = [(1_000_000_000, "GB/s"), (1_000_000, "MB/s"), (1, "B/s")];

/// The value in the largest unit that gives a whole number.
fn exact(value: u64, units: &[(u64, &str)]) -> String {
    let fits = |(unit, _): &&(u64, &str)| value >= *unit && value.is_multiple_of(*unit);
    let (unit, name) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    format!("{}{name}", value / unit)
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The beginning of a value, for errors.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
