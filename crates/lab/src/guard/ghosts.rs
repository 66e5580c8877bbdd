//! A ghost for each mode, and what they say together.

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

/// A volume that ghosts are to be like.
#[derive(Clone)]
pub struct Like {
    /// What part of it they have.
    pub scale: Scale,
    /// Its own size.
    pub size: Bytes,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Extents in its memory cache.
    pub cache_extents: usize,
    /// When a read brings all of its extent into that.
    pub readahead: Readahead,
    /// Memory for what is read ahead of streams.
    pub ahead: Bytes,
    /// Its devices.
    pub devices: Vec<LikeDevice>,
    /// Whether models of devices were made from what these served, and may be wrong.
    pub is_measured: bool,
    /// What has homes, in ghosts' places.
    pub homes: Homes,
    /// Seed of the devices and the schedule.
    pub seed: u64,
}

/// A device of it.
#[derive(Clone)]
pub struct LikeDevice {
    /// SSD or disk.
    pub class: DeviceClass,
    /// Its timing.
    pub spec: Spec,
    /// Its size, in parts of the volume's or, for a whole volume, in bytes.
    pub size: Size,
}

/// What has homes, in order, by places of ghosts.
#[derive(Clone, Default)]
pub struct Homes {
    filled: Vec<Range<Bytes>>,
    on_ssd: Vec<Range<Bytes>>,
}

impl Homes {
    /// What follows has its home there.
    pub fn add(&mut self, range: Range<Bytes>, class: DeviceClass) {
        if class == DeviceClass::Ssd {
            join(&mut self.on_ssd, range.clone());
        }
        join(&mut self.filled, range);
    }
}

/// Neighbours become one range.
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
    /// Whether models may be wrong.
    is_measured: bool,
    /// The mode of the volume when they began.
    begun_in: Option<usize>,
    /// Whether it has been in another mode since.
    has_switched: bool,
}

/// What ghosts say of a batch.
pub struct Verdict {
    /// What requests would take on average in each mode, in nanoseconds; none if it is not known.
    pub means: Vec<Option<f64>>,
    /// The mode to switch to, if it is time.
    pub switch: Option<usize>,
    /// Whether requests took so much more or less than in the ghost of the present mode that measured models
    /// may be wrong.
    pub is_off: bool,
    /// Modes that are left out from now on, and why.
    pub left_out: Vec<(usize, Error)>,
    /// The processor time of all ghosts together.
    pub processor: Duration,
}

impl Ghosts {
    /// Each is a thread, whose processor time the clock tells, and as much memory as the map and the policy
    /// of such a volume.
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

    /// Has all ghosts serve a batch, and waits for them.
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
        // After a switch a ghost is ahead of the volume, for it has been in that mode all along.
        let is_believed = off.is_none_or(|off| self.has_switched && off > 0.0);
        // Many requests say as much in less time, and few no more in a long one.
        let time = batch.length.clamp(BATCH, BATCH * 2);
        let switch = is_believed.then(|| self.evidence.add(time, &means, present)).flatten();
        Verdict { means, switch, is_off: off.is_some(), left_out, processor }
    }
}

/// By what factor requests took longer than in a ghost, as a logarithm; none if one of them is not known.
fn off(took: Option<Nanos>, ghost: Option<f64>) -> Option<f64> {
    took.zip(ghost).map(|(took, ghost)| (took.0.max(1) as f64 / ghost).ln())
}

/// What requests take by a factor as large as this is off.
const WRONG: f64 = 1.5;

/// The time of a batch.
pub const BATCH: Nanos = Nanos::from_secs(5);

fn setup(like: &Like, mode: &str) -> Setup {
    let one_in = like.scale.one_in() as usize;
    let device = |device: &LikeDevice| DeviceSetup {
        class: device.class,
        size: device.size,
        model: device.spec.name.to_string(),
        lower: false,
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
