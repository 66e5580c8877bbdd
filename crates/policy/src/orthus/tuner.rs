//! The two switches, and their control.
//!
//! ```text
//! fill   data_admit on, load_admit 1: a classic cache, until the miss ratio of two windows in a row differs by `stable` at most
//! tune   data_admit off. The target is measured at x, x + step and x − step, for `interval` each. While a neighbour is better, it is the
//!        next x, and only its other neighbour is measured. Where x is best, the search begins again from there.
//!        fill again:  the miss ratio of a window is `change` from what it was when tuning began, or the best is 1 for the second time
//! ```
//!
//! A load that the cache alone serves best is therefore filled and tuned in turns: the search returns as soon
//! as the miss ratio is stable.
//!
//! Deviations from the authors' code:
//! - The authors' miss ratio covers all time, and changes ever less. Here the ratio is of windows of
//!   `window`, and `stable` is a whole percentage point, not 0.01: a window of some thousand reads is no more
//!   exact. A window with fewer than 100 reads is extended.
//! - A neighbour must be better by `margin`: otherwise noise alone would move x, step by step.
//! - The authors' step is 1 %; here the step is the 2 % that Tu et al. (FAST 2026) cite for such systems. The
//!   authors' kernel version measures for 5 ms: not long enough for devices of some hundred requests a
//!   second.
//! - The authors' kernel version does not tune while more than 20 % of reads miss. The authors' other version
//!   does, as does Braid.
//! - An interval without a completion is measured again.

use crate::{BadSetting, Settings};
use braid_base::{Bytes, Nanos};

/// The two switches.
pub struct Tuner {
    constants: Constants,
    state: State,
    load_admit: f64,
    /// End of the present window, `None` before the first request; end of the present interval.
    window_end: Option<Nanos>,
    interval_end: Nanos,
    /// Reads of the window, and misses among them.
    reads: u64,
    misses: u64,
    /// Miss ratio of the last window.
    miss_ratio: Option<f64>,
    /// Totals of the interval.
    bytes: u64,
    completions: u64,
    latency_ns: u64,
}

struct Constants {
    target: Objective,
    step: f64,
    interval: Nanos,
    window: Nanos,
    stable: f64,
    change: f64,
    margin: f64,
}

/// Measure to optimise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Objective {
    /// Bytes served to guests by both classes of devices.
    Throughput,
    /// Mean response time of guests' requests.
    Latency,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Fill,
    Tune(Climb),
}

/// A search for the best `load_admit`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Climb {
    /// Miss ratio at the start of tuning.
    base: f64,
    /// The best share so far, and the measurements at it and at its neighbours; `None` means not measured
    /// yet.
    middle: f64,
    at: [Option<f64>; 3],
    /// True if the best share was 1 before.
    was_one: bool,
}

/// Places in `Climb::at`, in the order of measurement.
const MIDDLE: usize = 0;
const ABOVE: usize = 1;
const BELOW: usize = 2;

/// Least reads of a window: a window with fewer reads is extended.
const FEWEST_READS: u64 = 100;
const STEP: f64 = 0.02;
const INTERVAL: Nanos = Nanos::from_millis(100);
const WINDOW: Nanos = Nanos::from_secs(1);
const STABLE: f64 = 0.01;
const CHANGE: f64 = 0.2;
const MARGIN: f64 = 0.01;

impl Tuner {
    /// Reads the settings: `target` (throughput; or latency), `step` (2%), `interval` (100ms), `window` (1s),
    /// `stable` (1%), `change` (20%), `margin` (1%).
    pub fn take(settings: &mut Settings) -> Result<Tuner, BadSetting> {
        let target = match settings.take_text("target").as_deref() {
            None | Some("throughput") => Objective::Throughput,
            Some("latency") => Objective::Latency,
            Some(other) => return Err(settings.bad("target", other, "throughput or latency")),
        };
        let longest = Nanos::from_secs(3600);
        let step = settings.take_share("step")?.unwrap_or(STEP);
        if !(0.001..=0.5).contains(&step) {
            return Err(settings.bad("step", &step.to_string(), "0.1% to 50%"));
        }
        let constants = Constants {
            target,
            step,
            interval: settings.take_time("interval", INTERVAL, Nanos::from_millis(1)..=longest)?,
            window: settings.take_time("window", WINDOW, Nanos::from_millis(10)..=longest)?,
            stable: settings.take_share("stable")?.unwrap_or(STABLE),
            change: settings.take_share("change")?.unwrap_or(CHANGE),
            margin: settings.take_share("margin")?.unwrap_or(MARGIN),
        };
        Ok(Tuner {
            constants,
            state: State::Fill,
            load_admit: 1.0,
            window_end: None,
            interval_end: Nanos::MAX,
            reads: 0,
            misses: 0,
            miss_ratio: None,
            bytes: 0,
            completions: 0,
            latency_ns: 0,
        })
    }

    /// Returns the settings as text.
    pub fn settings(&self) -> String {
        let Constants { target, step, interval, window, stable, change, margin } = &self.constants;
        let target = match target {
            Objective::Throughput => "throughput",
            Objective::Latency => "latency",
        };
        let percent = |share: &f64| share * 100.0;
        format!(
            "target={target},step={}%,interval={}ns,window={}ns,stable={}%,change={}%,margin={}%",
            percent(step),
            interval.0,
            window.0,
            percent(stable),
            percent(change),
            percent(margin)
        )
    }

    /// True if a read that misses fills the cache.
    pub fn admits_data(&self) -> bool {
        self.state == State::Fill
    }

