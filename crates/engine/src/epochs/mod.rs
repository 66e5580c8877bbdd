//! Epochs: the image disk alone, with its journal applied, always equals the volume at a past instant without
//! a write under way.
//!
//! ```text
//! mod.rs        ranges missing from the image
//! journal.rs    state pages and segments on the disk
//! change.rs     admission of a guest's change
//! index.rs      places of ranges in the journal
//! turn.rs       end of an epoch, step by step
//! numbered.rs   newest segment of each range
//! sweep.rs      journal to image while guests work
//! apply.rs      journal to image while guests are idle
//! examine.rs    comparison of the image after an opening
//! settle.rs     ranges of the image that become current
//! adopt.rs      opening from the disk alone
//! life.rs       beginning and end of epochs
//! recovered.rs  guests on a disk whose journal is applied
//! unapplied.rs  ranges not applied yet
//! in_place.rs   other jobs that write to the image
//! ```
//!
//! The disk uses layout *tail*: extent n lies in slot n, and the disk is an image of the volume. Ranges that
//! guests change are added to the *open* set. An epoch ends when no change is under way: the open set becomes
//! the *frozen* set. Frozen bytes are read from the SSDs and written to the journal on the disk, a ring of
//! segments. Before a guest changes a frozen range, Braid reads the old bytes to memory. The epoch counts
//! once all of its segments are durable in the journal. In the background, ranges of counting segments are
//! copied to the image, many together, in the order of addresses. Ring space is reused only after the image
//! has been flushed. At every instant the disk, with its journal applied, is the image of the newest epoch
//! that counts.
//!
//! Each range that is missing from the image is also in [`crate::map::Behind`], like the ranges of every
//! stale second copy, and is therefore named in the volume's journal. After a crash, these spans of the image
//! are compared with the SSDs before the next epoch ends.

mod adopt;
mod apply;
mod change;
mod examine;
mod in_place;
mod index;
mod journal;
mod life;
mod numbered;
mod recovered;
mod settle;
mod sweep;
mod turn;
mod unapplied;

pub use adopt::PastState;
pub(crate) use adopt::{Adopted, judge, or_recover, past_of};
pub(crate) use index::{Index, Lies, nowhere};
pub(crate) use recovered::damaged_extents;

use crate::Error;
use crate::core::Extents;
use crate::map::Ranges;
use braid_base::{Bytes, DeviceId};
use braid_format::Uuid;
use braid_format::epoch_journal::{LONGEST_SEGMENT, Run, SEGMENTS, State, StatePage};
use braid_format::superblock::{Layout, RegionKind, Superblock};
use braid_runtime::{Arena, Buf, Device, Event, Runtime};
use numbered::Numbered;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use unapplied::Unapplied;
pub(crate) use unapplied::Whole;

/// Memory for bytes between the SSDs and the journal, in bytes. Reads in the order of addresses have an arena
/// of this size, and reads for guests that are about to change frozen ranges have another. A task that waits
/// for this memory waits for the journal alone.
const CAPTURED: Bytes = Bytes(16 << 20);

/// Longest gap, in bytes, between two ranges of an epoch that is copied along with the ranges.
const FILLED: Bytes = Bytes(64 << 10);

/// Failed epochs in a row, a second apart, after which guests are no longer held to the bound. A short
/// failure may be over before.
const PATIENCE: u32 = 2;

/// Region of the journal of epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EpochRegion {
    /// The disk with the image.
    pub device: DeviceId,
    /// Pages of another volume do not count.
    volume: Uuid,
    /// The region, in bytes of the disk.
    pub offset: Bytes,
    pub len: Bytes,
}

impl EpochRegion {
    /// Returns the location of a volume's journal of epochs, or `None` if the volume has no such journal.
    pub fn of(superblock: &Superblock) -> Option<EpochRegion> {
        let region = superblock.region(RegionKind::EpochJournal, 0)?;
        let entry = &superblock.devices[region.device.index()];
        let is_image = entry.layout == Layout::Tail && entry.slots >= superblock.extents();
        let (device, volume) = (region.device, superblock.volume);
        is_image.then_some(EpochRegion { device, volume, offset: region.offset, len: region.len })
    }

