//! Recovery while guests work: the SSDs are lost, guests use the disk at once, and its journal is applied in
//! the background.
//!
//! Reads look a range up in the index of the journal. Before a guest changes a journaled extent, all
//! journaled bytes of the extent are written in place and flushed, and a bit in the state page says that
//! durably. Later openings do not apply the extent again: whenever the power fails, no older bytes overwrite
//! a guest's. A single job applies extents, first for all waiting guests together, then in the order of
//! addresses. The segments stay unchanged until no segment is needed. Until then nothing is moved or
//! resynchronised, and no epochs are kept.
//!
//! Journaled ranges that are damaged or unreadable read as errors, and their extents can only be changed as a
//! whole. A guest's bytes for a whole extent are applied like journaled bytes: in place and flushed before
//! the bit is written. No older bytes appear in between.

use super::apply::{JournaledRange, write_parts};
use super::index::{Index, Lies, nowhere};
use super::journal::{applied_of, state_of};
use super::turn::REST;
use super::unapplied::{Most, Pieces, Unapplied, Wait, Whole};
use super::{Adopted, EpochRegion, Epochs};
use crate::core::Extents;
use crate::devices::{Deadline, Member};
use crate::planted::{Bug, planted};
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, ExtentId};
use braid_format::SlotNumber;
use braid_format::epoch_journal::{LONGEST_SEGMENT, PAGE, State, StatePage};
use braid_format::map_page::Entry;
use braid_format::superblock::{Features, Superblock};
use braid_policy::Origin;
use braid_runtime::{Arena, Buf, Device, Runtime};
use std::ops::Range;
use std::rc::Rc;

/// Approximate batch between two flushes while guests use the disk: a guest may wait for one batch.
const WHILE_USED: Most = Most { ranges: 32, bytes: Bytes(8 << 20) };
/// Approximate batch while guests are idle: half a second on a disk. A returning guest, or the end of the
/// daemon, may wait for one batch.
const WHILE_IDLE: Most = Most { ranges: 128, bytes: Bytes(32 << 20) };
/// Longest piece of a range that is read at once, in bytes.
const LONGEST_PIECE: Bytes = Bytes(128 << 10);
/// Pieces that are in memory together.
const PIECES: usize = 128;
/// Longest gap between two pieces in the journal that is read along: an index page and a little more.
const PASSED: Bytes = Bytes(2 * PAGE.0);
/// Extents that a repair gives up in one batch.
const GIVEN_UP_AT_ONCE: usize = 64;

/// Extents of a recovering volume with damaged journaled ranges, except for extents that are `lost` already.
/// A repair gives these extents up.
///
/// # Errors
/// The reason if the extents cannot be determined: the volume cannot be opened then.
pub(crate) async fn damaged_extents<D: Device>(
    members: &[Member<D>],
    superblock: &Superblock,
    shape: &Shape,
    lost: &[ExtentId],
) -> Result<Vec<ExtentId>> {
    let is_recovering = superblock.features.incompat & Features::UNAPPLIED != 0;
    let place = EpochRegion::of(superblock)
        .filter(|place| is_recovering && members[place.device.index()].is_current());
    let Some(place) = place else { return Ok(Vec::new()) };
    let member = &members[place.device.index()];
    let page = state_of(member, &place, superblock).await?;
    if page.state != State::Recovered {
        return Ok(Vec::new());
    }
    let end = shape.extent_size * u64::from(shape.extents());
    let index = Index::read(member, &place, page.run, end).await?;
    let applied = applied_of(member, &place).await?;
    Ok(Unapplied::new(index, shape.extent_size, &applied, |extent| lost.contains(&extent)).damaged_extents())
}

impl Epochs {
    pub(super) fn unapplied(&self) -> Option<Rc<Unapplied>> {
        self.unapplied.borrow().clone()
    }

    /// Returns the bytes that are journaled and not yet in place, and the last failure to apply, or else the
    /// damage. `None` if no recovery is under way.
    pub fn recovery(&self) -> Option<(Bytes, Option<String>)> {
        let unapplied = self.unapplied()?;
        let failure = unapplied.failure().or_else(|| unapplied.damage());
        Some((unapplied.left(), failure.map(|error| error.to_string())))
    }

