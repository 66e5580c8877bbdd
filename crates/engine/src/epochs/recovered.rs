//! The SSDs are gone, and guests go on with the disk at once: what its journal has is applied while they
//! work.
//!
//! Reads look a range up in the index of the journal. Before a guest changes an extent of which the journal
//! has something, all of that is written to its place and flushed, and the disk says so, durably: an opening
//! applies it no more, so what the guest writes is safe from older bytes, whenever the power fails. One job
//! does that, for all guests that wait together, and else in the order of addresses. The segments stay as
//! they are until nothing of them is needed any more; so long nothing else is moved or resynchronised, and no
//! epochs are kept.
//!
//! What the journal cannot give costs its own ranges, which read as errors, and no part of their extents can
//! be changed: but all of an extent can be. The guest's bytes are applied then like those of the journal, in
//! its place and flushed before the bit, so that no older bytes show in between.

use super::apply::{Part, write_parts};
use super::index::{Index, Lies, nowhere};
use super::journal::{applied_of, state_of};
use super::turn::REST;
use super::unapplied::{Most, Pieces, Unapplied, Wait, Whole};
use super::{Adopted, Epochs, Place};
use crate::copies::{Deadline, Member};
use crate::core::Core;
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::{Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_format::epoch_journal::{LONGEST_SEGMENT, PAGE, State, StatePage};
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Superblock};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Mode as Lock, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// About so much is applied between two flushes: while guests use the disk, one of them may wait for that; …
const WHILE_USED: Most = Most { ranges: 32, bytes: Bytes(8 << 20) };
/// … and while they do not: a disk takes half a second for that, for which a guest that comes back may wait,
/// or the end of the daemon.
const WHILE_IDLE: Most = Most { ranges: 128, bytes: Bytes(32 << 20) };
/// The longest piece of a range that is read at once, …
const LONGEST_PIECE: Bytes = Bytes(128 << 10);
/// … and how many of these are in memory together.
const PIECES: usize = 128;
/// What lies between two pieces in the journal is read with them if it is no longer: an index page, and some
/// more.
const PASSED: Bytes = Bytes(2 * PAGE.0);
/// Extents that a repair gives up in one batch.
const GIVEN_UP_AT_ONCE: usize = 64;

impl<R: Runtime, D: Device> Volume<R, D> {
    /// Waits until all that the journal of a disk that was recovered had is in its place, where other
    /// programs find it too; returns at once if no recovery is under way.
    ///
    /// # Errors
    /// Why something could not be written there: it is tried again.
    pub async fn complete_recovery(&self) -> Result<()> {
        self.core.complete_recovery().await
    }
}

/// Extents of a volume that is being recovered of which something is nowhere any more, but for those that are
/// `lost` already: a repair gives them up.
///
/// # Errors
/// Why that cannot be said; then the volume cannot be opened.
pub(crate) async fn damaged_extents<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    shape: &Shape,
    lost: &[ExtentId],
) -> Result<Vec<ExtentId>> {
    let is_recovering = superblock.features.incompat & Features::UNAPPLIED != 0;
    let place =
        Place::of(superblock).filter(|place| is_recovering && members[place.device.index()].is_current());
    let Some(place) = place else { return Ok(Vec::new()) };
    let member = &members[place.device.index()];
    let page = state_of(member, &place, superblock).await?;
    if page.state != State::Recovered {
        return Ok(Vec::new());
    }
    let (from, end) = ((&place, superblock.volume), shape.extent_size * u64::from(shape.extents()));
    let index = Index::read(member, from, page.run, end).await?;
    let applied = applied_of(member, &place, superblock.volume).await?;
    Ok(Unapplied::new(index, shape.extent_size, &applied, |extent| lost.contains(&extent)).damaged_extents())
}

impl Epochs {
    pub(super) fn unapplied(&self) -> Option<Rc<Unapplied>> {
        self.unapplied.borrow().clone()
    }

    /// How much of the volume is in the journal of a disk that was recovered, and not in its place yet; and
    /// why that could not be changed last, or cannot be any more. None if no recovery is under way.
    pub fn recovery(&self) -> Option<(Bytes, Option<String>)> {
        let unapplied = self.unapplied()?;
        let failure = unapplied.failure().or_else(|| unapplied.damage());
        Some((unapplied.left(), failure.map(|error| error.to_string())))
    }

