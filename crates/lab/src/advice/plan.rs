//! Plan: the cheapest devices that meet a target under a recorded load, the runner-up, and changes that would
//! alter the choice.
//!
//! Each mix of devices is simulated once under each requested policy. From the cheapest on, mixes that meet
//! the target are simulated again, from later requests on and on devices of another seed. A mix meets the
//! target if all of its runs do.

use super::ask::{Question, RUNS, keeps_up, setup, sweep};
use super::prices::{Mix, Prices};
use super::slo::Slo;
use super::volume::Beginning;
use crate::{Error, ErrorKind, Progress, Result, Run, Setup, WarmUp};
use braid_base::{Bytes, DeviceClass, Nanos};
use serde::Serialize;
use std::ops::ControlFlow;

/// A question for a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanQuestion {
    /// The load; its devices, volume and sizes are ignored.
    pub usual: Question,
    /// Prices of devices.
    pub prices: Prices,
    /// The target.
    pub slo: Slo,
    /// Bytes that the volume has to hold; the touched extents if larger.
    pub data: Bytes,
}

/// Answer: a plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// The recording.
    pub load: String,
    /// Simulated requests: the last requests of the recording.
    pub simulated_requests: u64,
    /// Seconds of the simulated requests before the measured part.
    pub warm_up_seconds: f64,
    /// Seconds of the measured part.
    pub measured_seconds: f64,
    /// Bytes that the volume has to hold.
    pub data_bytes: u64,
    /// The target's statistic: `p99`.
    pub target_statistic: String,
    /// Upper limit of the statistic, exclusive.
    pub target_ns: u64,
    /// Currency of prices.
    pub currency: String,
    /// The cheapest mix that meets the target; `None` if no mix does.
    pub cheapest: Option<Priced>,
    /// The next cheapest mix that meets the target.
    pub runner_up: Option<Priced>,
    /// Results under more load.
    pub faster: Vec<Faster>,
    /// Results with other prices.
    pub dearer: Vec<Dearer>,
    /// All mixes, the cheapest first, each with its best policy.
    pub mixes: Vec<Priced>,
    /// The seed.
    pub seed: u64,
}

/// A mix with its price and results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Priced {
    /// The devices, in words.
    pub mix: String,
    /// The devices as arguments of `braid simulate`.
    pub device_arguments: Vec<String>,
    /// Price of the mix.
    pub price: f64,
    /// The policy.
    pub policy: String,
    /// The target's statistic: the worst of the mix's runs. `None` if the mix cannot be simulated.
    pub target_statistic_ns: Option<f64>,
    /// Mean latency of the first run.
    pub latency_ns_mean: Option<f64>,
    /// True if all runs meet the target and keep up.
    pub holds: bool,
    /// Number of simulations.
    pub run_count: usize,
    /// Why the mix was not simulated.
    pub why: Option<String>,
    #[serde(skip)]
    number: usize,
}

/// Results under more load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Faster {
    /// Factor by which requests arrive faster.
    pub load_factor: f64,
    /// The target's statistic, for the cheapest mix.
    pub target_statistic_ns: f64,
    /// True if the cheapest mix still meets the target.
    pub holds: bool,
    /// The cheapest mix that meets the target both as recorded and under more load; `None` if no mix does.
    pub cheapest_mix: Option<String>,
    /// Price of this mix.
    pub cheapest_price: Option<f64>,
}

/// The choice if one price changes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Dearer {
    /// Model with the changed price.
    pub model: String,
    /// Factor of the price.
    pub price_factor: f64,
    /// The cheapest mix at this price.
    pub cheapest_mix: String,
    /// Price of this mix.
    pub cheapest_price: f64,
    /// True if this mix differs from the choice.
    pub is_another: bool,
}

/// Most combinations of mixes and policies.
const MOST: usize = 600;
/// Most mixes simulated again.
const MOST_REPEATED: usize = 12;
/// Factor of more load.
const LOAD: f64 = 1.3;
/// Factors of other prices.
const PRICES: [f64; 2] = [0.8, 1.2];
/// Policies with all homes on disks.
const ON_DISKS: [&str; 3] = ["hystor", "cache", "hdd-only"];