    /// Start of the ring of segments, in bytes of the disk.
    fn ring_offset(&self) -> Bytes {
        self.offset + SEGMENTS
    }

    /// Length of the ring.
    fn ring(&self) -> Bytes {
        self.len.saturating_sub(SEGMENTS)
    }

    /// Bytes that an epoch may hold if the ring is empty, however its segments are filled.
    fn capacity(&self) -> Bytes {
        self.room_in(self.ring())
    }

    /// Bytes that an epoch may hold if `free` bytes of the ring are unused. Half of the ring is usable: in
    /// the worst case a segment holds no more bytes than its index page has. Up to one segment is wasted at
    /// the end of the ring, and two segments stay free to keep the ring from filling up.
    fn room_in(&self, free: Bytes) -> Bytes {
        Bytes(free.saturating_sub(LONGEST_SEGMENT * 3).0 / 2)
    }
}

/// State of the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The image is not a state of the volume: missing ranges are written in place.
    Void,
    /// The image is a state of the volume; a comparison is looking for missing ranges.
    Compared,
    /// The image is a state of the volume, and all missing ranges are known.
    Noted,
}

/// Bytes of an epoch on their way to the journal.
struct Captured {
    range: Range<Bytes>,
    /// `None` for zeros.
    bytes: Option<Buf>,
}

/// Ranges that the image lacks.
#[derive(Default)]
struct Lacks {
    /// Possibly missing, after an opening or a change of policy.
    unknown: Ranges,
    /// Changed by guests since the last epoch ended.
    open: Ranges,
    /// Changed before the last epoch ended, and not yet read for the journal.
    frozen: Ranges,
    /// Read, and on their way to the journal.
    leaving: Ranges,
    /// Bytes of gaps in `frozen` and `leaving` that are copied along.
    filled: Bytes,
    /// In segments that count, and not yet applied.
    journaled: Numbered,
}

impl Lacks {
    /// Known bytes that are in no epoch yet, gaps included.
    fn on_its_way(&self) -> Bytes {
        self.open.total() + self.frozen.total() + self.leaving.total()
    }

    /// Known bytes that are in no epoch yet.
    fn known(&self) -> Bytes {
        self.on_its_way().saturating_sub(self.filled)
    }

    /// Freezes short gaps between frozen ranges, too, and returns the gaps. The frozen set stays within
    /// `room`. The disk passes over a short gap faster than it seeks.
    fn fill_gaps(&mut self, room: Bytes) -> Vec<Range<Bytes>> {
        let mut gaps: Vec<Range<Bytes>> = self
            .frozen
            .iter()
            .zip(self.frozen.iter().skip(1))
            .map(|(one, other)| one.end..other.start)
            .filter(|gap| len(gap) <= FILLED)
            .collect();
        gaps.sort_unstable_by_key(|gap| (len(gap), gap.start));
        let mut room = room.saturating_sub(self.frozen.total());
        let mut fits = |gap: &Range<Bytes>| {
            let fits = len(gap) <= room;
            room = room.saturating_sub(len(gap));
            fits
        };
        let fitting = gaps.iter().take_while(|gap| fits(gap)).count();
        gaps.truncate(fitting);
        for gap in &gaps {
            self.filled += len(gap);
            self.frozen.insert(gap.clone());
        }
        gaps
    }

    fn any(&self, range: &Range<Bytes>) -> bool {
        let sets = [&self.unknown, &self.open, &self.frozen, &self.leaving];
        sets.iter().any(|set| set.intersects(range)) || self.journaled.intersects(range)
    }
}