    /// Ranges of the volume that were in a damaged part of the journal, and are lost.
    pub fn damaged(&self) -> Vec<Range<Bytes>> {
        self.unapplied().map_or_else(Vec::new, |unapplied| unapplied.damaged_ranges())
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Continues with a disk that became the volume in this opening or in an earlier opening, if `page` says
    /// so. Returns true in this case.
    pub(super) async fn open_recovered(
        &self,
        epochs: &Epochs,
        page: StatePage,
        adopted: Option<Adopted>,
        repair: bool,
    ) -> Result<bool> {
        let member = self.store.member(epochs.device());
        let applied = match (page.state, &adopted) {
            // The map has been written.
            (State::Adopting, Some(_)) => {
                self.set_disk(epochs, |page| StatePage { state: State::Recovered, ..page }).await?;
                Vec::new()
            }
            (State::Recovered, _) if member.is_current() && !member.lacks_all() => {
                applied_of(member, &epochs.place).await?
            }
            _ => return Ok(false),
        };
        let index = match adopted {
            Some(adopted) => adopted.index,
            None => Index::read(member, &epochs.place, page.run, self.store.shape.image_len()).await?,
        };
        let with = |index| {
            let lost = self.store.state.borrow().map.lost();
            Unapplied::new(index, self.store.shape.extent_size, &applied, |extent| lost.contains(&extent))
        };
        let mut unapplied = with(index);
        if repair {
            self.give_extents_up(&unapplied.damaged_extents()).await?;
            unapplied = with(unapplied.index);
        }
        tracing::info!(left = %unapplied.left(), "the journal of epochs is applied in the background");
        epochs.unapplied.replace(Some(Rc::new(unapplied)));
        // The power may have failed between the writes of the two pages.
        self.set_disk(epochs, |page| page).await?;
        Ok(true)
    }

    /// Gives up extents with lost ranges, whole extents at a time, for a repair; durable on return.
    async fn give_extents_up(&self, extents: &[ExtentId]) -> Result<()> {
        for some in extents.chunks(GIVEN_UP_AT_ONCE) {
            for &extent in some {
                let _room = self.durable.reserve(1).await?;
                let mut state = self.store.state.borrow_mut();
                let entry = state.map.get(extent);
                state.set_extent(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
                let slots = [entry.home, entry.second].into_iter().filter(|&slot| slot != SlotNumber::NONE);
                slots.for_each(|slot| state.retire(slot));
            }
            self.durable.commit(Origin::Background).await?;
            if !self.durable.journal.has_room() {
                self.durable.checkpoint().await?;
            }
        }
        Ok(())
    }

    fn unapplied(&self) -> Option<Rc<Unapplied>> {
        self.epochs.as_ref().and_then(Epochs::unapplied)
    }

    /// True if a recovery is under way.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.epochs.as_ref().is_some_and(|epochs| epochs.unapplied.borrow().is_some())
    }

    /// True if the journal may have newer bytes of an extent than the image.
    #[inline]
    pub fn is_unapplied(&self, extent: ExtentId) -> bool {
        self.is_recovering() && self.unapplied().is_some_and(|unapplied| unapplied.bit_of(extent).is_some())
    }

    /// Reads the newest bytes of a place on a device, from the image or from the journal. The caller holds
    /// the extent's lock.
    pub async fn read_applied(
        &self,
        member: &Member<D>,
        at: Bytes,
        into: &Buf,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let is_image = |unapplied: &Rc<Unapplied>| {
            let is_it = self.epochs.as_ref().is_some_and(|epochs| epochs.device() == member.id);
            is_it && unapplied.bit_of(self.store.shape.extent_of(at - member.entry.slots_offset)).is_some()
        };
        let Some(unapplied) = self.unapplied().filter(is_image) else {
            return self.read_place(member, at, into, origin, deadline).await;
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
                Lies::InJournal(place) => self.read_place(member, place, &part, origin, deadline).await?,
                Lies::InPlace => {
                    let place = member.entry.slots_offset + at;
                    self.read_place(member, place, &part, origin, deadline).await?;
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Waits until no journaled bytes will be applied to an extent any more, before a guest changes the
    /// extent or overwrites it as a whole. The caller holds no lock.
    ///
    /// # Errors
    /// The reason why the extent could not be applied: the extent must stay unchanged.
    pub async fn wait_until_applied(&self, extent: ExtentId, whole: Option<Whole>) -> Result<()> {
        let (Some(epochs), Some(unapplied)) = (&self.epochs, self.unapplied()) else { return Ok(()) };
        let Some(bit) = unapplied.bit_of(extent) else { return Ok(()) };
        if planted(Bug::JournalOverGuests) {
            return Ok(());
        }
        match (self.wait_for_bit(epochs, &unapplied, bit).await, whole) {
            (Err(error), Some(whole)) => {
                self.apply_whole(epochs, &unapplied, extent, bit, &whole, error).await
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

    /// Applies the bytes that a guest is about to write over a whole extent, because `error` prevents the
    /// journaled bytes from being applied.
    async fn apply_whole(
        &self,
        epochs: &Epochs,
        unapplied: &Unapplied,
        extent: ExtentId,
        bit: usize,
        whole: &Whole,
        error: Error,
    ) -> Result<()> {
        let mut applied = Err(error);
        // A batch in flight may have begun without the guest's bytes.
        for _ in 0..2 {
            if applied.is_err() {
                unapplied.write_whole(extent, whole);
                applied = self.wait_for_bit(epochs, unapplied, bit).await;
            }
        }
        unapplied.end_whole(extent);
        epochs.event.notify();
        if applied.is_err() {
            // The disk's bytes are unknown now; the next read must ask the disk.
            let _guard = self.locks.exclusive(extent).await;
            self.guests.cache.borrow_mut().remove(extent);
        }
        applied
    }

    /// Waits until the recovery has ended, or the volume closes.
    pub async fn wait_until_recovered(&self) {
        self.jobs.wait_for(|| (!self.is_recovering() || self.jobs.are_ending()).then_some(())).await;
    }

    pub async fn complete_recovery(&self) -> Result<()> {
        let (Some(epochs), Some(unapplied)) = (&self.epochs, self.unapplied()) else { return Ok(()) };
        let over = || match unapplied.failure() {
            _ if !self.is_recovering() => Some(Ok(())),
            None if unapplied.is_stuck() => unapplied.damage().map(Err),
            failure => failure.map(Err),
        };
        epochs.event.wait_for(over).await
    }

    /// Applies the journal until nothing is left, or the volume closes.
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
                // Only guests' writes can resolve the rest.
                Ok(()) if unapplied.is_stuck() => REST,
                Ok(()) if !self.is_recovering() => return,
                // Guests first: the pause is as long as the batch was.
                Ok(()) if is_used => self.rt.now().saturating_sub(start),
                Ok(()) => continue,
                Err(_) if self.jobs.are_ending() => break,
                Err(error) => {
                    tracing::error!(%error, "the journal of epochs could not be applied");
                    REST
                }
            };
            self.durable.pause(self.rt.now() + rest, || unapplied.is_anyone_waiting()).await;
        }
        unapplied.end(Error::new(ErrorKind::Io, "the volume is closing"));
        epochs.event.notify();
    }

    /// Applies a batch. If the batch fails, each bit is applied alone, and no gaps are read: a bad place
    /// costs its own extents alone.
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
        if let Some(error) = self.durable.journal.commits.failure() {
            return Err(error);
        }
        let write = async |at, bytes: &Buf| self.write_image(epochs, at, bytes).await;
        let mut pieces = Pieces::default();
        for of_bit in bits.iter().map(|&bit| unapplied.pieces_of(bit, LONGEST_PIECE)) {
            pieces.journaled.extend(of_bit.journaled);
            pieces.whole.extend(of_bit.whole);
        }
        for some in pieces.journaled.chunks(PIECES) {
            // Nothing of the batch is recorded: the next opening applies everything.
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

    /// Makes both state pages equal, durably, one after the other. From the older of two different pages, an
    /// opening would apply journaled bytes over guests' changes.
    async fn set_both(&self, epochs: &Epochs) -> Result<()> {
        self.set_disk(epochs, |page| page).await?;
        if planted(Bug::OneStatePage) {
            return Ok(());
        }
        self.set_disk(epochs, |page| page).await
    }

    /// Reads pieces in the order of their places in the journal: pieces of one epoch lie side by side. Gaps
    /// up to `passed` bytes are read along.
    async fn read_pieces_of_journal(
        &self,
        epochs: &Epochs,
        pieces: &[(Range<Bytes>, Lies)],
        passed: Bytes,
    ) -> Result<Vec<JournaledRange>> {
        if let Some((range, _)) = pieces.iter().find(|(_, lies)| *lies == Lies::Damaged) {
            return Err(nowhere(range));
        }
        let mut parts: Vec<JournaledRange> = pieces.iter().map(|(range, _)| (range.clone(), None)).collect();
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
            self.durable
                .device_read(self.store.member(epochs.device()), start, &bytes, Origin::Background)
                .await?;
            for &(at, i) in &rest[..together] {
                parts[i].1 = Some(bytes.slice(at - start..at - start + super::len(&pieces[i].0)));
            }
            rest = &rest[together..];
        }
        Ok(parts)
    }

    /// Ends the recovery: everything is in place, and the disk is an ordinary disk.
    async fn end_recovery(&self, epochs: &Epochs) -> Result<()> {
        self.void_image(epochs).await?;
        self.forget_recovery().await?;
        epochs.unapplied.take();
        self.jobs.wake();
        tracing::info!("the journal of epochs is applied completely");
        Ok(())
    }

    /// Clears the superblock's flag for an unapplied journal: older versions may open the volume again.
    pub(super) async fn forget_recovery(&self) -> Result<()> {
        if self.store.devices.superblock().features.incompat & Features::UNAPPLIED == 0 {
            return Ok(());
        }
        self.durable
            .change_superblock(|superblock| superblock.features.incompat &= !Features::UNAPPLIED)
            .await
    }
}