/// Makes a plan. `progress` is called about ten times a second, and may stop the run.
///
/// # Errors
/// `Setup` if no mix has room, or there are too many. `Stopped` if `progress` says so. Otherwise a fault of
/// the engine.
pub fn plan(question: &PlanQuestion, mut progress: impl FnMut(&Progress) -> ControlFlow<()>) -> Result<Plan> {
    let window = &question.usual.window;
    let data = question.data.max(window.extent * window.extents);
    let mixes = question.prices.mixes(data);
    let policies = &question.usual.policies;
    if mixes.is_empty() {
        return Err(Error::setup(format!(
            "no mix of the devices has room for {data}: offer larger sizes or higher counts"
        )));
    }
    if mixes.len() * policies.len() > MOST {
        return Err(Error::setup(format!(
            "{} mixes under {} policies: at most {MOST} are simulated; offer fewer sizes or counts, or name fewer policies",
            mixes.len(),
            policies.len()
        )));
    }
    let planner = Planner { question, beginning: Beginning::anew(window, data), data };
    let pairs: Vec<(usize, &str)> =
        (0..mixes.len()).flat_map(|mix| policies.iter().map(move |policy| (mix, &**policy))).collect();
    let setups: Vec<Setup> =
        pairs.iter().map(|&(mix, policy)| planner.setup(&mixes[mix], policy, 1.0, 0)).collect();
    let results = sweep(&setups, &question.usual, &mut progress);
    let mut best: Vec<Option<Priced>> = vec![None; mixes.len()];
    for (&(mix, policy), result) in pairs.iter().zip(results) {
        let priced = planner.priced(mix, &mixes[mix], policy, result)?;
        if best[mix].as_ref().is_none_or(|known| is_better(&priced, known)) {
            best[mix] = Some(priced);
        }
    }
    let mut all: Vec<Priced> = best.into_iter().flatten().collect();
    // An error common to all mixes is an error of the question.
    if let (true, Some(why)) =
        (all.iter().all(|mix| mix.run_count == 0), all.first().and_then(|mix| mix.why.clone()))
    {
        return Err(Error::setup(why));
    }
    let sure = planner.make_sure(&mixes, &mut all, &mut progress)?;
    let faster = planner.faster(&mixes, &all, &sure, &mut progress)?;
    let (warm_up, length) = (window.warm_up(), window.length());
    let at = |place: usize| sure.get(place).map(|&number| all[number].clone());
    Ok(Plan {
        load: window.name.clone(),
        simulated_requests: window.placed.len() as u64,
        warm_up_seconds: warm_up.as_secs_f64(),
        measured_seconds: (length - warm_up).as_secs_f64(),
        data_bytes: data.0,
        target_statistic: question.slo.name().to_owned(),
        target_ns: question.slo.limit.0,
        currency: question.prices.currency.clone(),
        cheapest: at(0),
        runner_up: at(1),
        faster,
        dearer: dearer(&mixes, &all, &sure),
        mixes: all,
        seed: question.usual.seed,
    })
}

fn is_better(one: &Priced, other: &Priced) -> bool {
    let value = |priced: &Priced| priced.target_statistic_ns.unwrap_or(f64::INFINITY);
    (one.holds && !other.holds) || (one.holds == other.holds && value(one) < value(other))
}

struct Planner<'a> {
    question: &'a PlanQuestion,
    beginning: Beginning,
    data: Bytes,
}