/// The epochs of a volume.
pub(crate) struct Epochs {
    place: EpochRegion,
    /// True while epochs are kept: changes are recorded, and only epochs write to the image.
    active: Cell<bool>,
    stage: Cell<Stage>,
    /// Newest durable state page.
    disk: Cell<StatePage>,
    /// True while a state page is being written.
    updating: Cell<bool>,
    /// Ring offsets of the run's segments, and of the next segment.
    segments: RefCell<VecDeque<Bytes>>,
    next_segment: Cell<Bytes>,
    /// Address at which the sweep continues, and the epoch after which the sweep found no work.
    hand: Cell<Bytes>,
    swept: Cell<u64>,
    lacks: RefCell<Lacks>,
    /// Guest changes under way, and the bytes that these changes may add.
    changing: Cell<usize>,
    reserved: Cell<Bytes>,
    /// True while an epoch is about to end: no change begins.
    closed: Cell<bool>,
    /// True while an epoch is on its way to the journal.
    writing: Cell<bool>,
    /// True while a task writes to the image: one task at a time.
    applying: Cell<bool>,
    /// True if an epoch is to end soon, because a task waits or the last epoch failed.
    wanted: Cell<bool>,
    /// True if ranges that the image has still count as behind, until the next commit.
    unsettled: Cell<bool>,
    /// True if the last write of a state page failed: the disk may hold the old page or the new page.
    in_doubt: Cell<bool>,
    /// True if the home of an extent was found in the image although the image is a state of the volume.
    is_home: Cell<bool>,
    /// Jobs that write to the image in place and began before epochs did.
    in_place: Cell<usize>,
    /// Number of the last epoch that was frozen, and of the newest epoch that counts.
    frozen: Cell<u64>,
    counting: Cell<u64>,
    /// True if guests change more than the disk keeps up with while the image is void: guests wait for the
    /// disk.
    outrun: Cell<bool>,
    /// Number of abandoned epochs. Bytes that were read for an abandoned epoch are no part of a later epoch.
    given_up: Cell<u64>,
    /// Range that could not be read from the SSDs, with the error. No epoch ends until the range can be read.
    unreadable: RefCell<Option<(Range<Bytes>, Error)>>,
    /// Failed epochs in a row, and the error of the last failure.
    failures: Cell<u32>,
    failure: RefCell<Option<Error>>,
    /// While guests use a recovered disk: extents whose journaled bytes are not yet in place.
    unapplied: RefCell<Option<Rc<Unapplied>>>,
    captured: RefCell<Vec<Captured>>,
    arena: Arena,
    guests_arena: Arena,
    /// Notified when a condition changes that a task may wait for.
    event: Event,
}

impl Epochs {
    /// Returns the epochs of a volume, inactive; `None` if the volume has no journal of epochs.
    pub fn of(superblock: &Superblock) -> Option<Epochs> {
        Some(Epochs {
            place: EpochRegion::of(superblock)?,
            active: Cell::new(false),
            stage: Cell::new(Stage::Void),
            disk: Cell::new(StatePage::NOTHING),
            updating: Cell::new(false),
            segments: RefCell::default(),
            next_segment: Cell::new(Bytes::ZERO),
            hand: Cell::new(Bytes::ZERO),
            swept: Cell::new(u64::MAX),
            lacks: RefCell::default(),
            changing: Cell::new(0),
            reserved: Cell::new(Bytes::ZERO),
            closed: Cell::new(false),
            writing: Cell::new(false),
            applying: Cell::new(false),
            wanted: Cell::new(false),
            unsettled: Cell::new(false),
            in_doubt: Cell::new(false),
            is_home: Cell::new(false),
            in_place: Cell::new(0),
            frozen: Cell::new(0),
            counting: Cell::new(0),
            outrun: Cell::new(false),
            given_up: Cell::new(0),
            unreadable: RefCell::default(),
            failures: Cell::new(0),
            failure: RefCell::default(),
            unapplied: RefCell::default(),
            captured: RefCell::default(),
            arena: Arena::new(CAPTURED),
            guests_arena: Arena::new(CAPTURED),
            event: Event::default(),
        })
    }

