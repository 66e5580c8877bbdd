//! Helpers that read traces in tests.

use braid_base::{Arrival, Bytes, Nanos, Op, Request};
use braid_trace::{Error, Options, Reader, Record};

/// Returns all records of a trace without bad records.
pub fn records(bytes: &[u8], options: &Options) -> Vec<Record> {
    let mut reader = Reader::open(bytes, options).unwrap();
    let records: Vec<Record> = reader.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(reader.problems().kept(), [], "no record is bad");
    records
}

/// Returns all arrivals of a trace, as tuples, read with the default options.
pub fn arrivals(bytes: &[u8]) -> Vec<(u64, Op, u64, u64)> {
    records(bytes, &Options::default()).iter().map(|record| tuple(&record.arrival)).collect()
}

pub fn tuple(arrival: &Arrival) -> (u64, Op, u64, u64) {
    let Request { op, offset, len } = arrival.request;
    (arrival.at.0, op, offset.0, len.0)
}

pub fn arrival(at: u64, op: Op, offset: u64, len: u64) -> Arrival {
    Arrival { at: Nanos(at), request: Request { op, offset: Bytes(offset), len: Bytes(len) } }
}

/// Returns the error of opening or reading a trace.
pub fn error(bytes: &[u8], options: &Options) -> Error {
    match Reader::open(bytes, options) {
        Err(error) => error,
        Ok(mut reader) => reader.find_map(Result::err).expect("the trace has an error"),
    }
}

/// Returns the problems of a trace as sentences, and the number of good records.
pub fn problems(bytes: &[u8], options: &Options) -> (Vec<String>, u64) {
    let mut reader = Reader::open(bytes, options).unwrap();
    let given = reader.by_ref().filter(Result::is_ok).count() as u64;
    let problems = reader.problems();
    (problems.kept().iter().map(|problem| problems.describe(problem)).collect(), given)
}
