//! The witness: what the journal has promised, on the metadata device that does not have the journal. Only
//! with one required copy.
//!
//! An SSD that loses flushes that it has acknowledged leaves an older journal, and nothing on it tells. The
//! witness on the other device does ([`refuse_lost_batches`]). And if the SSD itself is lost, the other
//! device's image of the map is as old as the last checkpoint. The witness lists the extents that were
//! changed since, so that these read as errors, and not as the zeros or the older bytes that the image knows
//! ([`give_up_listed`]).
//!
//! A commit that changes where extents lie, and flushes the witness's device anyway, lists these extents
//! before that flush. Beside guests the witness is written and flushed within 5 s of a change. So at most the
//! extents that lay on the lost device alone, and were changed in the last 5 s, are not listed.
//!
//! Nothing that was promised depends on the witness: a witness that cannot be written is told of, and left as
//! it is.

use super::recover::{Mode, Recovery, Source};
use crate::copies::Deadline;
use crate::core::Core;
use crate::create::buffer;
use crate::journal::images;
use crate::map::State;
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::SlotNumber;
use braid_format::journal::Record;
use braid_format::map_page::Entry;
use braid_format::proof;
use braid_format::superblock::RegionKind;
use braid_format::witness::{self, Witness};
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// How old the witness may be.
const OLDEST: Nanos = Nanos::from_secs(5);
/// More batches than can come between the writing of a list and the commit that it was written for. A page of
/// the map that contains a batch of the number that is so much higher was written after the journal was lost.
const BEYOND: u64 = 1 << 20;

/// What the witness is to list.
#[derive(Default)]
pub(crate) struct Listed {
    /// Extents that batches changed since the last checkpoint, with the batch; the largest number for a
    /// commit under way.
    extents: RefCell<BTreeMap<ExtentId, u64>>,
    /// Changes of that list.
    changes: Cell<u64>,
    /// The newest batch and the changes that the witness has.
    written: Cell<(u64, u64)>,
    /// Pages written: which place is next.
    pages: Cell<u64>,
}

impl Listed {
    /// A list of what recovery found in the journal.
    pub fn new(extents: impl IntoIterator<Item = ExtentId>, newest: u64) -> Listed {
        let extents: BTreeMap<ExtentId, u64> = extents.into_iter().map(|extent| (extent, newest)).collect();
        Listed { extents: RefCell::new(extents), changes: Cell::new(1), ..Listed::default() }
    }

    fn set(&self, records: &[Record], batch: u64) -> bool {
        let changed = records.iter().filter_map(|record| match record {
            Record::Extent(extent, _) => Some((*extent, batch)),
            _ => None,
        });
        let mut any = false;
        let mut extents = self.extents.borrow_mut();
        extents.extend(changed.inspect(|_| any = true));
        if any {
            self.changes.set(self.changes.get() + 1);
        }
        any
    }

    /// Both images contain all batches up to `done`.
    pub fn forget(&self, done: u64) {
        self.extents.borrow_mut().retain(|_, batch| *batch > done);
        self.changes.set(self.changes.get() + 1);
    }
}

impl<R: Runtime, D: Device> Core<R, D> {
    /// Writes and flushes the witness beside guests until the volume closes.
    pub async fn keep_witness(&self) {
        while !self.jobs.are_ending() {
            self.pause(self.rt.now() + OLDEST, || false).await;
            if !self.jobs.are_ending()
                && let Err(error) = self.bring_witness_up_to_date().await
            {
                self.fail(error);
            }
        }
    }

    /// Writes and flushes the witness if it is out of date.
    pub async fn bring_witness_up_to_date(&self) -> Result<()> {
        let now = (self.journal.in_ring(), self.journal.listed.changes.get());
        if self.journal.failure().is_some() || self.journal.listed.written.get() == now {
            return Ok(());
        }
        self.confirm_own().await?;
        for device in self.write_witness().await {
            let member = self.member(device);
            if let Err(error) = self.flush_member(member, "the journal's witness").await {
                self.give_up(device, error).await?;
            }
        }
        Ok(())
    }

    /// A commit of these records begins. If the device of the witness is to be flushed anyway, the witness
    /// lists them first.
    pub async fn list_changes(&self, records: &[Record]) {
        if !self.journal.listed.set(records, u64::MAX) || planted(Bug::ChangesNotListed) {
            return;
        }
        let is_flushed = |(device, _): &(DeviceId, Bytes)| self.member(*device).has_unflushed();
        if self.witnesses().iter().any(is_flushed) {
            self.write_witness().await;
        }
    }