    /// Returns the first part of a set within a range.
    fn next_of(&self, set: fn(&Lacks) -> &Ranges, range: &Range<Bytes>) -> Option<Range<Bytes>> {
        next_within(set(&self.lacks.borrow()), range)
    }

    /// The disk with the image.
    pub fn device(&self) -> DeviceId {
        self.place.device
    }

    /// Returns the newest epoch that counts on the disk, or `None` if the disk is no state of the volume, or
    /// is already recovered.
    pub fn newest(&self) -> Option<u64> {
        let StatePage { epoch, state, .. } = self.disk.get();
        matches!(state, State::Image | State::Adopting).then_some(epoch)
    }

    /// Bytes of guests' changes that a loss of the SSDs would cost.
    pub fn lag(&self) -> Bytes {
        let lacks = self.lacks.borrow();
        lacks.known() + lacks.unknown.total()
    }

    /// Returns the bytes of the journal that are used or requested, and the capacity. Both are in bytes that
    /// epochs may hold.
    pub fn journal(&self) -> (Bytes, Bytes) {
        let all = self.place.capacity();
        (all.saturating_sub(self.room()) + self.lacks.borrow().on_its_way(), all)
    }

    /// True if epochs cannot end: the bound does not hold, and guests do not wait.
    fn are_failing(&self) -> bool {
        self.failures.get() >= PATIENCE
    }

    /// Returns the error of the last failed epoch if epochs cannot end.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.borrow();
        failure.as_ref().filter(|_| self.are_failing()).map(Error::to_string)
    }

    /// True if the state page says that the disk is the volume at the end of an epoch.
    fn is_image(&self) -> bool {
        self.disk.get().state == State::Image
    }

    /// Bytes of the ring that the run occupies.
    fn used(&self) -> Bytes {
        let Run { at, segments, .. } = self.disk.get().run;
        let next = self.next_segment.get();
        match segments {
            0 => Bytes::ZERO,
            _ if next > at => next - at,
            _ => self.place.ring() - at + next,
        }
    }

    /// Number of the newest segment that counts.
    fn newest_segment(&self) -> u64 {
        let Run { first, segments, .. } = self.disk.get().run;
        (first + u64::from(segments)).saturating_sub(1)
    }

    /// Bytes that the next epoch may hold.
    fn room(&self) -> Bytes {
        self.place.room_in(self.place.ring() - self.used())
    }

    /// True if a change of `len` bytes may begin under this bound.
    fn has_room(&self, len: Bytes, bound: Bytes) -> bool {
        let lacks = self.lacks.borrow();
        let (unknown, reserved) = (lacks.unknown.total(), self.reserved.get());
        let (known, on_its_way) = (lacks.known() + reserved, lacks.on_its_way() + reserved);
        match self.stage.get() {
            _ if self.are_failing() => true,
            Stage::Void => !self.outrun.get() || unknown <= bound.min(self.place.capacity()) / 2,
            // If the image lacks nothing and the ring is empty, one change may exceed its share of the ring.
            _ if known == Bytes::ZERO && self.used() == Bytes::ZERO => true,
            Stage::Compared | Stage::Noted => {
                // Ranges that the comparison still finds have to fit into the same epoch. When the volume was
                // last used, the image lacked no more than the bound.
                let to_be_found = unknown.min(bound);
                (known == Bytes::ZERO || known + len <= bound)
                    && on_its_way + len + to_be_found <= self.room()
            }
        }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Returns the epochs while epochs are kept.
    #[inline]
    pub fn active_epochs(&self) -> Option<&Epochs> {
        self.epochs.as_ref().filter(|epochs| epochs.active.get())
    }
}

fn len(range: &Range<Bytes>) -> Bytes {
    range.end - range.start
}

/// Returns the first part of a set within a range.
fn next_within(set: &Ranges, range: &Range<Bytes>) -> Option<Range<Bytes>> {
    let next = set.next(range.start)?;
    (next.start < range.end).then(|| next.start..next.end.min(range.end))
}