    /// Ranges of the volume that were in that journal, and are nowhere any more.
    pub fn damaged(&self) -> Vec<Range<Bytes>> {
        self.unapplied().map_or_else(Vec::new, |unapplied| unapplied.damaged_ranges())
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Goes on with a disk that has become the volume, in this opening or in an earlier one, if `page` says
    /// so. Whether it does.
    pub(super) async fn open_recovered(
        &self,
        epochs: &Epochs,
        page: StatePage,
        (adopted, repair): (Option<Adopted>, bool),
    ) -> Result<bool> {
        let (member, volume) = (self.member(epochs.device()), self.devices.superblock().volume);
        let applied = match (page.state, &adopted) {
            // The map is written.
            (State::Adopting, Some(_)) => {
                self.set_disk(epochs, |page| StatePage { state: State::Recovered, ..page }).await?;
                Vec::new()
            }
            (State::Recovered, _) if member.is_current() && !member.lacks_all() => {
                applied_of(member, &epochs.place, volume).await?
            }
            _ => return Ok(false),
        };
        let index = match adopted {
            Some(adopted) => adopted.index,
            None => Index::read(member, (&epochs.place, volume), page.run, self.image_len()).await?,
        };
        let with = |index| {
            let lost = self.state.borrow().map.lost();
            Unapplied::new(index, self.shape.extent_size, &applied, |extent| lost.contains(&extent))
        };
        let mut unapplied = with(index);
        if repair {
            self.give_extents_up(&unapplied.damaged_extents()).await?;
            unapplied = with(unapplied.index);
        }
        tracing::info!(left = %unapplied.left(), "the journal of epochs is applied in the background");
        epochs.unapplied.replace(Some(Rc::new(unapplied)));
        // The power may have failed between one page and the other.
        self.set_disk(epochs, |page| page).await?;
        Ok(true)
    }

    /// A repair gives up what is nowhere any more, with the rest of its extents: durable when this returns.
    async fn give_extents_up(&self, extents: &[ExtentId]) -> Result<()> {
        for some in extents.chunks(GIVEN_UP_AT_ONCE) {
            for &extent in some {
                let _room = self.reserve(1).await?;
                let mut state = self.state.borrow_mut();
                let entry = state.map.get(extent);
                state.set_extent(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
                let slots = [entry.home, entry.second].into_iter().filter(|&slot| slot != SlotNumber::NONE);
                slots.for_each(|slot| state.retire(slot));
            }
            self.commit(Origin::Background).await?;
            if !self.journal.has_room() {
                self.checkpoint().await?;
            }
        }
        Ok(())
    }

    fn unapplied(&self) -> Option<Rc<Unapplied>> {
        self.epochs.as_ref().and_then(Epochs::unapplied)
    }

    /// Whether a recovery is under way.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.epochs.as_ref().is_some_and(|epochs| epochs.unapplied.borrow().is_some())
    }

    /// Whether the journal may have newer bytes of an extent than there are in its place.
    #[inline]
    pub fn is_unapplied(&self, extent: ExtentId) -> bool {
        self.is_recovering() && self.unapplied().is_some_and(|unapplied| unapplied.bit_of(extent).is_some())
    }

    /// Reads from a place on a device, wherever the newest bytes of it lie. The caller holds the extent's
    /// lock.
    pub async fn read_applied(
        &self,
        member: &Member<D>,
        at: Bytes,
        into: &Buf,
        (origin, deadline): (Origin, Deadline),
    ) -> Result<()> {
        let is_image = |unapplied: &Rc<Unapplied>| {
            let is_it = self.epochs.as_ref().is_some_and(|epochs| epochs.device() == member.id);
            is_it && unapplied.bit_of(self.shape.extent_of(at - member.entry.slots_offset)).is_some()
        };
        let Some(unapplied) = self.unapplied().filter(is_image) else {
            return self.read_place(member, at, into, (origin, deadline)).await;
        };
        let start = at - member.entry.slots_offset;
        let range = start..start + into.len();
        let mut at = range.start;
        while at < range.end {
            let (end, lies) = unapplied.index.locate(&(at..range.end));
            let part = into.slice(at - range.start..end - range.start);
            match lies {
                Lies::Zeros => part.fill_zero(),
                Lies::Damaged => return Err(nowhere(&(at..end))),
                Lies::InJournal(place) => self.read_place(member, place, &part, (origin, deadline)).await?,
                Lies::InPlace => {
                    let place = member.entry.slots_offset + at;
                    self.read_place(member, place, &part, (origin, deadline)).await?;
                }
            }
            at = end;
        }
        Ok(())
    }

    /// A guest is about to change an extent, or to write all of it: waits until nothing of the journal will
    /// be applied to it any more. The caller holds no lock.
    ///
    /// # Errors
    /// Why that could not be done: then the extent must stay as it is.
    pub async fn wait_until_applied(&self, extent: ExtentId, whole: Option<Whole>) -> Result<()> {
        let (Some(epochs), Some(unapplied)) = (&self.epochs, self.unapplied()) else { return Ok(()) };
        let Some(bit) = unapplied.bit_of(extent) else { return Ok(()) };
        if planted(Bug::JournalOverGuests) {
            return Ok(());
        }
        match (self.wait_for_bit(epochs, &unapplied, bit).await, whole) {
            (Err(error), Some(whole)) => {
                self.apply_whole(epochs, &unapplied, (extent, bit), &whole, error).await
            }
            (applied, _) => applied,
        }
    }

    async fn wait_for_bit(&self, epochs: &Epochs, unapplied: &Unapplied, bit: usize) -> Result<()> {
        if !unapplied.is_blocked(bit) && !self.jobs.are_ending() {
            unapplied.want(bit);
            self.jobs.wake();
        }
        let over = || match unapplied.wait(bit) {
            Wait::Over => Some(Ok(())),
            Wait::Failed(error) => Some(Err(error)),
            Wait::Pending => None,
        };
        epochs.event.wait_for(over).await
    }

    /// What the journal has of an extent cannot be applied, for this reason: what a guest is about to write
    /// over all of it is, instead.
    async fn apply_whole(
        &self,
        epochs: &Epochs,
        unapplied: &Unapplied,
        (extent, bit): (ExtentId, usize),
        whole: &Whole,
        error: Error,
    ) -> Result<()> {
        let mut applied = Err(error);
        // What is being applied just now was begun without it.
        for _ in 0..2 {
            if applied.is_err() {
                unapplied.write_whole(extent, whole);
                applied = self.wait_for_bit(epochs, unapplied, bit).await;
            }
        }
        unapplied.end_whole(extent);
        epochs.event.notify();
        if applied.is_err() {
            // What the disk holds of it now is unknown; the next read must ask it.
            let _guard = self.locks.lock(Self::lock_number(extent), Lock::Exclusive).await;
            self.guests.cache.borrow_mut().remove(extent);
        }
        applied
    }

    /// Waits until a recovery has ended, or the volume closes.
    pub async fn wait_until_recovered(&self) {
        self.jobs.wait_for(|| (!self.is_recovering() || self.jobs.are_ending()).then_some(())).await;
    }

    async fn complete_recovery(&self) -> Result<()> {
        let (Some(epochs), Some(unapplied)) = (&self.epochs, self.unapplied()) else { return Ok(()) };
        let over = || match unapplied.failure() {
            _ if !self.is_recovering() => Some(Ok(())),
            None if unapplied.is_stuck() => unapplied.damage().map(Err),
            failure => failure.map(Err),
        };
        epochs.event.wait_for(over).await
    }

    /// Applies what the journal has until nothing is left, or the volume closes.
    pub async fn apply_recovered(&self) {
        let (Some(epochs), Some(unapplied)) = (&self.epochs, self.unapplied()) else { return };
        while !self.jobs.are_ending() {
            let (start, is_used) = (self.rt.now(), self.is_used(epochs.device()));
            let done = match unapplied.is_done() {
                true => self.end_recovery(epochs).await,
                false => {
                    let bits = unapplied.next(if is_used { WHILE_USED } else { WHILE_IDLE });
                    self.apply_what_can_be(epochs, &unapplied, &bits).await
                }
            };
            epochs.event.notify();
            let rest = match done {
                // Only guests can go on with what is left.
                Ok(()) if unapplied.is_stuck() => REST,
                Ok(()) if !self.is_recovering() => return,
                // Guests first: they have the disk for as long.
                Ok(()) if is_used => self.rt.now().saturating_sub(start),
                Ok(()) => continue,
                Err(_) if self.jobs.are_ending() => break,
                Err(error) => {
                    tracing::error!(%error, "what the journal of epochs has could not be applied");
                    REST
                }
            };
            self.pause(self.rt.now() + rest, || unapplied.is_anyone_waiting()).await;
        }
        unapplied.end(Error::new(ErrorKind::Io, "the volume is closing"));
        epochs.event.notify();
    }

    /// If they cannot be applied together, each by itself, and nothing else is read: a bad place costs its
    /// own extents alone.
    async fn apply_what_can_be(&self, epochs: &Epochs, unapplied: &Unapplied, bits: &[usize]) -> Result<()> {
        if bits.is_empty() {
            return Ok(());
        }
        let mut result = self.apply_bits(epochs, unapplied, bits, PASSED).await;
        if result.is_ok() {
            unapplied.succeed();
        }
        if result.is_ok() || self.jobs.are_ending() {
            return result;
        }
        for bit in bits {
            if let Err(error) = self.apply_bits(epochs, unapplied, &[*bit], Bytes::ZERO).await {
                unapplied.fail(&[*bit], error.clone());
                result = Err(error);
            }
        }
        result
    }

    async fn apply_bits(
        &self,
        epochs: &Epochs,
        unapplied: &Unapplied,
        bits: &[usize],
        passed: Bytes,
    ) -> Result<()> {
        if let Some(error) = self.journal.commits.failure() {
            return Err(error);
        }
        let write = async |at, bytes: &Buf| self.write_image(epochs, at, bytes).await;
        let mut pieces = Pieces::default();
        for of_bit in bits.iter().map(|&bit| unapplied.pieces_of(bit, LONGEST_PIECE)) {
            pieces.journaled.extend(of_bit.journaled);
            pieces.whole.extend(of_bit.whole);
        }
        for some in pieces.journaled.chunks(PIECES) {
            // Nothing of it is recorded: the next opening applies it.
            if self.jobs.are_ending() {
                return Err(Error::new(ErrorKind::Io, "the volume is closing"));
            }
            let parts = self.read_pieces_of_journal(epochs, some, passed).await?;
            write_parts(parts, &write).await?;
        }
        if !planted(Bug::WholeRecordedEarly) {
            write_parts(pieces.whole, &write).await?;
        }
        if !planted(Bug::AppliedBeforeFlush) {
            self.flush_image(epochs).await?;
        }
        unapplied.apply(bits);
        self.set_both(epochs).await?;
        unapplied.record(bits);
        Ok(())
    }

    /// Has both state pages say the same, durably, one after the other: with the older one of two an opening
    /// would apply again what guests have changed since.
    async fn set_both(&self, epochs: &Epochs) -> Result<()> {
        self.set_disk(epochs, |page| page).await?;
        if planted(Bug::OneStatePage) {
            return Ok(());
        }
        self.set_disk(epochs, |page| page).await
    }

    /// Reads pieces in the order in which they lie in the journal: what is of one epoch lies side by side
    /// there. What lies between two of them is read with them if it is not longer than `passed`.
    async fn read_pieces_of_journal(
        &self,
        epochs: &Epochs,
        pieces: &[(Range<Bytes>, Lies)],
        passed: Bytes,
    ) -> Result<Vec<Part>> {
        if let Some((range, _)) = pieces.iter().find(|(_, lies)| *lies == Lies::Damaged) {
            return Err(nowhere(range));
        }
        let mut parts: Vec<Part> = pieces.iter().map(|(range, _)| (range.clone(), None)).collect();
        let in_journal = |(i, (_, lies)): (usize, &(Range<Bytes>, Lies))| match lies {
            Lies::InJournal(at) => Some((*at, i)),
            Lies::Zeros | Lies::InPlace | Lies::Damaged => None,
        };
        let mut places: Vec<(Bytes, usize)> = pieces.iter().enumerate().filter_map(in_journal).collect();
        places.sort_unstable();
        let mut rest = &places[..];
        while let Some(&(start, _)) = rest.first() {
            let mut end = start;
            let is_next = |&&(at, i): &&(Bytes, usize)| {
                let last = at + super::len(&pieces[i].0);
                let is_next = at <= end + passed && last - start <= LONGEST_SEGMENT;
                end = if is_next { end.max(last) } else { end };
                is_next
            };
            let together = rest.iter().take_while(is_next).count();
            let bytes = Arena::new(end - start).alloc(end - start).await;
            self.device_read(self.member(epochs.device()), start, &bytes, Origin::Background).await?;
            for &(at, i) in &rest[..together] {
                parts[i].1 = Some(bytes.slice(at - start..at - start + super::len(&pieces[i].0)));
            }
            rest = &rest[together..];
        }
        Ok(parts)
    }

    /// All is in its place: the disk is one like any other from now on.
    async fn end_recovery(&self, epochs: &Epochs) -> Result<()> {
        self.void_image(epochs).await?;
        self.forget_recovery().await?;
        epochs.unapplied.take();
        self.jobs.wake();
        tracing::info!("all that the journal of epochs had is in its place");
        Ok(())
    }

    /// The disk does not say any more that something of its journal is to be applied: older versions may open
    /// the volume again.
    pub(super) async fn forget_recovery(&self) -> Result<()> {
        if self.devices.superblock().features.incompat & Features::UNAPPLIED == 0 {
            return Ok(());
        }
        self.change_superblock(|superblock| superblock.features.incompat &= !Features::UNAPPLIED).await
    }
}
