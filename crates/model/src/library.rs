//! The named models: their devices, their parameters, and the published figures that the models must
//! reproduce.
//!
//! The tests measure every model and compare the result with its `figures`. If a figure is only assumed, the
//! model is assumed in the same respect. References such as (a3) are to the source list of the project's
//! device figures, part 1.

mod disks;
mod drives;
mod memory;
mod simulated;
mod tiers;

use crate::{DeviceModel, Measure, dram, group, hdd, rates, ssd};
use braid_base::{Bytes, DeviceClass};
use std::borrow::Cow;
use std::fmt;

/// A named model: the identity of a device from its data sheet; builds a `DeviceModel`.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// The name in commands.
    pub name: Cow<'static, str>,
    /// Maker and model.
    pub title: Cow<'static, str>,
    /// SSD or disk.
    pub class: DeviceClass,
    /// The size of the real device.
    pub capacity: Bytes,
    /// The timing parameters.
    pub timing: Timing,
    /// The published speeds.
    pub figures: &'static [Figure],
}

/// The timing parameters of a model.
#[derive(Clone, PartialEq, Debug)]
pub enum Timing {
    /// A solid-state drive.
    Ssd(ssd::Params),
    /// A hard disk.
    Hdd(hdd::Params),
    /// Memory.
    Dram(dram::Params),
    /// Two rates.
    Rates(rates::Params),
    /// Several devices as one.
    Group(Box<group::Params>),
}

/// A published speed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// The measure.
    pub measure: Measure,
    /// MB/s (10^6 bytes) of sequential access, requests per second of random access.
    pub value: f64,
    /// The allowed deviation of the model, as a share of the value.
    pub tolerance: f64,
    /// The reliability of the value.
    pub standing: Standing,
    /// The source of the value, and its conditions.
    pub source: &'static str,
}

/// The reliability of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// Maker's data sheet or manual, perhaps quoted by a second source.
    Sheet,
    /// Measured by a named publication.
    Review,
    /// From a research paper or a published and validated model.
    Paper,
    /// Computed from other figures.
    Derived,
    /// From memory, without a source: a starting value.
    Assumed,
}

impl Spec {
    /// A device of `size`, usually the size of a file and smaller than the capacity.
    ///
    /// The device behaves like the real device scaled down: properties that depend on distance or span depend
    /// on the share of `size`.
    pub fn build(&self, size: Bytes, seed: u64) -> DeviceModel {
        match &self.timing {
            Timing::Ssd(params) => DeviceModel::Ssd(Box::new(ssd::Ssd::new(params, size, seed))),
            Timing::Hdd(params) => DeviceModel::Hdd(Box::new(hdd::Hdd::new(params, size, seed))),
            Timing::Dram(params) => DeviceModel::Dram(Box::new(dram::Dram::new(params, size))),
            Timing::Rates(params) => DeviceModel::Rates(Box::new(rates::Rates::new(params, size))),
            Timing::Group(params) => DeviceModel::Group(Box::new(group::Group::new(params, size, seed))),
        }
    }

    /// `count` of these devices as one, striped: RAID 0. The size is the sum of the sizes.
    ///
    /// # Errors
    /// As of [`Spec::group`].
    pub fn raid0(&self, count: usize, unit: Bytes) -> Result<Spec, InvalidModel> {
        self.group(count, group::Level::Striped { unit })
    }

    /// `count` of these devices as one, mirrored: RAID 1. The size is the size of one device.
    ///
    /// # Errors
    /// As of [`Spec::group`].
    pub fn raid1(&self, count: usize) -> Result<Spec, InvalidModel> {
        self.group(count, group::Level::Mirrored)
    }

    /// `count` of these devices as one.
    ///
    /// # Errors
    /// If there are none or too many, or the level is invalid.
    pub fn group(&self, count: usize, level: group::Level) -> Result<Spec, InvalidModel> {
        level.check()?;
        let (word, capacity) = match level {
            group::Level::Striped { .. } => ("raid0", self.capacity.0.checked_mul(count as u64)),
            group::Level::Mirrored => ("raid1", Some(self.capacity.0)),
        };
        let (most, name) = (group::MOST_MEMBERS, &self.name);
        let capacity = capacity.filter(|_| (1..=most).contains(&count)).ok_or_else(|| {
            InvalidModel(format!(
                "a group of {count} devices of {name}: use 1 to {most}, of at most 16 EiB in all"
            ))
        })?;
        Ok(Spec {
            name: Cow::Owned(format!("{word} of {count} {name}")),
            title: Cow::Owned(format!("{count} × {}, {word}", self.title)),
            class: self.class,
            capacity: Bytes(capacity),
            timing: Timing::Group(Box::new(group::Params { member: self.clone(), count, level })),
            figures: &[],
        })
    }

    /// True if the model is made for a paper's experiment, from the paper's rates: the internals are unknown.
    pub(crate) fn is_of_a_paper(&self) -> bool {
        tiers::NAMES.contains(&&*self.name) || self.name == drives::X25_M_WORN.name
    }

    /// The same model with another initial state; only an SSD that maps pages has states.
    pub fn with_state(mut self, state: ssd::State) -> Spec {
        match &mut self.timing {
            Timing::Ssd(params) => params.state = state,
            Timing::Group(params) => params.member = params.member.clone().with_state(state),
            Timing::Hdd(_) | Timing::Dram(_) | Timing::Rates(_) => {}
        }
        self
    }

    /// The same model with a disk's write cache switched. An SSD has no such switch and does not change.
    pub fn with_write_cache(mut self, on: bool) -> Spec {
        match &mut self.timing {
            Timing::Hdd(params) => params.write_cache = on,
            Timing::Group(params) => params.member = params.member.clone().with_write_cache(on),
            Timing::Ssd(_) | Timing::Dram(_) | Timing::Rates(_) => {}
        }
        self
    }
}

/// All named models: SSDs, disks, memory, and devices that papers simulate by two rates.
pub fn library() -> &'static [Spec] {
    LIBRARY
}

/// The model of this name.
pub fn by_name(name: &str) -> Option<&'static Spec> {
    LIBRARY.iter().find(|spec| spec.name == name)
}

/// A name without a model: the message lists the valid names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownModel(pub String);

impl fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown device model '{}': use one of", self.0)?;
        for (at, spec) in LIBRARY.iter().enumerate() {
            write!(f, "{} {}", if at == 0 { "" } else { "," }, spec.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownModel {}

/// An impossible model: names the error and the allowed values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidModel(pub String);

impl fmt::Display for InvalidModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidModel {}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Sheet => "sheet",
            Standing::Review => "review",
            Standing::Paper => "paper",
            Standing::Derived => "derived",
            Standing::Assumed => "assumed",
        })
    }
}

const fn figure(
    measure: Measure,
    value: f64,
    tolerance: f64,
    standing: Standing,
    source: &'static str,
) -> Figure {
    Figure { measure, value, tolerance, standing, source }
}

static LIBRARY: &[Spec] = &[
    drives::X25_M,
    drives::X25_M_WORN,
    drives::X25_E,
    drives::MEMORIGHT_GT,
    drives::TRANSCEND_16G,
    drives::SATA_SSD,
    drives::NVME_SSD,
    tiers::P4800X,
    tiers::SAMSUNG_960,
    tiers::SAMSUNG_870,
    disks::MBA3073,
    disks::CHEETAH_15K5,
    disks::BARRACUDA_7200_12,
    disks::EXOS_X20,
    memory::DRAM,
    simulated::WS_ROS_SSD,
    simulated::WS_ROS_HDD,
];