    /// Returns the share of clean hits that the cache serves.
    pub fn load_admit(&self) -> f64 {
        self.load_admit
    }

    /// Counts a guest's read of an extent on a disk, as a hit or a miss.
    pub fn read(&mut self, is_hit: bool) {
        self.reads += 1;
        self.misses += u64::from(!is_hit);
    }

    /// Counts a guest's request finished by a device.
    pub fn completed(&mut self, len: Bytes, latency: Nanos) {
        self.bytes += len.0;
        self.completions += 1;
        self.latency_ns += latency.0;
    }

    /// Ends windows and intervals that are over. To be called at each request of a guest.
    pub fn advance(&mut self, now: Nanos) {
        let end = *self.window_end.get_or_insert(now + self.constants.window);
        if now >= end && self.reads >= FEWEST_READS {
            self.end_window();
            self.window_end = Some(now + self.constants.window);
            if self.state != State::Fill && self.interval_end == Nanos::MAX {
                self.begin_interval(now);
            }
        }
        if now >= self.interval_end {
            self.end_interval();
            self.begin_interval(now);
        }
    }

    fn end_window(&mut self) {
        let (reads, misses) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.misses));
        let ratio = misses as f64 / reads as f64;
        let last = self.miss_ratio.replace(ratio);
        match self.state {
            State::Fill => {
                if last.is_some_and(|last| (ratio - last).abs() <= self.constants.stable) {
                    let at = [None; 3];
                    self.state = State::Tune(Climb { base: ratio, middle: 1.0, at, was_one: false });
                }
            }
            State::Tune(Climb { base, .. }) => {
                if (ratio - base).abs() >= self.constants.change {
                    self.fill();
                }
            }
        }
    }

    /// Makes a classic cache again. Two further windows decide whether the miss ratio is stable.
    fn fill(&mut self) {
        (self.state, self.load_admit, self.interval_end) = (State::Fill, 1.0, Nanos::MAX);
        self.miss_ratio = None;
    }

    fn begin_interval(&mut self, now: Nanos) {
        (self.bytes, self.completions, self.latency_ns) = (0, 0, 0);
        if self.state != State::Fill {
            self.interval_end = now + self.constants.interval;
        }
    }

    /// Returns the result of the interval: more is better. `None` without a completion.
    fn measured(&self) -> Option<f64> {
        (self.completions > 0).then(|| match self.constants.target {
            Objective::Throughput => self.bytes as f64,
            Objective::Latency => -(self.latency_ns as f64 / self.completions as f64),
        })
    }

    fn end_interval(&mut self) {
        let (State::Tune(mut climb), Some(measured)) = (self.state, self.measured()) else { return };
        climb.at[climb.next()] = Some(measured);
        let Constants { step, margin, .. } = self.constants;
        climb.leave_out(step);
        while let [Some(middle), Some(above), Some(below)] = climb.at {
            let least = middle + margin * middle.abs();
            if above > least && above >= below {
                climb.shift(step, ABOVE);
            } else if below > least {
                climb.shift(step, BELOW);
            } else if climb.middle >= 1.0 && climb.was_one {
                return self.fill();
            } else {
                climb.was_one |= climb.middle >= 1.0;
                climb.at = [None; 3];
            }
            climb.leave_out(step);
        }
        self.load_admit = climb.measured_next(step);
        self.state = State::Tune(climb);
    }

    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        let miss_ratio = self.miss_ratio.map(|ratio| ("miss_ratio", ratio));
        let switches =
            [("load_admit", self.load_admit), ("data_admit", f64::from(u8::from(self.admits_data())))];
        switches.into_iter().chain(miss_ratio).collect()
    }

    pub fn explain(&self) -> String {
        let misses = self.miss_ratio.map_or("unknown".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
        match self.state {
            State::Fill => format!("the cache fills (misses: {misses}) and serves all hits"),
            State::Tune(climb) => format!(
                "the cache does not fill (misses: {misses}) and serves {:.1} % of clean hits, the disks \
                 serve the rest; the best share is {:.1} %",
                self.load_admit * 100.0,
                climb.middle * 100.0
            ),
        }
    }
}

impl Climb {
    /// Returns the place to measure next.
    fn next(&self) -> usize {
        self.at.iter().position(Option::is_none).expect("a search goes on until all are measured")
    }

    /// Marks shares below 0 and above 1 as the worst.
    fn leave_out(&mut self, step: f64) {
        for place in [ABOVE, BELOW] {
            if !(0.0..=1.0).contains(&self.place(place, step)) {
                self.at[place] = Some(f64::NEG_INFINITY);
            }
        }
    }

    /// Returns the share at a place. Steps are counted, so that sums of steps do not drift past 1.
    fn place(&self, place: usize, step: f64) -> f64 {
        let steps = |by: f64| (((1.0 - self.middle) / step).round() + by) * step;
        match place {
            MIDDLE => self.middle,
            ABOVE => 1.0 - steps(-1.0),
            _ => 1.0 - steps(1.0),
        }
    }

    /// Returns the share to measure next.
    fn measured_next(&self, step: f64) -> f64 {
        self.place(self.next(), step)
    }

    /// Makes the neighbour the middle, and the old middle a neighbour.
    fn shift(&mut self, step: f64, to: usize) {
        let (middle, [at_middle, at_above, at_below]) = (self.place(to, step), self.at);
        self.middle = middle;
        self.at = match to {
            ABOVE => [at_above, None, at_middle],
            _ => [at_below, at_middle, None],
        };
    }
}

#[cfg(test)]
#[path = "tuner_tests.rs"]
mod tests;