    /// The records are durable, with the newest batch.
    pub fn end_listing(&self, records: &[Record]) {
        self.journal.listed.set(records, self.journal.newest());
    }

    /// Writes the witness; which devices have it with their next flush.
    async fn write_witness(&self) -> Vec<DeviceId> {
        let listed = &self.journal.listed;
        let state = (self.journal.in_ring(), listed.changes.get());
        let witness = Witness {
            epoch: self.devices.superblock().epoch,
            promised: state.0,
            listed: self.journal.newest() + BEYOND,
            runs: witness::runs(listed.extents.borrow().keys().copied()),
        };
        let page = Arena::new(witness::SIZE).alloc(witness::SIZE).await;
        page.copy_from_slice(Bytes::ZERO, &witness::encode(self.devices.superblock().volume, &witness));
        listed.pages.set(listed.pages.get() + 1);
        let place = witness::SIZE * (listed.pages.get() % proof::PAGES);
        let mut written = Vec::new();
        for (device, offset) in self.witnesses() {
            match self.device_write(self.member(device), offset + place, &page, Origin::Background).await {
                Ok(()) => written.push(device),
                // The error is counted and logged. What was promised does not depend on this page.
                Err(_) => continue,
            }
        }
        listed.written.set(state);
        written
    }

    /// Where witnesses lie: beside the rings that are not in use.
    fn witnesses(&self) -> Vec<(DeviceId, Bytes)> {
        if self.shape.copies > 1 || D::ALWAYS_ANSWERS {
            return Vec::new();
        }
        let mut places = self.places(RegionKind::Proof);
        places.retain(|(device, _)| !self.journal.is_on(*device) && self.member(*device).is_written());
        places
    }
}

/// The newest witness on a device that is current and has no ring in use. A page that cannot be read is none.
pub(super) async fn read<D: Device>(
    source: &Source<'_, D>,
    has_ring: impl Fn(DeviceId) -> bool,
) -> Option<(DeviceId, Witness)> {
    let mut found = None;
    if source.superblock.copies > 1 {
        return None;
    }
    for (device, offset) in images(source.superblock, RegionKind::Proof) {
        let member = &source.members[device.index()];
        let buf = buffer(witness::SIZE * proof::PAGES).await;
        if member.is_current() && !has_ring(device) && member.read(offset, &buf, Deadline::Only).await.is_ok()
        {
            let newest = buf.with_bytes(|bytes| witness::newest(bytes, source.superblock.volume));
            found = newest.map(|witness| (device, witness)).or(found);
        }
    }
    found
}

/// Refuses a journal that ends before a batch that was durable. A repair goes on, and says so.
pub(super) fn refuse_lost_batches<D: Device>(
    source: &Source<'_, D>,
    journal: DeviceId,
    newest: u64,
    (witness, recovery): (Option<&(DeviceId, Witness)>, &mut Recovery),
) -> Result<u64> {
    let by_device = witness.map_or(0, |(_, witness)| witness.promised);
    let promised = by_device.max(source.noted);
    if promised <= newest || planted(Bug::WitnessIgnored) {
        return Ok(newest);
    }
    let by = match witness {
        Some((device, _)) if by_device == promised => device.to_string(),
        _ => "this host".to_owned(),
    };
    let name = &source.superblock.name;
    let text = format!(
        "the journal of volume '{name}' on {journal} lacks {} batch(es) that were promised: it ends with batch {newest}, and {by} has noted batch {promised}; {journal} has lost \
         what it had said was durable, or was restored to an older state",
        promised - newest
    );
    if source.mode == Mode::Strict {
        let remedy = format!(
            "bring the device back as it was, or go on with what is there: braid check {name} --repair; replace {journal}, or switch off its write cache"
        );
        return Err(Error::new(ErrorKind::Corrupt, format!("{text}: {remedy} (nothing was changed)")));
    }
    recovery.warnings.push(text);
    Ok(promised)
}

/// The journal is lost with its device: extents that a witness lists are not where the image of the map says.
/// Gives these, in order.
pub(super) fn give_up_listed(
    witness: &Witness,
    state: &mut State,
    extents: u32,
    sequence_of: impl Fn(ExtentId) -> u64,
) -> Vec<ExtentId> {
    let listed = witness.ranges().flat_map(|range| range.start.min(extents)..range.end.min(extents));
    let lost: Vec<ExtentId> =
        listed.map(ExtentId).filter(|&extent| sequence_of(extent) < witness.listed).collect();
    for &extent in &lost {
        state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
        state.mark_stale(extent);
    }
    lost
}
