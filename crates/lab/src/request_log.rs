//! Log of measured requests in a file, a line each: for plots of distributions with other tools.
//!
//! The file is CSV with a heading. Lines are in the order in which requests complete, times in virtual
//! nanoseconds from the beginning of the load.

use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, Nanos, Op};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Columns of a line.
const HEADING: &str = "arrival_ns,operation,offset_bytes,length_bytes,queue_ns,service_ns";

/// Log file of requests.
pub(crate) struct RequestLog {
    path: PathBuf,
    out: BufWriter<File>,
    /// Start of the load.
    origin: Nanos,
    /// True once requests are measured.
    has_begun: bool,
    /// First failure: later lines are not written.
    failure: Option<io::Error>,
}

impl RequestLog {
    /// Creates a file with a heading, for a load that begins at `origin`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path, origin: Nanos) -> Result<RequestLog> {
        let create = || {
            let mut out = BufWriter::new(File::create(path)?);
            writeln!(out, "{HEADING}").map(|()| out)
        };
        let out = create().map_err(|error| cannot(path, &error))?;
        Ok(RequestLog { path: path.to_owned(), out, origin, has_begun: false, failure: None })
    }

    /// Starts logging: from now on requests are measured.
    pub fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Logs a request by its times of arrival, admission and completion.
    pub fn add(&mut self, op: Op, offset: Bytes, len: Bytes, arrived: Nanos, admitted: Nanos, done: Nanos) {
        if self.failure.is_some() || !self.has_begun {
            return;
        }
        let name = match op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
        };
        let arrived = arrived.min(admitted);
        let (arrival, queue, service) =
            (arrived.saturating_sub(self.origin), admitted - arrived, done - admitted);
        let line =
            writeln!(self.out, "{},{name},{},{},{},{}", arrival.0, offset.0, len.0, queue.0, service.0);
        self.failure = line.err();
    }

    /// Writes buffered lines.
    ///
    /// # Errors
    /// The first failure of the log.
    pub fn finish(&mut self) -> Result<()> {
        match self.failure.take().map_or_else(|| self.out.flush(), Err) {
            Ok(()) => Ok(()),
            Err(error) => Err(cannot(&self.path, &error)),
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::new(
        ErrorKind::Setup,
        format!("cannot write requests to {}: {error}; name another file", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use crate::{DeviceSetup, Load, Setup, WarmUp, simulate};
    use braid_base::DeviceClass;

    fn setup(load: &str) -> Setup {
        let disk = vec![DeviceSetup::parse(DeviceClass::Hdd, "4GiB,model=mba3073").unwrap()];
        Setup::new(disk, "hdd-only", Load::Workload(load.to_owned()))
    }

    #[test]
    fn log_lines_account_for_every_measured_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.csv");
        let log = Some(path.clone());
        let setup =
            Setup { warm_up: WarmUp::Requests(100), ..setup("random,span=64MiB,requests=500,read=70%") };
        let plain = simulate(&setup).unwrap().outcome;
        let outcome = simulate(&Setup { request_log: log, ..setup }).unwrap().outcome;
        assert_eq!(outcome, plain, "a log changes nothing");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(super::HEADING));
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        let number = |row: &[&str], place: usize| row[place].parse::<u64>().unwrap();
        assert_eq!(rows.len() as u64, outcome.all.requests);
        let reads = rows.iter().filter(|row| row[1] == "read").count() as u64;
        assert_eq!(reads, outcome.read.requests);
        assert_eq!(rows.iter().map(|row| number(row, 3)).sum::<u64>(), outcome.all.bytes);
        let took = rows.iter().map(|row| number(row, 4) + number(row, 5)).sum::<u64>() as f64;
        let mean = took / rows.len() as f64;
        assert!((mean / outcome.all.latency.mean - 1.0).abs() < 0.01, "{mean} {}", outcome.all.latency.mean);
        // Completions are in order.
        let ends: Vec<u64> =
            rows.iter().map(|row| [0, 4, 5].map(|place| number(row, place)).iter().sum()).collect();
        assert!(ends.is_sorted());
    }

    #[test]
    fn unwritable_log_ends_the_simulation() {
        for path in ["/nowhere/at/all.csv", "/dev/full"] {
            let setup = Setup { request_log: Some(path.into()), ..setup("random,span=64MiB,requests=5000") };
            let error = simulate(&setup).unwrap_err().to_string();
            assert!(error.contains(path), "{error}");
        }
    }
}
