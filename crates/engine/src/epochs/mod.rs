//! Epochs: one disk alone, with its journal, always is the volume as it was at a past instant without a write
//! under way.
//!
//! ```text
//! mod.rs       what the disk lacks                                      journal.rs   what lies on the disk: its state, and segments
//! change.rs    how a guest's change begins
//! turn.rs      the end of an epoch, step by step                       sweep.rs     from the journal into the image, while guests work
//! examine.rs   what the disk lacks after an opening                    apply.rs     the same while nobody does
//! adopt.rs     opening the volume from that disk alone                 past.rs      the same for readers, with nothing changed
//! recovered.rs guests go on from there while the journal is applied    unapplied.rs what is still to be applied
//! life.rs      how they begin and end                                  settle.rs    what the image lacks is behind, and nothing else
//! numbered.rs  which segment is the newest one of a range              index.rs     where in the journal it lies
//! in_place.rs  what other jobs write there before they begin
//! ```
//!
//! The disk keeps addresses, so it is an image of the volume. What guests change is noted in the *open* set.
//! An epoch ends when no change is under way: the open set is *frozen*. Its bytes are read from the SSDs and
//! go into the journal on the disk, a ring of segments; a guest who is about to change some of them has them
//! read first. Once the journal has all of them, and that is durable, the epoch counts. Segments that count
//! are applied to the image in the background, many of them together in the order of their addresses, and
//! only when that is durable their room is used again. So at every instant the disk is the image of the
//! newest epoch once its journal has been applied to it.
//!
//! What the disk lacks in its place is also in [`crate::map::Behind`], as for every second copy, and with it
//! in the journal of the volume: after a crash the image of these spans is compared with the SSDs before the
//! next epoch ends.

mod adopt;
mod apply;
mod change;
mod examine;
mod in_place;
mod index;
mod journal;
mod life;
mod numbered;
mod past;
mod recovered;
mod settle;
mod sweep;
mod turn;
mod unapplied;

pub use adopt::PastState;
pub(crate) use adopt::{Adopted, judge, or_recover};
pub use past::Past;
pub(crate) use recovered::damaged_extents;

use crate::Error;
use crate::core::Core;
use crate::map::Ranges;
use braid_base::{Bytes, DeviceId};
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

/// Memory for bytes between the SSDs and the journal: so much for what is read in the order of addresses, and
/// as much for what guests are about to change. Whoever asks for some waits for the journal, and for nothing
/// else.
const CAPTURED: Bytes = Bytes(16 << 20);

/// The longest gap between two ranges of an epoch that is copied with them.
const FILLED: Bytes = Bytes(64 << 10);

/// Guests are held to the bound until an epoch could not end so many times in a row, a second apart: what
/// fails may be over by then.
const PATIENCE: u32 = 2;

/// Where a volume has a journal of epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The disk that is the image.
    pub device: DeviceId,
    /// The region, as bytes of that disk.
    pub offset: Bytes,
    pub len: Bytes,
}

impl Place {
    /// That of a volume; none if it has none.
    pub fn of(superblock: &Superblock) -> Option<Place> {
        let region = superblock.region(RegionKind::EpochJournal, 0)?;
        let entry = &superblock.devices[region.device.index()];
        let is_image = entry.layout == Layout::Tail && entry.slots >= superblock.extents();
        is_image.then_some(Place { device: region.device, offset: region.offset, len: region.len })
    }

    /// The ring of segments, as bytes of the disk.
    fn ring_offset(&self) -> Bytes {
        self.offset + SEGMENTS
    }

    /// Its length.
    fn ring(&self) -> Bytes {
        self.len.saturating_sub(SEGMENTS)
    }

    /// What an epoch may hold, however its segments are filled.
    fn capacity(&self) -> Bytes {
        self.room_in(self.ring())
    }

    /// What an epoch may hold that gets so much of the ring: half of it, since each segment has an index page
    /// for at least as many bytes, without what may be lost at the end of the ring, and two segments so that
    /// it is never full.
    fn room_in(&self, free: Bytes) -> Bytes {
        Bytes(free.saturating_sub(LONGEST_SEGMENT * 3).0 / 2)
    }
}

