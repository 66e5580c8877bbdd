//! Simulations of an experiment: its declaration with places, parameters and lengths filled in.

use super::How;
use crate::experiment::{Axis, Experiment, Jitter, Measure};
use crate::{DeviceSetup, Error, Load, OWN, Result, Setup, WarmUp, parse_network};
use braid_base::{Bytes, DeviceClass, Nanos, Rng};

/// Factor of the length of runs in a quick study.
pub(super) const QUICK: f64 = 0.05;
/// Seconds of a quick study's run, for a load otherwise measured whole.
const QUICK_WHOLE: f64 = 2.0;

/// Setups of an experiment: series after series, place after place.
///
/// # Errors
/// If the devices are invalid.
pub fn plan(experiment: &Experiment, how: How) -> Result<Vec<Setup>> {
    let times = Lengths::of(experiment, how);
    let mut setups = Vec::new();
    for series in experiment.series {
        for (place, (warm_up, measured)) in
            experiment.axis.places().into_iter().zip(times.of_places(experiment))
        {
            let device = |&(class, text): &(DeviceClass, &str)| {
                DeviceSetup::parse(class, &fill_in(text, place, times.all / 2.0))
            };
            let devices: Vec<DeviceSetup> = series.devices.iter().map(device).collect::<Result<_>>()?;
            let fill = match (series.copies > 1, experiment.paper.own_fill) {
                (true, _) => Some(MIRROR),
                (false, true) => Some(OWN),
                (false, false) => None,
            };
            let network = series.network.map(|text| parse_network(&fill_in(text, place, times.all / 2.0)));
            let dram = series.dram.map(|text| fill_in(text, place, times.all / 2.0));
            let dram =
                dram.map(|text| text.parse().map_err(|error| Error::setup(format!("dram={text}: {error}"))));
            let load = drawn(series.load, experiment.jitter, how.seed);
            let load = Load::Workload(fill_in(&load, place, times.all / 2.0));
            setups.push(Setup {
                network: network.transpose()?,
                seed: how.seed,
                size: experiment.paper.volume,
                copies: series.copies,
                cache_extents: experiment.paper.cache_extents,
                readahead: experiment.paper.readahead,
                // No paper has read-ahead of streams.
                ahead: Bytes::ZERO,
                dram: dram.transpose()?.unwrap_or(Bytes::ZERO),
                processors: experiment.paper.processors,
                prefill: experiment.prefill,
                prefill_policy: fill.map(str::to_owned),
                burstiness: experiment.measures.contains(&Measure::Entropy),
                block_costs: experiment.measures.contains(&Measure::Covered),
                warm_up: WarmUp::Time(seconds(warm_up)),
                duration: (measured > 0.0).then(|| seconds(measured)),
                block_size: series.block_size.unwrap_or(experiment.paper.block_size),
                ..Setup::new(devices, fill_in(series.policy, place, times.all / 2.0), load)
            });
        }
    }
    Ok(setups)
}

/// Policy that fills a volume of two copies: both copies are current when the load begins.
const MIRROR: &str = "raid1";

fn fill_in(text: &str, place: u32, half: f64) -> String {
    let text =
        text.replace("{x}", &place.to_string()).replace("{x*512}", &(u64::from(place) * 512).to_string());
    text.replace("{half}", &format!("{}ms", (half * 1e3).round()))
}

/// A load with its assumed parameters, as drawn by a seed: the same for all series, and for all experiments
/// with the same parameters.
fn drawn(load: &str, jitter: &[Jitter], seed: u64) -> String {
    jitter.iter().fold(load.to_owned(), |load, parameter| {
        // The name is part of the draw; otherwise all parameters would be high together.
        let mut rng =
            Rng::new(parameter.name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte)));
        let value = u64::from(parameter.low) + rng.below(u64::from(parameter.high - parameter.low) + 1);
        load.replace(&format!("{{{}}}", parameter.name), &value.to_string())
    })
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

/// Length of runs, in seconds.
pub(super) struct Lengths {
    pub warm_up: f64,
    pub measured: f64,
    all: f64,
}

impl Lengths {
    pub fn of(experiment: &Experiment, how: How) -> Lengths {
        let scale = if how.quick { QUICK } else { 1.0 };
        let warm_up = f64::from(experiment.times.warm_up) * scale;
        let measured = match (experiment.times.measured, how.quick) {
            (0, true) => QUICK_WHOLE,
            (measured, _) => f64::from(measured) * scale,
        };
        Lengths { warm_up, measured, all: warm_up + measured }
    }

    /// Warm-up and measured time at each place of the axis.
    fn of_places(&self, experiment: &Experiment) -> Vec<(f64, f64)> {
        match experiment.axis {
            Axis::Numbers { places, .. } => vec![(self.warm_up, self.measured); places.len()],
            Axis::Phases { phases, .. } => {
                phases.iter().map(|p| (self.all * p.from, self.all * (p.to - p.from))).collect()
            }
        }
    }
}
