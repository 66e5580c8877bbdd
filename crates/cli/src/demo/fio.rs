//! The comparison without a block device: fio over NBD, for users without root. The requests of fio resemble
//! the requests of ext4 under dbench, without page cache. Requests have 4 to 64 KiB, with four writes to a
//! read. Each file of 16 MiB is written in runs, with a flush after every eighth write.

use super::dbench::Outcome;
use braid_base::{Bytes, MIB};
use braid_control::{Error, ErrorKind, Result};
use std::process::Command;
use std::time::Duration;

/// Range of one client in the volume, in MiB.
const CLIENT_MIB: u32 = 16;

/// Range of `clients` clients in the volume, from its start.
pub fn span(clients: u32) -> Bytes {
    MIB * u64::from(CLIENT_MIB * clients)
}

/// Arguments of fio that write `size` bytes from the start of the volume, so that reads find data, not holes.
pub fn fill(uri: &str, size: Bytes) -> Vec<String> {
    let size = format!("--size={}M", size / MIB);
    let mut arguments = common(uri);
    arguments.extend(["--rw=write", "--bs=128k", "--iodepth=8", "--end_fsync=1", &size].map(str::to_owned));
    arguments
}

/// Command that runs fio with `clients` clients for `time`. The warm-up does not count.
pub fn command(uri: &str, clients: u32, time: Duration, warm_up: Duration) -> Command {
    let mut command = Command::new("fio");
    command.args(common(uri));
    command.args([
        "--rw=randrw:4",
        "--rwmixread=20",
        "--bsrange=4k-64k",
        "--blockalign=4k",
        "--fsync=8",
        "--iodepth=1",
    ]);
    command.args(["--time_based", "--group_reporting", "--randseed=1", "--output-format=json"]);
    command.arg(format!("--numjobs={clients}")).arg(format!("--size={CLIENT_MIB}M"));
    command.arg(format!("--offset_increment={CLIENT_MIB}M"));
    let measured = time.saturating_sub(warm_up).as_millis();
    command.arg(format!("--runtime={measured}ms")).arg(format!("--ramp_time={}ms", warm_up.as_millis()));
    command
}

pub fn common(uri: &str) -> Vec<String> {
    let uri = format!("--uri={uri}");
    ["--name=demo", "--ioengine=nbd", "--thread", uri.as_str()].map(str::to_owned).to_vec()
}

/// Parses fio's JSON report.
///
/// # Errors
/// If the text is not a report of fio.
pub fn parse(text: &str) -> Result<Outcome> {
    let odd = |what: &str| Error::new(ErrorKind::Io, format!("fio printed no result: {what}"));
    // Engines of fio may print lines before the report.
    let start = text.find('{').ok_or_else(|| odd("no JSON"))?;
    let report: serde_json::Value =
        serde_json::from_str(text[start..].trim_end()).map_err(|e| odd(&e.to_string()))?;
    let job = &report["jobs"][0];
    let number = |way: &str, path: &[&str]| {
        let found = path.iter().fold(&job[way], |value, key| &value[key]);
        found.as_f64().ok_or_else(|| odd(&format!("no {way} {}", path.join("."))))
    };
    let (mut bytes, mut total, mut count, mut longest) = (0.0, 0.0, 0.0, 0.0f64);
    for way in ["read", "write"] {
        let requests = number(way, &["total_ios"])?;
        bytes += number(way, &["bw_bytes"])?;
        total += requests * number(way, &["lat_ns", "mean"])?;
        longest = longest.max(number(way, &["lat_ns", "max"])?);
        count += requests;
    }
    Ok(Outcome {
        throughput_mb_per_second: bytes / 1e6,
        operation_ms_mean: if count > 0.0 { total / count / 1e6 } else { 0.0 },
        operation_ms_max: longest / 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_added_up() {
        let text = r#"a line of the engine
{"jobs": [{"read": {"bw_bytes": 1000000, "total_ios": 10, "lat_ns": {"mean": 1000000.0, "max": 5000000}},
 "write": {"bw_bytes": 3000000, "total_ios": 30, "lat_ns": {"mean": 2000000.0, "max": 4000000}}}]}
"#;
        let outcome = parse(text).unwrap();
        assert_eq!(outcome.throughput_mb_per_second, 4.0);
        assert_eq!(outcome.operation_ms_mean, 1.75);
        assert_eq!(outcome.operation_ms_max, 5.0);
        assert!(parse("fio: engine nbd not loadable").is_err());
        assert!(parse("{}").is_err());
    }
}
