//! Epochs: one disk alone, with its journal, always is the volume as it was at a past instant without a write under way.
//!
//! ```text
//! mod.rs       what the disk lacks, and how a guest's change begins    journal.rs   what lies on the disk: its state, and segments
//! turn.rs      the end of an epoch, step by step                       sweep.rs     from the journal into the image, while guests work
//! examine.rs   what the disk lacks after an opening                    apply.rs     the same while nobody does
//! adopt.rs     opening the volume from that disk alone                 past.rs      the same for readers, with nothing changed
//! recovered.rs guests go on from there while the journal is applied    unapplied.rs what is still to be applied
//! life.rs      how they begin and end                                  settle.rs    what the image lacks is behind, and nothing else
//! numbered.rs  which segment is the newest one of a range              index.rs     where in the journal it lies
//! ```
//!
//! The disk keeps addresses, so it is an image of the volume. What guests change is noted in the *open* set. An epoch ends when no change is
//! under way: the open set is *frozen*. Its bytes are read from the SSDs and go into the journal on the disk, a ring of segments; a guest who is about to
//! change some of them has them read first. Once the journal has all of them, and that is durable, the epoch counts. Segments that count are
//! applied to the image in the background, many of them together in the order of their addresses, and only when that is durable their room is used again. So at
//! every instant the disk is the image of the newest epoch once its journal has been applied to it.
//!
//! What the disk lacks in its place is also in [`crate::map::Behind`], as for every second copy, and with it in the journal of the volume: after a
//! crash the image of these spans is compared with the SSDs before the next epoch ends.

mod adopt;
mod apply;
mod examine;
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

use crate::core::Core;
use crate::map::Ranges;
use crate::planted::{Bug, planted};
use crate::shape::Piece;
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId};
use braid_format::epoch_journal::{LONGEST_SEGMENT, Run, SEGMENTS, State, StatePage};
use braid_format::superblock::{Layout, RegionKind, Superblock};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Event, Runtime};
use numbered::Numbered;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use unapplied::Unapplied;
pub(crate) use unapplied::Whole;

/// Memory for bytes between the SSDs and the journal: so much for what is read in the order of addresses, and as much for what guests are about to
/// change. Whoever asks for some waits for the journal, and for nothing else.
const CAPTURED: Bytes = Bytes(16 << 20);

/// The longest gap between two ranges of an epoch that is copied with them.
const FILLED: Bytes = Bytes(64 << 10);

/// Guests are held to the bound until an epoch could not end so many times in a row, a second apart: what fails may be over by then.
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

    /// What an epoch may hold that gets so much of the ring: half of it, since each segment has an index page for at least as many bytes, without what may be
    /// lost at the end of the ring, and two segments so that it is never full.
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

    /// Freezes short gaps between frozen ranges, too, as far as there is room for them: the disk passes over them in less time than it takes to position anew.
    /// Gives these.
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
    /// Epochs that were begun to be written, and the newest of these that counts.
    frozen: Cell<u64>,
    counting: Cell<u64>,
    /// Guests change more than the disk keeps up with, before it is a state of the volume: they wait for it.
    outrun: Cell<bool>,
    /// Epochs that were given up before they could end: what was read for one of these is no part of a later one.
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

