//! The named models: what they stand for, what they are made of, and the published figures that they must
//! reproduce.
//!
//! The tests measure every model and hold it against its `figures`; where a figure is only assumed, so is the
//! model in that respect. References such as (a3) are to the source list of the project's device figures,
//! part 1.

mod disks;
mod drives;
mod memory;
mod simulated;
mod tiers;

use crate::{DeviceModel, Measure, dram, group, hdd, rates, ssd};
use braid_base::{Bytes, DeviceClass};
use std::borrow::Cow;
use std::fmt;

/// A named model: its data-sheet identity; builds a `DeviceModel`.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// What commands call it.
    pub name: Cow<'static, str>,
    /// Maker and model.
    pub title: Cow<'static, str>,
    /// SSD or disk.
    pub class: DeviceClass,
    /// The size of the real device.
    pub capacity: Bytes,
    /// What it is made of.
    pub timing: Timing,
    /// What has been published of its speed.
    pub figures: &'static [Figure],
}

/// What a model is made of.
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
    /// What was measured.
    pub measure: Measure,
    /// MB/s (10^6 bytes) of sequential access, requests per second of random access.
    pub value: f64,
    /// How far the model may be off, as a share of the value.
    pub tolerance: f64,
    /// How well the value is known.
    pub standing: Standing,
    /// Where it comes from, and under what conditions.
    pub source: &'static str,
}

/// How well a figure is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// Maker's data sheet or manual, perhaps quoted by a second source.
    Sheet,
    /// Measured by a named publication.
    Review,
    /// From a research paper or a published and validated model.
    Paper,
    /// Computed from the others.
    Derived,
    /// From memory, no source seen: a starting value.
    Assumed,
}

impl Spec {
    /// A device of `size`, which is usually that of a file and smaller than the capacity.
    ///
    /// It behaves like the real device scaled down: what depends on distance or span depends on the share of
    /// `size`.
    pub fn build(&self, size: Bytes, seed: u64) -> DeviceModel {
        match &self.timing {
            Timing::Ssd(params) => DeviceModel::Ssd(Box::new(ssd::Ssd::new(params, size, seed))),
            Timing::Hdd(params) => DeviceModel::Hdd(Box::new(hdd::Hdd::new(params, size, seed))),
            Timing::Dram(params) => DeviceModel::Dram(Box::new(dram::Dram::new(params, size))),
            Timing::Rates(params) => DeviceModel::Rates(Box::new(rates::Rates::new(params, size))),
            Timing::Group(params) => DeviceModel::Group(Box::new(group::Group::new(params, size, seed))),
        }
    }

    /// So many of these as one device, striped: RAID 0. Its size is theirs together.
    ///
    /// # Errors
    /// As of [`Spec::group`].
    pub fn raid0(&self, count: usize, unit: Bytes) -> Result<Spec, InvalidModel> {
        self.group(count, group::Level::Striped { unit })
    }

    /// So many of these as one device, mirrored: RAID 1. Its size is that of one.
    ///
    /// # Errors
    /// As of [`Spec::group`].
    pub fn raid1(&self, count: usize) -> Result<Spec, InvalidModel> {
        self.group(count, group::Level::Mirrored)
    }

    /// So many of these as one device.
    ///
    /// # Errors
    /// If there are none or too many, or the level is none.
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

    /// Whether it is made for a paper's experiment, from rates that the paper gives: of what is inside
    /// nothing is known.
    pub(crate) fn is_of_a_paper(&self) -> bool {
        tiers::NAMES.contains(&&*self.name) || self.name == drives::X25_M_WORN.name
    }

    /// The same model that starts in a state; only an SSD that maps pages has states.
    pub fn with_state(mut self, state: ssd::State) -> Spec {
        match &mut self.timing {
            Timing::Ssd(params) => params.state = state,
            Timing::Group(params) => params.member = params.member.clone().with_state(state),
            Timing::Hdd(_) | Timing::Dram(_) | Timing::Rates(_) => {}
        }
        self
    }

    /// The same model with a disk's write cache switched; an SSD has no such switch and stays as it is.
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

/// A name that is no model's: its message lists the names there are.
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

/// A model that cannot be: says what is wrong, and what would be right.
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