/// How far the image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is not a state of the volume: what it lacks is written in its place.
    Void,
    /// It is one, and what it lacks is being found out.
    Compared,
    /// It is one, and all that it lacks is noted.
    Noted,
}

/// Bytes of an epoch on their way to the journal.
struct Captured {
    range: Range<Bytes>,
    /// None for zeros.
    bytes: Option<Buf>,
}

/// What the image lacks.
#[derive(Default)]
struct Lacks {
    /// May be, after an opening or a change of policy.
    unknown: Ranges,
    /// What guests changed since the last epoch ended.
    open: Ranges,
    /// What they changed before, and the journal does not have yet.
    frozen: Ranges,
    /// What is on its way there.
    leaving: Ranges,
    /// Of both, the gaps that go along.
    filled: Bytes,
    /// What is there, and counts, and has not been applied.
    journaled: Numbered,
}

impl Lacks {
    /// What no epoch has so far, as far as known, and what goes along with it.
    fn on_its_way(&self) -> Bytes {
        self.open.total() + self.frozen.total() + self.leaving.total()
    }

    /// What no epoch has so far, as far as known.
    fn known(&self) -> Bytes {
        self.on_its_way().saturating_sub(self.filled)
    }

    /// Freezes short gaps between frozen ranges, too, as far as there is room for them: the disk passes over
    /// them in less time than it takes to position anew. Gives these.
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
    place: Place,
    /// Whether the policy wants them: changes are noted, and nothing but an epoch goes to the image.
    active: Cell<bool>,
    stage: Cell<Stage>,
    /// What the disk says of itself, durably.
    disk: Cell<StatePage>,
    /// That is being changed.
    updating: Cell<bool>,
    /// Where the segments of the run lie in the ring, and where the next one will.
    segments: RefCell<VecDeque<Bytes>>,
    next_segment: Cell<Bytes>,
    /// Where the sweep goes on, and the epoch since which it found nothing to do.
    hand: Cell<Bytes>,
    swept: Cell<u64>,
    lacks: RefCell<Lacks>,
    /// Changes of guests that are under way, and bytes that these may add.
    changing: Cell<usize>,
    reserved: Cell<Bytes>,
    /// No change begins: an epoch is about to end.
    closed: Cell<bool>,
    /// An epoch is on its way to the journal.
    writing: Cell<bool>,
    /// Segments are being applied.
    applying: Cell<bool>,
    /// Someone waits for the end of an epoch.
    wanted: Cell<bool>,
    /// What the image has counts as behind all the same until the next commit.
    unsettled: Cell<bool>,
    /// The disk may say something else than what it said last, since that could not be written.
    in_doubt: Cell<bool>,
    /// The home of an extent was found in the image, though it is a state of the volume.
    is_home: Cell<bool>,
    /// Jobs that write to the image in its place, and began before epochs did.
    in_place: Cell<usize>,
    /// Epochs that were begun to be written, and the newest of these that counts.
    frozen: Cell<u64>,
    counting: Cell<u64>,
    /// Guests change more than the disk keeps up with, before it is a state of the volume: they wait for it.
    outrun: Cell<bool>,
    /// Epochs that were given up before they could end: what was read for one of these is no part of a later
    /// one.
    given_up: Cell<u64>,
    /// What the SSDs did not give for an epoch, and why: it cannot end before they do.
    unreadable: RefCell<Option<(Range<Bytes>, Error)>>,
    /// How often in a row none could end, and why the last one could not.
    failures: Cell<u32>,
    failure: RefCell<Option<Error>>,
    /// While guests go on with a disk that was recovered, what is to be applied of its journal.
    unapplied: RefCell<Option<Rc<Unapplied>>>,
    captured: RefCell<Vec<Captured>>,
    arena: Arena,
    guests_arena: Arena,
    /// Whatever others wait for has changed.
    event: Event,
}