impl Planner<'_> {
    /// Setup of a mix under a policy, `factor` times as fast, from a later request on.
    fn setup(&self, mix: &Mix, policy: &str, factor: f64, later: usize) -> Setup {
        let PlanQuestion { usual, .. } = self.question;
        let beginning = if later == 0 { self.beginning.clone() } else { self.beginning.later(later) };
        let setup = setup(usual, &beginning, &mix.devices, policy);
        let sooner = |time: Nanos| Nanos::from_secs_f64(time.as_secs_f64() / factor);
        let warm_up = match setup.warm_up {
            WarmUp::Time(time) => WarmUp::Time(sooner(time)),
            other => other,
        };
        Setup {
            warm_up,
            batches: Vec::new(),
            speed: factor,
            prefill_ssd: self.on_ssd(mix, policy),
            seed: usual.seed.wrapping_add(later as u64),
            ..setup
        }
    }

    /// Ranges on the SSDs if less data is simulated than exists: the same share as the SSDs would have of all
    /// data.
    fn on_ssd(&self, mix: &Mix, policy: &str) -> Option<Vec<std::ops::Range<Bytes>>> {
        let simulated = self.beginning.load.data();
        let is_on_disks = ON_DISKS.contains(&policy.split(',').next().unwrap_or_default());
        let has = |class| mix.devices.iter().any(|device| device.class == class);
        if simulated >= self.data || is_on_disks || !has(DeviceClass::Ssd) || !has(DeviceClass::Hdd) {
            return None;
        }
        let share = (SSD_FILLED * mix.ssd_bytes() as f64 / self.data.0 as f64).min(1.0);
        let extent = self.question.usual.window.extent;
        let extents = simulated / extent;
        let count = (extents as f64 * share) as u64;
        let of =
            (0..count).map(|number| (u128::from(number) * u128::from(extents) / u128::from(count)) as u64);
        Some(crate::corpus::ranges(of.collect(), extent))
    }

    fn priced(&self, number: usize, mix: &Mix, policy: &str, result: Result<Run>) -> Result<Priced> {
        let usual = Priced {
            mix: mix.name(),
            device_arguments: arguments(mix),
            price: mix.price(),
            policy: policy.to_owned(),
            target_statistic_ns: None,
            latency_ns_mean: None,
            holds: false,
            run_count: 1,
            why: None,
            number,
        };
        match result {
            Ok(run) => Ok(Priced {
                target_statistic_ns: Some(self.question.slo.of(&run.outcome.all.latency)),
                latency_ns_mean: Some(run.outcome.all.latency.mean),
                holds: self.holds(&run, 1.0),
                ..usual
            }),
            Err(error) if error.kind() == ErrorKind::Setup => {
                Ok(Priced { run_count: 0, why: Some(error.to_string()), ..usual })
            }
            Err(error) => Err(error),
        }
    }

    fn holds(&self, run: &Run, factor: f64) -> bool {
        let PlanQuestion { usual, slo, .. } = self.question;
        let outcome = &run.outcome;
        // A simulation that ended early has left out the slowest requests.
        slo.of(&outcome.all.latency) < slo.limit.0 as f64
            && outcome.all.requests > 0
            && (keeps_up(&usual.window, outcome)
                || (factor > 1.0 && outcome.measured_seconds * factor <= 1.05 * self.asked()))
    }

    /// Length of the measured part, as recorded.
    fn asked(&self) -> f64 {
        let window = &self.question.usual.window;
        (window.length() - window.warm_up()).as_secs_f64()
    }

    /// Simulates the cheapest mixes that meet the target again, until two are confirmed. Returns all mixes
    /// that still meet the target, the cheapest first.
    fn make_sure(
        &self,
        mixes: &[Mix],
        all: &mut [Priced],
        progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Vec<usize>> {
        let (mut sure, mut repeated) = (Vec::new(), 0);
        for (place, priced) in all.iter_mut().enumerate() {
            if !priced.holds {
                continue;
            }
            if sure.len() < 2 && repeated < MOST_REPEATED {
                repeated += 1;
                let again = |later| self.setup(&mixes[priced.number], &priced.policy, 1.0, later);
                let setups: Vec<Setup> = (1..RUNS).map(again).collect();
                for result in sweep(&setups, &self.question.usual, progress) {
                    let run = result?;
                    let value = self.question.slo.of(&run.outcome.all.latency);
                    priced.target_statistic_ns = priced.target_statistic_ns.map(|worst| worst.max(value));
                    priced.holds &= self.holds(&run, 1.0);
                    priced.run_count += 1;
                }
            }
            if priced.holds {
                sure.push(place);
            }
        }
        Ok(sure)
    }

    /// Results under more load: whether the choice still meets the target, and the cheapest mix that does.
    fn faster(
        &self,
        mixes: &[Mix],
        all: &[Priced],
        sure: &[usize],
        progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Vec<Faster>> {
        if sure.is_empty() {
            return Ok(Vec::new());
        }
        let setups: Vec<Setup> = sure
            .iter()
            .map(|&place| self.setup(&mixes[all[place].number], &all[place].policy, LOAD, 0))
            .collect();
        let runs =
            sweep(&setups, &self.question.usual, progress).into_iter().collect::<Result<Vec<Run>>>()?;
        let first = runs.iter().position(|run| self.holds(run, LOAD)).map(|place| &all[sure[place]]);
        Ok(vec![Faster {
            load_factor: LOAD,
            target_statistic_ns: self.question.slo.of(&runs[0].outcome.all.latency),
            holds: self.holds(&runs[0], LOAD),
            cheapest_mix: first.map(|priced| priced.mix.clone()),
            cheapest_price: first.map(|priced| priced.price),
        }])
    }
}

/// An SSD is full except for a tenth, as in `fill.rs`.
const SSD_FILLED: f64 = 0.9;

/// The choice if one model is cheaper or dearer, for each model of any mix that meets the target.
fn dearer(mixes: &[Mix], all: &[Priced], sure: &[usize]) -> Vec<Dearer> {
    let Some(&now) = sure.first() else { return Vec::new() };
    let of = |place: usize| &mixes[all[place].number];
    let mut models: Vec<&str> =
        sure.iter().flat_map(|&place| of(place).devices.iter().map(|device| &*device.model)).collect();
    models.sort_unstable();
    models.dedup();
    let with = |(model, factor): (&str, f64)| {
        let price = |place: usize| of(place).price_if(model, factor);
        // Among equal prices the present choice wins.
        let least = sure
            .iter()
            .copied()
            .fold(now, |best, place| if price(place) < price(best) { place } else { best });
        Dearer {
            model: model.to_owned(),
            price_factor: factor,
            cheapest_mix: all[least].mix.clone(),
            cheapest_price: price(least),
            is_another: least != now,
        }
    };
    models.iter().flat_map(|model| PRICES.map(|factor| (*model, factor))).map(with).collect()
}

fn arguments(mix: &Mix) -> Vec<String> {
    let of = |device: &crate::DeviceSetup| {
        let count = if device.count > 1 { format!(",count={}", device.count) } else { String::new() };
        let size = match device.size {
            crate::Size::Bytes(bytes) => format!("{}B", bytes.0),
            share @ crate::Size::Share(_) => share.to_string(),
        };
        format!("--{} {size},model={}{count}", device.class, device.model)
    };
    mix.devices.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixes() -> Vec<Mix> {
        let text = "
            currency = \"EUR\"
            [[ssd]]
            model = \"sata-ssd\"
            sizes = [\"1TB\"]
            price = 100
            [[ssd]]
            model = \"nvme-ssd\"
            sizes = [\"1TB\"]
            price = 110
        ";
        Prices::parse(text).unwrap().mixes(Bytes(1))
    }

    fn all(mixes: &[Mix]) -> Vec<Priced> {
        let of = |(number, mix): (usize, &Mix)| Priced {
            mix: mix.name(),
            device_arguments: arguments(mix),
            price: mix.price(),
            policy: "equi".into(),
            target_statistic_ns: Some(1.0),
            latency_ns_mean: Some(1.0),
            holds: true,
            run_count: 1,
            why: None,
            number,
        };
        mixes.iter().enumerate().map(of).collect()
    }

    #[test]
    fn changed_device_price_can_change_the_choice() {
        let mixes = mixes();
        let found = dearer(&mixes, &all(&mixes), &[0, 1]);
        let changed: Vec<(&str, f64, bool, f64)> = found
            .iter()
            .map(|other| (&*other.model, other.price_factor, other.is_another, other.cheapest_price))
            .collect();
        let expected = [
            ("nvme-ssd", 0.8, true, 88.0),
            ("nvme-ssd", 1.2, false, 100.0),
            ("sata-ssd", 0.8, false, 80.0),
            ("sata-ssd", 1.2, true, 110.0),
        ];
        assert_eq!(changed, expected);
        assert!(dearer(&mixes, &all(&mixes), &[]).is_empty());
    }

    #[test]
    fn mix_meeting_the_target_beats_a_faster_mix() {
        let mixes = mixes();
        let [one, other] = [0, 1].map(|place| all(&mixes)[place].clone());
        let failing = Priced { holds: false, target_statistic_ns: Some(0.5), ..other.clone() };
        assert!(is_better(&one, &failing) && !is_better(&failing, &one));
        assert!(is_better(&Priced { target_statistic_ns: Some(0.5), ..other }, &one));
        assert!(is_better(&failing, &Priced { target_statistic_ns: None, ..failing.clone() }));
    }
}
