//! Epochs: one disk alone, with its journal, always is the volume as it was at a past instant without a write under way.
//!
//! ```text
//! mod.rs      what the disk lacks, and how a guest's change begins     journal.rs  segments on the disk: writing and applying them
//! turn.rs     the end of an epoch, step by step                        examine.rs  what the disk lacks after an opening
//! adopt.rs    opening the volume from that disk alone
//! ```
//!
//! The disk keeps addresses, so it is an image of the volume. What guests change is noted in the *open* set. An epoch ends when no change is
//! under way: the open set is *frozen*. Its bytes are read from the SSDs and go into the journal on the disk; a guest who is about to change
//! some of them has them read first. Once the journal has all of them, and that is durable, the epoch counts; then they are applied to the image, in the
//! order of their addresses, and only when that is durable the journal is used again. So at every instant the disk is either the image of one
//! epoch, or that and a whole journal of the next one.
//!
//! What the disk lacks in its place is also in [`crate::map::Behind`], as for every second copy, and with it in the journal of the volume: after a
//! crash the image of these spans is compared with the SSDs before the next epoch ends.

mod adopt;
mod examine;
mod journal;
mod turn;

pub(crate) use adopt::{adopt, state_of};

use crate::Result;
use crate::core::Core;
use crate::map::Ranges;
use crate::shape::Piece;
use braid_base::{Bytes, DeviceId};
use braid_format::epoch_journal::{LONGEST_SEGMENT, SEGMENTS, State, StatePage};
use braid_format::superblock::{Layout, RegionKind, Superblock};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Event, Runtime};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Memory for bytes between the SSDs and the journal. Whoever asks for some waits for the journal, and for nothing else.
const CAPTURED: Bytes = Bytes(16 << 20);

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

    /// What an epoch may hold, however its segments are filled: half of the room, since each has an index page for at least as many bytes.
    fn capacity(&self) -> Bytes {
        Bytes(self.len.saturating_sub(SEGMENTS + LONGEST_SEGMENT).0 / 2)
    }
}

/// How far the image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is no state of the volume: what it lacks is written in its place.
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
    /// What is in the journal, or on its way there.
    leaving: Ranges,
}

impl Lacks {
    /// All but what is unknown.
    fn known(&self) -> Bytes {
        self.open.total() + self.frozen.total() + self.leaving.total()
    }

    fn any(&self, range: &Range<Bytes>) -> bool {
        [&self.unknown, &self.open, &self.frozen, &self.leaving].iter().any(|set| set.intersects(range))
    }
}

