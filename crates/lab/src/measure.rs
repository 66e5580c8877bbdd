//! Values of an experiment's measures, from one run.

use crate::experiment::{Counting, Experiment, Measure, Series};
use crate::outcome::DeviceOutcome;
use crate::{Distribution, Outcome};
use braid_base::{Bytes, DeviceClass};

/// Unit of scrubbed data in the Hystor talk.
const SCRUBBED: Bytes = Bytes(4 << 10);

/// Value of a measure in one run; `place` is the place on the axis. `None` if the run has no such number.
pub fn value(
    experiment: &Experiment,
    series: &Series,
    place: u32,
    measure: Measure,
    outcome: &Outcome,
) -> Option<f64> {
    let counted = Counted::of(outcome, experiment.counting);
    Some(match measure {
        Measure::Throughput => counted.bytes / 1e6,
        Measure::Operations => counted.operations,
        Measure::PerMinute => counted.operations * 60.0,
        Measure::Latency => counted.latency.mean / 1e6,
        Measure::LatencyP90 => outcome.programme.as_ref()?.operation_ns_p90 as f64 / 1e6,
        Measure::LatencyP99 => counted.latency.p99 as f64 / 1e6,
        Measure::Finish => {
            f64::from(place) * experiment.counting.map_or(0.0, |c| c.operations)
                / counted.operations.max(1e-9)
        }
        Measure::Time => outcome.measured_seconds,
        Measure::HitRatio => of_ssds(outcome, |device| device.requests_share) * 100.0,
        Measure::DemandRate => {
            let requests = |d: &DeviceOutcome| (d.guest_read_requests + d.guest_write_requests) as f64;
            of_ssds(outcome, requests) / outcome.measured_seconds.max(1e-9)
        }
        Measure::Covered => outcome.block_costs.as_ref()?.covered(series.metric?, place)? * 100.0,
        Measure::ScrubRate => {
            let blocks = outcome.background.written_back_bytes as f64 / SCRUBBED.0 as f64;
            blocks / outcome.measured_seconds.max(1e-9)
        }
        Measure::VolumeLatency => outcome.all.latency.mean / 1e6,
        Measure::VolumeLatencyP99 => outcome.all.latency.p99 as f64 / 1e6,
        Measure::Active(class) => {
            let of_class = || outcome.devices.iter().filter(|device| device.is(class));
            let active: f64 = of_class().map(|device| device.utilisation).sum();
            active / of_class().count().max(1) as f64 * 100.0
        }
        Measure::SsdShare => of_ssds(outcome, |device| device.data_share) * 100.0,
        Measure::Settling => return outcome.settled_seconds,
        Measure::Behind => of_volume(outcome, outcome.behind_mean_bytes),
        Measure::BehindHighest => of_volume(outcome, outcome.behind_highest_bytes as f64),
        Measure::MovedToSsds => {
            of_ssds(outcome, |ssd| policy_figure(ssd, "extents_came")) * outcome.extent_bytes as f64 / 1e6
        }
        Measure::MovedBetweenNodes => {
            outcome.network.as_ref().map_or(0.0, |network| network.moved_bytes as f64 / 1e6)
        }
        Measure::SsdWritten => {
            of_ssds(outcome, |ssd| ssd.device_written_bytes as f64) / 1e6 / outcome.measured_seconds.max(1e-9)
        }
        Measure::Entropy => *outcome.burstiness.as_ref()?.entropy_bits.get(place as usize)?,
    })
}

/// Sum of a figure over the SSDs.
fn of_ssds(outcome: &Outcome, of: impl Fn(&DeviceOutcome) -> f64) -> f64 {
    // Not `sum`: an empty `sum` is −0, and is displayed as −0.
    outcome
        .devices
        .iter()
        .filter(|device| device.is(DeviceClass::Ssd))
        .map(of)
        .fold(0.0, |sum, more| sum + more)
}

/// Sum of the policy's figures with this name for a device; 0 if there is none.
fn policy_figure(device: &DeviceOutcome, name: &str) -> f64 {
    device.policy_figures.iter().filter(|(known, _)| known == name).map(|(_, figure)| figure).sum()
}

/// Share of the volume, per cent.
fn of_volume(outcome: &Outcome, bytes: f64) -> f64 {
    bytes / outcome.volume_bytes as f64 * 100.0
}

/// Counted bytes and operations per second, with the latency of operations.
struct Counted {
    bytes: f64,
    operations: f64,
    latency: Distribution,
}

impl Counted {
    /// Counts of the load's programme, or of the volume if the load has no programme.
    fn of(outcome: &Outcome, counting: Option<Counting>) -> Counted {
        let seconds = outcome.measured_seconds.max(1e-9);
        match (counting, &outcome.programme) {
            (None, _) => Counted {
                bytes: outcome.throughput_bytes_per_second,
                operations: outcome.requests_per_second,
                latency: outcome.all.latency,
            },
            (Some(_), Some(programme)) => Counted {
                bytes: programme.programme_bytes as f64 / seconds,
                operations: programme.operations as f64 / seconds,
                latency: programme.operation,
            },
            // The programme has completed nothing.
            (Some(_), None) => Counted { bytes: 0.0, operations: 0.0, latency: Distribution::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceSetup, Load, Setup};

    #[test]
    fn hdd_only_run_has_positive_zero_ssd_share() {
        let disk = vec![DeviceSetup::parse(DeviceClass::Hdd, "4GiB,model=mba3073").unwrap()];
        let setup = Setup::new(disk, "hdd-only", Load::Workload("random,span=1MiB,requests=10".to_owned()));
        let outcome = crate::simulate(&setup).unwrap().outcome;
        let share = of_ssds(&outcome, |device| device.requests_share);
        assert_eq!((share, share.is_sign_positive()), (0.0, true));
    }
}
