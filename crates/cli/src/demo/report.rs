//! Results of `braid demo dbench`: one table of all runs, or JSON.

use super::dbench::Outcome;
use super::late::{mark, too_slow};
use super::measure::Interval;
use crate::table::Table;
use serde::Serialize;

/// One policy at one number of clients.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DbenchRun {
    /// The policy with its settings, as given by the user.
    pub policy: String,
    /// Clients of the workload.
    pub clients: u32,
    /// 10^6 bytes per second, by the workload's count.
    pub throughput_mb_per_second: f64,
    /// Mean latency of the workload's operations.
    pub operation_ms_mean: f64,
    /// Longest latency of the workload's operations.
    pub operation_ms_max: f64,
    /// Figures of the volume and its devices during the run.
    pub volume: Interval,
}

impl DbenchRun {
    /// Combines the workload's result with the daemon's figures.
    pub fn new(policy: &str, clients: u32, outcome: Outcome, volume: Interval) -> DbenchRun {
        let Outcome { throughput_mb_per_second, operation_ms_mean, operation_ms_max } = outcome;
        let policy = policy.to_owned();
        DbenchRun { policy, clients, throughput_mb_per_second, operation_ms_mean, operation_ms_max, volume }
    }

    /// Line about the run, printed at its end.
    pub fn line(&self) -> String {
        let DbenchRun { policy, clients, throughput_mb_per_second, .. } = self;
        format!("  {policy}, {}: {throughput_mb_per_second:.0} MB/s", count(*clients, "client"))
    }
}

/// All runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Conditions of the runs: workload, devices, limits, and missing requirements.
    pub conditions: Vec<String>,
    /// Reason why figures do not count, and the remedy; `None` if all count.
    pub too_slow: Option<String>,
    /// The runs, in their order.
    pub runs: Vec<DbenchRun>,
    /// Time from the start of the first run to the end of the last.
    pub wall_seconds: f64,
}

impl Report {
    /// Creates the report of `runs`, with a warning if devices were too late.
    pub fn new(conditions: Vec<String>, runs: Vec<DbenchRun>, wall_seconds: f64) -> Report {
        let named = runs
            .iter()
            .map(|run| (format!("{} with {}", run.policy, count(run.clients, "client")), &run.volume));
        Report { conditions, too_slow: too_slow(named), runs, wall_seconds }
    }

    /// Table of all runs, with the conditions beneath. `workload` is dbench or fio.
    pub fn table(&self, workload: &str) -> String {
        let mean = format!(">{workload} mean ms");
        let mut table = Table::new(&[
            "policy",
            ">clients",
            ">MB/s",
            &mean,
            ">volume p99 ms",
            ">data ssd/hdd %",
            ">requests ssd/hdd %",
            ">response ssd/hdd ms",
            ">of flushes ms",
        ]);
        for (place, run) in self.runs.iter().enumerate() {
            let repeated = place > 0 && self.runs[place - 1].policy == run.policy;
            table.row(vec![
                if repeated { String::new() } else { run.policy.clone() },
                run.clients.to_string(),
                format!("{:.1}{}", run.throughput_mb_per_second, mark(&run.volume)),
                format!("{:.2}", run.operation_ms_mean),
                format!("{:.1}", run.volume.latency_ns_p99 as f64 / 1e6),
                pair(run, |d| Some(format!("{:.0}", d.data_share * 100.0))),
                pair(run, |d| Some(format!("{:.0}", d.requests_share * 100.0))),
                pair(run, |d| (d.requests > 0).then(|| millis(d.all_response_ns_mean))),
                pair(run, |d| (d.flushes > 0).then(|| millis(d.flush_response_ns_mean))),
            ]);
        }
        let mut text = table.render("");
        text.push('\n');
        for line in self.too_slow.iter().chain(&self.conditions) {
            text += &format!("{line}\n");
        }
        text
    }
}

fn pair(run: &DbenchRun, figure: impl Fn(&super::measure::DeviceInterval) -> Option<String>) -> String {
    let each = run.volume.devices.iter().map(|device| figure(device).unwrap_or_else(|| "-".to_owned()));
    each.collect::<Vec<_>>().join(" / ")
}

fn millis(nanos: u64) -> String {
    format!("{:.2}", nanos as f64 / 1e6)
}

/// `1 client`, `4 clients`.
pub fn count(number: u32, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::super::measure::tests::interval;
    use super::*;

    /// A run with this lateness of the SSD, and with an idle disk.
    fn run(policy: &str, clients: u32, lateness_us: u64) -> DbenchRun {
        let mut volume = interval(lateness_us);
        let [ssd, hdd] = &mut volume.devices[..] else { panic!("two devices") };
        (ssd.data_share, ssd.requests_share, ssd.flushes) = (1.0, 1.0, 50);
        ssd.flush_response_ns_mean = 2_500_000;
        (hdd.requests, hdd.requests_share) = (0, 0.0);
        let outcome =
            Outcome { throughput_mb_per_second: 61.6, operation_ms_mean: 0.09, operation_ms_max: 14.7 };
        DbenchRun::new(policy, clients, outcome, volume)
    }

    #[test]
    fn a_policy_is_named_once_and_an_idle_device_has_no_response_time() {
        let runs = vec![run("ssd-only", 1, 10), run("ssd-only", 10, 900)];
        let report = Report::new(vec!["what it is".to_owned()], runs, 1.0);
        let text = report.table("dbench");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("policy    clients   MB/s  dbench mean ms  volume p99 ms"), "{text}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words[..5], ["ssd-only", "1", "61.6", "0.09", "12.3"]);
        assert!(
            lines[1].contains("100 / 0") && lines[1].contains("0.10 / -") && lines[1].ends_with("2.50 / -")
        );
        assert_eq!(lines[2].split_whitespace().take(2).collect::<Vec<_>>(), ["10", "61.6?"], "{text}");
        assert!(report.too_slow.is_some_and(|told| lines.contains(&&*told)), "{text}");
        assert_eq!(lines.last(), Some(&"what it is"));
    }
}