/// A change of a guest that is under way.
pub(crate) struct Change<'a> {
    epochs: &'a Epochs,
    reserved: Bytes,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let Epochs { changing, reserved, event, .. } = self.epochs;
        changing.set(changing.get() - 1);
        reserved.set(reserved.get() - self.reserved);
        event.notify();
    }
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
                (known == Bytes::ZERO || known + len <= bound) && on_its_way + len <= self.room()
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

    /// The longest change that begins as one: longer ones are cut, but not below an extent. Where nothing is lacking one begins whatever the bound is, so
    /// with what it changes around it, it must fit into that alone.
    pub fn longest_change(&self) -> Bytes {
        let Some(epochs) = self.active_epochs() else { return Bytes(u64::MAX) };
        let bound = self.with_policy(|policy, view| policy.longest_change(view));
        let most = (epochs.place.capacity() / 4).min(bound.saturating_sub(self.around_change()));
        most.align_down(self.shape.extent_size).max(self.shape.extent_size)
    }

    /// What a change may change around it: blocks and parts that become valid.
    fn around_change(&self) -> Bytes {
        self.shape.part_size * 2
    }

    /// A guest is about to change so many bytes: waits until no epoch is about to end, and until the image would not lack more than it may. The change
    /// is under way until what this gives is dropped. None while no epochs are kept. The caller holds no lock.
    pub async fn begin_change(&self, len: Bytes) -> Option<Change<'_>> {
        let epochs = self.active_epochs()?;
        let len = len + self.around_change();
        let may_begin = || {
            let bound = self.with_policy(|policy, view| policy.epoch_bound(view));
            if !epochs.active.get() || self.journal.commits.have_failed() {
                return Some(false);
            }
            let may = !epochs.closed.get() && epochs.has_room(len, bound);
            // Where nothing is left that an epoch could take, there will be room once the journal has been applied.
            if !may && epochs.lacks.borrow().known() > Bytes::ZERO {
                epochs.wanted.set(true);
                self.jobs.wake();
            }
            may.then_some(true)
        };
        if !epochs.event.wait_for(may_begin).await {
            return None;
        }
        epochs.changing.set(epochs.changing.get() + 1);
        epochs.reserved.set(epochs.reserved.get() + len);
        Some(Change { epochs, reserved: len })
    }

    /// A range of the volume, in whole blocks of one extent, is about to change: what the journal still lacks of it is read first. The caller holds
    /// the extent's lock, alone or with the range's.
    pub async fn note_change(self: &Rc<Self>, range: &Range<Bytes>) -> Result<()> {
        let Some(epochs) = self.active_epochs() else { return Ok(()) };
        if !planted(Bug::EpochReadsLater) {
            self.capture(epochs, range, None).await;
        }
        if self.journal.commits.have_failed() {
            // No epoch ends any more.
            return Ok(());
        }
        let mut lacks = epochs.lacks.borrow_mut();
        match epochs.stage.get() {
            // It is examined once more.
            Stage::Void => lacks.unknown.insert(range.clone()),
            Stage::Compared | Stage::Noted => {
                lacks.unknown.remove(range.clone());
                lacks.open.insert(range.clone());
            }
        }
        Ok(())
    }

    /// Reads what is frozen of a range of one extent, for the journal: into memory for all of it that someone has taken before the lock, or else into what guests
    /// may take. If that fails the epoch is given up, and a guest goes on: its bytes may be what makes the place good again. The caller holds the extent's
    /// lock, alone or with the range's.
    async fn capture(self: &Rc<Self>, epochs: &Epochs, range: &Range<Bytes>, memory: Option<&Buf>) {
        let mut at = range.start;
        while let Some(part) = epochs.next_of(|lacks| &lacks.frozen, &(at..range.end)) {
            let part = part.start..part.end.min(part.start + self.bounce_limit() / 2);
            let given_up = epochs.given_up.get();
            let read = async {
                let bytes = match memory {
                    Some(memory) => memory.slice(part.start - range.start..part.end - range.start),
                    None => self.buffer(&epochs.guests_arena, len(&part)).await?,
                };
                let lies = self.read_image_bytes(&part, &bytes).await?;
                Ok(lies.then_some(bytes))
            };
            let read: Result<Option<Buf>> = read.await;
            if epochs.given_up.get() != given_up {
                return;
            }
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(error) => {
                    epochs.unreadable.replace(Some((part, error)));
                    epochs.event.notify();
                    return;
                }
            };
            at = part.end;
            let mut lacks = epochs.lacks.borrow_mut();
            lacks.frozen.remove(part.clone());
            lacks.leaving.insert(part.clone());
            epochs.captured.borrow_mut().push(Captured { range: part, bytes });
            epochs.event.notify();
        }
    }

    /// Reads what a range of one extent holds, for the image. False, and zeros, if it lies nowhere. The caller holds the extent's lock.
    async fn read_image_bytes(self: &Rc<Self>, range: &Range<Bytes>, into: &Buf) -> Result<bool> {
        let extent = self.shape.extent_of(range.start);
        let entry = self.state.borrow().map.get(extent);
        if entry.home == braid_format::SlotNumber::NONE {
            into.fill_zero();
            return Ok(false);
        }
        let start = self.shape.bytes_of(extent).start;
        let piece = Piece { extent, range: range.start - start..range.end - start };
        self.read_copies(&piece, into, Origin::Background).await?;
        // A flush that fails may have lost this before it was read: its device must not be given up for what the image has then.
        self.note_source(extent, entry.home);
        Ok(true)
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
