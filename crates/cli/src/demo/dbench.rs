//! dbench, the workload of Wu and Reddy's paper: command line, and parser of the result.

use braid_control::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Result of dbench or fio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Reads and writes of all clients after the warm-up, in 10^6 bytes per second, by the workload's count.
    pub throughput_mb_per_second: f64,
    /// Mean latency of all operations; for dbench, operations on file names included.
    pub operation_ms_mean: f64,
    /// Longest operation after the warm-up.
    pub operation_ms_max: f64,
}

/// Load file of Debian's package.
pub const LOAD: &str = "/usr/share/dbench/client.txt";

/// Command that runs dbench with `options` and `clients` in `directory` for `time`. `group` is the list of
/// processes (`cgroup.procs`) of a control group; dbench runs in this group.
pub fn command(
    options: &str,
    directory: &Path,
    clients: u32,
    time: Duration,
    group: Option<&Path>,
) -> Command {
    let arguments = ["-t", &time.as_secs().to_string(), "-c", LOAD].map(str::to_owned);
    let mut command = match group {
        None => Command::new("dbench"),
        Some(group) => {
            // The shell enters the group before it becomes dbench, so all memory is charged to the group.
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo $$ > \"$0\" && exec dbench \"$@\""]).arg(group);
            shell
        }
    };
    command.args(arguments).args(options.split_whitespace());
    command.arg("-D").arg(directory).arg(clients.to_string());
    command
}

/// Warm-up at the start of a run, in whole seconds. dbench itself does not count the first fifth.
pub fn warm_up(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() / 5)
}

/// Parses the output of dbench.
///
/// # Errors
/// If the line of the result is missing or malformed, as after an incomplete run.
pub fn parse(text: &str) -> Result<Outcome> {
    let odd = || {
        let end: Vec<&str> = text.lines().rev().take(3).collect();
        Error::new(ErrorKind::Io, format!("dbench printed no result; its last lines: {}", end.join(" / ")))
    };
    // Throughput 259.619 MB/sec  2 clients  2 procs  max_latency=49.415 ms
    let result = text.lines().rev().find_map(|line| line.strip_prefix("Throughput ")).ok_or_else(odd)?;
    let (throughput, rest) = result.split_once(" MB/sec").ok_or_else(odd)?;
    let latest = rest.split_once("max_latency=").and_then(|(_, rest)| rest.split(' ').next());
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| odd());
    //  Operation      Count    AvgLat    MaxLat
    let operations = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, count, mean, longest] = words[..] else { return None };
        longest.parse::<f64>().ok()?;
        Some((count.parse::<u64>().ok()? as f64, mean.parse::<f64>().ok()?))
    });
    let (count, total) = operations.fold((0.0, 0.0), |(n, t), (count, mean)| (n + count, t + count * mean));
    Ok(Outcome {
        throughput_mb_per_second: number(throughput)?,
        operation_ms_mean: if count > 0.0 { total / count } else { 0.0 },
        operation_ms_max: number(latest.ok_or_else(odd)?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of dbench 4.00 from Debian.
    const SAMPLE: &str = "\
dbench version 4.00 - Copyright Andrew Tridgell 1999-2004

Running for 5 seconds with load '/usr/share/dbench/client.txt' and minimum warmup 1 secs
0 of 2 processes prepared for launch   0 sec
2 of 2 processes prepared for launch   0 sec
releasing clients
   2     45479   277.88 MB/sec  execute   1 sec  latency 35.624 ms
   2     69286   267.04 MB/sec  execute   2 sec  latency 14.027 ms
   2  cleanup   5 sec
   0  cleanup   5 sec

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX      41000     0.015     7.616
 Unlink          8000     0.404    20.009
 Flush           1000     1.427    49.400

Throughput 259.619 MB/sec  2 clients  2 procs  max_latency=49.415 ms
";

    #[test]
    fn the_result_is_read_from_the_last_line_and_the_mean_from_the_operations() {
        let outcome = parse(SAMPLE).unwrap();
        assert_eq!(outcome.throughput_mb_per_second, 259.619);
        assert_eq!(outcome.operation_ms_max, 49.415);
        let mean = (41_000.0 * 0.015 + 8_000.0 * 0.404 + 1_000.0 * 1.427) / 50_000.0;
        assert!((outcome.operation_ms_mean - mean).abs() < 1e-9, "{outcome:?}");
    }

    #[test]
    fn truncated_dbench_output_is_an_error_with_last_line() {
        let cut = SAMPLE.split("\n Operation").next().unwrap();
        let error = parse(cut).unwrap_err().to_string();
        assert!(error.contains("cleanup"), "{error}");
        assert!(parse("").is_err());
    }

    #[test]
    fn dbench_command_joins_cgroup_before_start() {
        let plain = command("-s", Path::new("/mnt"), 4, Duration::from_secs(9), None);
        assert_eq!(plain.get_program(), "dbench");
        let grouped =
            command("-s", Path::new("/mnt"), 4, Duration::from_secs(9), Some(Path::new("/g/cgroup.procs")));
        let arguments: Vec<_> = grouped.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(grouped.get_program(), "sh");
        assert_eq!(arguments[2..], ["/g/cgroup.procs", "-t", "9", "-c", LOAD, "-s", "-D", "/mnt", "4"]);
    }
}
