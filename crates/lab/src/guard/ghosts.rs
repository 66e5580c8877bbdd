//! A ghost for each mode, and their joint verdict.

use super::evidence::Evidence;
use super::ghost::{Clock, Ghost};
use super::scale::Scale;
use super::watch::Batch;
use crate::rig::Need;
use crate::{DeviceSetup, Error, Load, Readahead, Setup, Size};
use braid_base::{Bytes, DeviceClass, Nanos};
use braid_model::Spec;
use std::ops::Range;
use std::time::Duration;

/// Description of the volume that ghosts imitate.
#[derive(Clone)]
pub struct Like {
    /// Part of the volume in ghosts.
    pub scale: Scale,
    /// Size of the volume.
    pub size: Bytes,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Extents in the memory cache.
    pub cache_extents: usize,
    /// When a read brings its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for read-ahead of streams.
    pub ahead: Bytes,
    /// Devices of the volume.
    pub devices: Vec<LikeDevice>,
    /// True if the models were derived from the devices' measured service, and may be wrong.
    pub is_measured: bool,
    /// Ranges with homes, in ghosts' addresses.
    pub homes: Homes,
    /// Seed of the devices and the schedule.
    pub seed: u64,
}

/// A device of the volume.
#[derive(Clone)]
pub struct LikeDevice {
    /// SSD or disk.
    pub class: DeviceClass,
    /// Timing of the device.
    pub spec: Spec,
    /// Size of the device, as a share of the volume's or, for a whole volume, in bytes.
    pub size: Size,
}

/// Ranges with homes, in order, in ghosts' addresses.
#[derive(Clone, Default)]
pub struct Homes {
    filled: Vec<Range<Bytes>>,
    on_ssd: Vec<Range<Bytes>>,
}

impl Homes {
    /// Adds the next range, with its home on a device of this class.
    pub fn add(&mut self, range: Range<Bytes>, class: DeviceClass) {
        if class == DeviceClass::Ssd {
            join(&mut self.on_ssd, range.clone());
        }
        join(&mut self.filled, range);
    }
}

/// Appends a range; neighbours are joined.
fn join(ranges: &mut Vec<Range<Bytes>>, range: Range<Bytes>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Ghosts of a volume, one for each mode of its policy.
pub struct Ghosts {
    all: Vec<Option<Ghost>>,
    evidence: Evidence,
    /// True if models may be wrong.
    is_measured: bool,
    /// Mode of the volume when the ghosts began.
    begun_in: Option<usize>,
    /// True if the volume has been in another mode since.
    has_switched: bool,
}

/// Verdict of the ghosts on a batch.
pub struct Verdict {
    /// Mean latency of requests in each mode, in nanoseconds; `None` if unknown.
    pub means: Vec<Option<f64>>,
    /// The mode to switch to, if any.
    pub switch: Option<usize>,
    /// True if latencies differ so much from the present mode's ghost that measured models may be wrong.
    pub is_off: bool,
    /// Modes left out from now on, with the reasons.
    pub left_out: Vec<(usize, Error)>,
    /// Total processor time of all ghosts.
    pub processor: Duration,
}

impl Ghosts {
    /// Creates the ghosts. Each ghost takes a thread, with processor time measured by `clock`, and as much
    /// memory as the map and the policy of such a volume.
    pub fn new(like: &Like, modes: &[String], clock: Clock) -> Ghosts {
        let ghost = |mode: &String| Some(Ghost::new(setup(like, mode), need(like), clock));
        Ghosts {
            all: modes.iter().map(ghost).collect(),
            evidence: Evidence::of(modes.len()),
            is_measured: like.is_measured,
            begun_in: None,
            has_switched: false,
        }
    }

    /// Has all ghosts serve a batch, and waits for the results.
    pub fn serve(&mut self, batch: &Batch, present: usize) -> Verdict {
        self.all.iter().flatten().for_each(|ghost| ghost.give(batch));
        let (mut means, mut left_out, mut processor) = (Vec::new(), Vec::new(), Duration::ZERO);
        for (mode, place) in self.all.iter_mut().enumerate() {
            let served = place.as_ref().map(Ghost::served).transpose().unwrap_or_else(|error| {
                *place = None;
                left_out.push((mode, error));
                None
            });
            processor += served.as_ref().map(|served| served.processor).unwrap_or_default();
            means.push(served.and_then(|served| served.mean));
        }
        self.has_switched |= *self.begun_in.get_or_insert(present) != present;
        let off = off(batch.took, means[present]).filter(|off| self.is_measured && off.abs() > WRONG.ln());
        // After a switch a ghost is ahead of the volume, because the ghost has been in the new mode from the
        // beginning.
        let is_believed = off.is_none_or(|off| self.has_switched && off > 0.0);
        // Many requests give as much evidence in less time, and few requests no more in a long time.
        let time = batch.length.clamp(BATCH, BATCH * 2);
        let switch = is_believed.then(|| self.evidence.add(time, &means, present)).flatten();
        Verdict { means, switch, is_off: off.is_some(), left_out, processor }
    }
}

/// Logarithm of the factor by which requests took longer than in a ghost; `None` if either time is unknown.
fn off(took: Option<Nanos>, ghost: Option<f64>) -> Option<f64> {
    took.zip(ghost).map(|(took, ghost)| (took.0.max(1) as f64 / ghost).ln())
}

/// Factor from which on latencies are off.
const WRONG: f64 = 1.5;

/// Length of a batch.
pub const BATCH: Nanos = Nanos::from_secs(5);

fn setup(like: &Like, mode: &str) -> Setup {
    let one_in = like.scale.one_in() as usize;
    let device = |device: &LikeDevice| DeviceSetup {
        class: device.class,
        size: device.size,
        model: device.spec.name.to_string(),
        lower: false,
        write_cache: true,
        count: 1,
        nodes: None,
        group: None,
    };
    Setup {
        size: Some(like.scale.image(like.size)),
        extent_size: like.extent_size,
        block_size: like.block_size,
        cache_extents: like.cache_extents.div_ceil(one_in),
        readahead: like.readahead,
        ahead: like.ahead,
        prefill_ssd: Some(like.homes.on_ssd.clone()),
        seed: like.seed,
        ..Setup::new(like.devices.iter().map(device).collect(), mode.to_owned(), Load::Parts(Vec::new()))
    }
}

fn need(like: &Like) -> Need {
    let span = Some(like.scale.image(like.size));
    let specs = like.devices.iter().map(|device| device.spec.clone()).collect();
    Need { span, filled: Some(like.homes.filled.clone()), data: span, specs: Some(specs) }
}
