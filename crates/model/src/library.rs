//! The named models: what they stand for, what they are made of, and the published figures that they must reproduce.
//!
//! The tests measure every model and hold it against its `figures`; where a figure is only assumed, so is the model in
//! that respect. References such as (a3) are to the source list of the project's device figures, part 1.

mod disks;
mod drives;

use crate::{DeviceModel, hdd, ssd};
use braid_base::{Bytes, DeviceClass};
use std::fmt;

/// A named model: its data-sheet identity; builds a `DeviceModel`.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What commands call it.
    pub name: &'static str,
    /// Maker and model.
    pub title: &'static str,
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
#[derive(Clone, Copy, Debug)]
pub enum Timing {
    /// A solid-state drive.
    Ssd(ssd::Params),
    /// A hard disk.
    Hdd(hdd::Params),
}

/// A published speed.
#[derive(Clone, Copy, Debug)]
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

/// A way to measure a device. Sequential requests are of 128 KiB, random ones of 4 KiB, aligned. Unless told otherwise an SSD
/// has been written once in order before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Measure {
    /// Reads one after the other, `depth` outstanding, from this share of the device on.
    SequentialRead {
        /// Requests outstanding.
        depth: usize,
        /// Where to begin, 0 to 1.
        from: f64,
    },
    /// Writes one after the other, `depth` outstanding, from the start, longer than a buffer can hide.
    SequentialWrite {
        /// Requests outstanding.
        depth: usize,
    },
    /// Reads at uniformly random places.
    RandomRead {
        /// Requests outstanding.
        depth: usize,
    },
    /// Writes at uniformly random places, longer than a buffer can hide.
    RandomWrite {
        /// Requests outstanding.
        depth: usize,
        /// The share of the device that they are spread over.
        span: f64,
        /// What an SSD that maps pages holds before; other devices have no states.
        state: ssd::State,
    },
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
    /// It behaves like the real device scaled down: what depends on distance or span depends on the share of `size`.
    pub fn build(&self, size: Bytes, seed: u64) -> DeviceModel {
        match &self.timing {
            Timing::Ssd(params) => DeviceModel::Ssd(ssd::Ssd::new(params, size, seed)),
            Timing::Hdd(params) => DeviceModel::Hdd(hdd::Hdd::new(params, size, seed)),
        }
    }

    /// The same model that starts in a state; only an SSD that maps pages has states.
    pub fn with_state(mut self, state: ssd::State) -> Spec {
        if let Timing::Ssd(params) = &mut self.timing {
            params.state = state;
        }
        self
    }

    /// The same model with a disk's write cache switched; an SSD has no such switch and stays as it is.
    pub fn with_write_cache(mut self, on: bool) -> Spec {
        if let Timing::Hdd(params) = &mut self.timing {
            params.write_cache = on;
        }
        self
    }
}

/// All named models: SSDs, then disks.
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
        write!(f, "'{}' is no device model: use one of", self.0)?;
        for (at, spec) in LIBRARY.iter().enumerate() {
            write!(f, "{} {}", if at == 0 { "" } else { "," }, spec.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownModel {}

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
    drives::X25_E,
    drives::MEMORIGHT_GT,
    drives::TRANSCEND_16G,
    drives::SATA_SSD,
    drives::NVME_SSD,
    disks::MBA3073,
    disks::CHEETAH_15K5,
    disks::BARRACUDA_7200_12,
    disks::EXOS_X20,
];