impl Epochs {
    /// Those of a volume that has a journal for them, none of which has begun.
    pub fn of(superblock: &Superblock) -> Option<Epochs> {
        Some(Epochs {
            place: Place::of(superblock)?,
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

    /// The first part of a set within a range.
    fn next_of(&self, set: fn(&Lacks) -> &Ranges, range: &Range<Bytes>) -> Option<Range<Bytes>> {
        next_within(set(&self.lacks.borrow()), range)
    }

    /// The disk that is the image.
    pub fn device(&self) -> DeviceId {
        self.place.device
    }

    /// The newest epoch that the disk is, if it is one.
    pub fn newest(&self) -> Option<u64> {
        let StatePage { epoch, state, .. } = self.disk.get();
        matches!(state, State::Image | State::Adopting).then_some(epoch)
    }

    /// What a loss of the SSDs would cost.
    pub fn lag(&self) -> Bytes {
        let lacks = self.lacks.borrow();
        lacks.known() + lacks.unknown.total()
    }

    /// How much of the journal is in use or asked for, and how much there is, as bytes that epochs may hold.
    pub fn journal(&self) -> (Bytes, Bytes) {
        let all = self.place.capacity();
        (all.saturating_sub(self.room()) + self.lacks.borrow().on_its_way(), all)
    }

    /// Whether epochs cannot end: the bound does not hold, and guests do not wait for it any more.
    fn are_failing(&self) -> bool {
        self.failures.get() >= PATIENCE
    }

    /// Why they cannot, if that is so.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.borrow();
        failure.as_ref().filter(|_| self.are_failing()).map(Error::to_string)
    }

    /// Whether the disk says that it is the volume at the end of an epoch.
    fn is_image(&self) -> bool {
        self.disk.get().state == State::Image
    }

    /// The bytes of the ring that the run takes.
    fn used(&self) -> Bytes {
        let Run { at, segments, .. } = self.disk.get().run;
        let next = self.next_segment.get();
        match segments {
            0 => Bytes::ZERO,
            _ if next > at => next - at,
            _ => self.place.ring() - at + next,
        }
    }

    /// The number of the last segment that counts.
    fn newest_segment(&self) -> u64 {
        let Run { first, segments, .. } = self.disk.get().run;
        (first + u64::from(segments)).saturating_sub(1)
    }

    /// What the next epoch may hold.
    fn room(&self) -> Bytes {
        self.place.room_in(self.place.ring() - self.used())
    }

    /// Whether a change of so many bytes may begin under this bound.
    fn has_room(&self, len: Bytes, bound: Bytes) -> bool {
        let lacks = self.lacks.borrow();
        let (unknown, reserved) = (lacks.unknown.total(), self.reserved.get());
        let (known, on_its_way) = (lacks.known() + reserved, lacks.on_its_way() + reserved);
        match self.stage.get() {
            _ if self.are_failing() => true,
            Stage::Void => !self.outrun.get() || unknown <= bound.min(self.place.capacity()) / 2,
            // Of an empty ring one change may want more than its share.
            _ if known == Bytes::ZERO && self.used() == Bytes::ZERO => true,
            Stage::Compared | Stage::Noted => {
                // What the comparison still finds has to go into the same epoch: all that the image lacked
                // within the bound when the volume was used last.
                let to_be_found = unknown.min(bound);
                (known == Bytes::ZERO || known + len <= bound)
                    && on_its_way + len + to_be_found <= self.room()
            }
        }
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// The epochs, while they are kept.
    #[inline]
    pub fn active_epochs(&self) -> Option<&Epochs> {
        self.epochs.as_ref().filter(|epochs| epochs.active.get())
    }
}

fn len(range: &Range<Bytes>) -> Bytes {
    range.end - range.start
}

/// The first part of a set within a range.
fn next_within(set: &Ranges, range: &Range<Bytes>) -> Option<Range<Bytes>> {
    let next = set.next(range.start)?;
    (next.start < range.end).then(|| next.start..next.end.min(range.end))
}
