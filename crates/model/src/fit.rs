//! A model from measurements: how `braid device calibrate` turns measurements into parameters.
//!
//! Each measure mainly determines one parameter. For example, the read time without distance gives the
//! settling time, and the reads per second at depth 32 give the number of requests that a disk weighs. Each
//! parameter is first computed. A few rounds then correct all parameters by running the same measures on the
//! model in virtual time. Parameters without a measure are assumed, and reported as assumed.

mod disk;
mod drive;
mod served;

pub use served::{Nearest, Served, nearest};

use crate::library::{InvalidModel, Spec, Timing, by_name};
use crate::measure::{Measure, measure};
use crate::rate::Rate;
use crate::ssd::State;
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos};
use std::borrow::Cow;

/// The measurements of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed {
    /// SSD or disk.
    pub class: DeviceClass,
    /// Its size.
    pub size: Bytes,
    /// The measures of `Observed::wanted` with their values: MB/s for sequential access, otherwise requests
    /// per second.
    pub figures: Vec<(Measure, f64)>,
    /// The time of a flush behind a single write.
    pub flush: Option<Nanos>,
}

/// A model made from measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// The model.
    pub spec: Spec,
    /// Fields that no measurement determines, in words.
    pub assumed: &'static str,
}

impl Observed {
    /// The measures for a device of this class, in order. Without `writes`, only non-destructive measures.
    pub fn wanted(class: DeviceClass, writes: bool) -> Vec<Measure> {
        let wanted = match class {
            DeviceClass::Hdd => disk::WANTED,
            DeviceClass::Ssd => drive::WANTED,
        };
        wanted.iter().copied().filter(|measure| writes || !measure.writes()).collect()
    }

    /// The model that reproduces the measurements.
    ///
    /// # Errors
    /// If a required measure is missing, or a value is impossible.
    pub fn fit(&self, name: &str, title: &str) -> Result<Fitted, InvalidModel> {
        if let Some((measure, value)) =
            self.figures.iter().find(|(_, value)| !(*value > 0.0 && *value < 1e12))
        {
            return Err(InvalidModel(format!("{measure:?}: measured {value}: repeat the measurement")));
        }
        if self.size < MIB {
            return Err(InvalidModel(format!("a device of {}: at least 1 MiB can be measured", self.size)));
        }
        let start = by_name(if self.class == DeviceClass::Hdd { "mba3073" } else { "sata-ssd" });
        let mut spec = start.expect("both are names of the library").clone();
        spec.name = Cow::Owned(name.to_owned());
        spec.title = Cow::Owned(title.to_owned());
        spec.capacity = self.size;
        spec.figures = &[];
        let assumed = match self.class {
            DeviceClass::Hdd => disk::fit(&mut spec, self)?,
            DeviceClass::Ssd => drive::fit(&mut spec, self)?,
        };
        Ok(Fitted { spec, assumed })
    }

    /// The value of a measure, if present.
    fn get(&self, wanted: Measure) -> Option<f64> {
        self.figures.iter().find(|(measure, _)| *measure == wanted).map(|(_, value)| *value)
    }

    /// The value of a measure.
    fn need(&self, wanted: Measure) -> Result<f64, InvalidModel> {
        self.get(wanted).ok_or_else(|| {
            InvalidModel(format!("{wanted:?} was not measured, and the model needs it: measure again"))
        })
    }

    /// Additional time per request on the device compared with the model, in nanoseconds; zero without a
    /// measurement.
    fn lacks(&self, spec: &Spec, wanted: Measure) -> f64 {
        let period = |value: f64| 1e9 * wanted.value(1.0) / value;
        self.get(wanted).map_or(0.0, |seen| period(seen) - period(measure(spec, wanted)))
    }
}

/// The time plus `by`, within limits.
fn adjusted(time: Nanos, by: f64, least: Nanos, most: Nanos) -> Nanos {
    Nanos((time.0 as f64 + by).max(0.0) as u64).clamp(least, most)
}

/// The rate at which `len` bytes take `by` nanoseconds longer.
fn slower(rate: Rate, len: Bytes, by: f64) -> Rate {
    rate_of(len, 1e9 * len.0 as f64 / rate.0 as f64 + by)
}

/// The rate at which `len` bytes take `time` nanoseconds.
fn rate_of(len: Bytes, time: f64) -> Rate {
    Rate((1e9 * len.0 as f64 / time.max(1.0)).clamp(1e6, 1e12) as u64)
}

const START: Measure = Measure::SequentialRead { depth: 8, from: 0.0 };
const END: Measure = Measure::SequentialRead { depth: 8, from: 0.96 };
const ONE: Measure = Measure::RandomRead { depth: 1 };
const MANY: Measure = Measure::RandomRead { depth: 32 };
const SAME: Measure = Measure::SameRead { len: Bytes(KIB.0 * 4) };
const SAME_LONG: Measure = Measure::SameRead { len: Bytes(KIB.0 * 128) };
const WRITE: Measure = Measure::SequentialWrite { depth: 8 };
const WRITE_ONE: Measure = Measure::RandomWrite { depth: 1, span: 1.0, state: State::Filled };
const WRITE_MANY: Measure = Measure::RandomWrite { depth: 32, span: 1.0, state: State::Filled };

fn hdd(spec: &mut Spec) -> &mut crate::hdd::Params {
    match &mut spec.timing {
        Timing::Hdd(params) => params,
        _ => unreachable!("a disk's model is fitted from a disk's"),
    }
}

fn ssd(spec: &mut Spec) -> &mut crate::ssd::Params {
    match &mut spec.timing {
        Timing::Ssd(params) => params,
        _ => unreachable!("an SSD's model is fitted from an SSD's"),
    }
}