/// The epochs of a volume.
pub(crate) struct Epochs {
    place: Place,
    /// Whether the policy wants them: changes are noted, and nothing but an epoch goes to the image.
    active: Cell<bool>,
    stage: Cell<Stage>,
    /// What the disk says of itself.
    disk: Cell<StatePage>,
    lacks: RefCell<Lacks>,
    /// Changes of guests that are under way, and bytes that these may add.
    changing: Cell<usize>,
    reserved: Cell<Bytes>,
    /// No change begins: an epoch is about to end.
    closed: Cell<bool>,
    /// Someone waits for the end of an epoch.
    wanted: Cell<bool>,
    /// Guests change more than the disk keeps up with, before it is a state of the volume: they wait for it.
    outrun: Cell<bool>,
    /// Epochs that were given up before they could end: what was read for one of these is no part of a later one.
    given_up: Cell<u64>,
    /// The last one could not end: the bound does not hold, and guests do not wait for it.
    troubled: Cell<bool>,
    captured: RefCell<Vec<Captured>>,
    arena: Arena,
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
            disk: Cell::new(StatePage { sequence: 0, epoch: 0, state: State::Void }),
            lacks: RefCell::default(),
            changing: Cell::new(0),
            reserved: Cell::new(Bytes::ZERO),
            closed: Cell::new(false),
            wanted: Cell::new(false),
            outrun: Cell::new(false),
            given_up: Cell::new(0),
            troubled: Cell::new(false),
            captured: RefCell::default(),
            arena: Arena::new(CAPTURED),
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
        (state != State::Void).then_some(epoch)
    }

    /// Whether a change of so many bytes may begin under this bound.
    fn has_room(&self, len: Bytes, bound: Bytes) -> bool {
        let (known, unknown) = (self.lacks.borrow().known(), self.lacks.borrow().unknown.total());
        let (known, most) = (known + self.reserved.get(), bound.min(self.place.capacity()));
        match self.stage.get() {
            _ if self.troubled.get() => true,
            Stage::Void => !self.outrun.get() || unknown <= most / 2,
            Stage::Compared | Stage::Noted => known == Bytes::ZERO || known + len <= most,
        }
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// The epochs, while they are kept.
    #[inline]
    pub fn active_epochs(&self) -> Option<&Epochs> {
        self.epochs.as_ref().filter(|epochs| epochs.active.get())
    }

    /// The longest change that begins as one: longer ones are cut.
    pub fn longest_change(&self) -> Bytes {
        let most = |epochs: &Epochs| (epochs.place.capacity() / 4).align_down(self.shape.extent_size);
        self.active_epochs().map_or(Bytes(u64::MAX), |epochs| most(epochs).max(self.shape.extent_size))
    }

    /// A guest is about to change so many bytes: waits until no epoch is about to end, and until the image would not lack more than it may. The change
    /// is under way until what this gives is dropped. None while no epochs are kept. The caller holds no lock.
    pub async fn begin_change(&self, len: Bytes) -> Option<Change<'_>> {
        let epochs = self.active_epochs()?;
        // Around it, blocks and parts that become valid count, too.
        let len = len + self.shape.part_size * 2;
        let may_begin = || {
            let bound = self.with_policy(|policy, view| policy.epoch_bound(view));
            if !epochs.active.get() || self.journal.commits.have_failed() {
                return Some(false);
            }
            let may = !epochs.closed.get() && epochs.has_room(len, bound);
            if !may {
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
        self.capture(epochs, range).await?;
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

    /// Reads what is frozen of a range of one extent, for the journal. The caller holds the extent's lock, alone or with the range's.
    async fn capture(self: &Rc<Self>, epochs: &Epochs, range: &Range<Bytes>) -> Result<()> {
        let mut at = range.start;
        while let Some(part) = epochs.next_of(|lacks| &lacks.frozen, &(at..range.end)) {
            let part = part.start..part.end.min(part.start + self.bounce_limit() / 2);
            let given_up = epochs.given_up.get();
            let bytes = self.image_bytes(&epochs.arena, &part).await?;
            if epochs.given_up.get() != given_up {
                return Ok(());
            }
            at = part.end;
            let mut lacks = epochs.lacks.borrow_mut();
            lacks.frozen.remove(part.clone());
            lacks.leaving.insert(part.clone());
            epochs.captured.borrow_mut().push(Captured { range: part, bytes });
            epochs.event.notify();
        }
        Ok(())
    }

    /// What a range of one extent holds; none for zeros that lie nowhere. The caller holds the extent's lock.
    async fn image_bytes(self: &Rc<Self>, arena: &Arena, range: &Range<Bytes>) -> Result<Option<Buf>> {
        let extent = self.shape.extent_of(range.start);
        let entry = self.state.borrow().map.get(extent);
        if entry.home == braid_format::SlotNumber::NONE {
            return Ok(None);
        }
        let start = self.shape.bytes_of(extent).start;
        let piece = Piece { extent, range: range.start - start..range.end - start };
        let bytes = self.buffer(arena, piece.len()).await?;
        self.read_copies(&piece, &bytes, Origin::Background).await?;
        Ok(Some(bytes))
    }
}

/// The first part of a set within a range.
fn next_within(set: &Ranges, range: &Range<Bytes>) -> Option<Range<Bytes>> {
    let next = set.next(range.start)?;
    (next.start < range.end).then(|| next.start..next.end.min(range.end))
}
