//! Witness: a summary of the journal's promises, on the metadata device without the journal. Only with one
//! required copy.
//!
//! An SSD that loses acknowledged flushes leaves an older journal, and nothing on the SSD reveals the loss.
//! The witness on the other device does (`recover/witnessed.rs`). If the SSD itself is lost, the map image on
//! the other device is as old as the last checkpoint. The witness lists the extents changed since then, and
//! names a list of their entries (`recent.rs`). Listed extents without an entry read as errors, not as the
//! zeros or older bytes of the image.
//!
//! A commit lists its extents before its flush in two cases: the commit places extents on devices without the
//! journal, or the commit flushes the device of the witness anyway. Beside guests, entries and witness are
//! written and flushed within 5 s of a change. Unlisted are therefore at most extents that lay on the lost
//! device alone and changed in the last 5 s.
//!
//! Dirty cached copies on devices without the journal are listed too (`listed_blocks.rs`). A copy that leaves
//! its place is listed before the flush that may make the home newer; a copy that becomes dirty, within 5 s.
//!
//! No promise depends on the witness. A page that cannot be written goes to the other place. If both places
//! fail, the failure is logged, and the page is tried again with the next change, and every 4 s.
//!
//! The journal's proof names the newest durable page, so that a device that lost this page is refused. If one
//! place cannot be written, each page overwrites the only page as new as the proof says, and a power cut may
//! tear the page. The proof therefore says first that the page is alone.

use super::listed_blocks::ListedBlocks;
use crate::core::{Durable, Store};
use crate::journal::{Journal, images};
use crate::planted::{Bug, planted};
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, ExtentId, Nanos};
use braid_format::journal::Record;
use braid_format::proof::{self, Witnessed};
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::witness::{self, Recent, Witness};
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Pause between two updates of the witness. Writing time included, the witness is at most 5 s old.
const PAUSE: Nanos = Nanos::from_secs(4);
/// More batches than can come between the writing of a list and its commit. If a map page contains a batch
/// whose number is higher by this much, the page was written after the loss of the journal.
const BEYOND: u64 = 1 << 20;

/// Changes that the witness has to list.
#[derive(Default)]
pub(crate) struct Listed {
    /// Extents that batches changed since the last checkpoint, with the batch; `u64::MAX` for a commit in
    /// flight.
    extents: RefCell<BTreeMap<ExtentId, u64>>,
    /// Blocks whose dirty cached copies on devices without the journal changed, with the batch.
    pub(super) blocks: ListedBlocks,
    /// Number of changes of these lists.
    changes: Cell<u64>,
    /// Newest batch, and number of changes, that the witness contains.
    written: Cell<(u64, u64)>,
    /// Number of pages written; selects the place of the next page.
    pages: Cell<u64>,
    /// Newest durable page, if only one device has a witness.
    durable: Cell<Option<Witnessed>>,
    /// Place of the last failed write, until a write there succeeds.
    bad_place: Cell<Option<u64>>,
    /// Number of times in a row that the witness could not be written to either place.
    failed: Cell<u64>,
    /// Contents of the last page, and the devices that have the page.
    page: RefCell<(Witness, Vec<DeviceId>)>,
    /// The images contain all batches up to this batch; 0 while unknown.
    contained: Cell<u64>,
    /// Oldest batch that a checkpoint must contain to count: earlier batches may lie in the unused ring.
    floor: Cell<u64>,
    /// Newest durable list of recent entries, without its runs.
    recent: RefCell<Option<Recent>>,
    /// Number of the last list.
    lists: Cell<u64>,
    /// True if a durable page names the last list, or needs no list: the place of the previous list is free.
    is_named: Cell<bool>,
}

impl Listed {
    /// Lists the extents that recovery found in the journal up to batch `newest`. `is_contained` is true if
    /// the images contain all those batches.
    pub fn new(extents: impl IntoIterator<Item = ExtentId>, newest: u64, is_contained: bool) -> Listed {
        let extents: BTreeMap<ExtentId, u64> = extents.into_iter().map(|extent| (extent, newest)).collect();
        let contained = if is_contained && extents.is_empty() { newest } else { 0 };
        Listed {
            extents: RefCell::new(extents),
            changes: Cell::new(1),
            contained: Cell::new(contained),
            ..Listed::default()
        }
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

    /// True if all `devices` have a page that lists every extent of `records`.
    fn is_on_page(&self, records: &[Record], devices: &[(DeviceId, Bytes)]) -> bool {
        let (page, on) = &*self.page.borrow();
        let is_listed = |record: &Record| match record {
            Record::Extent(extent, _) => page.lists(*extent),
            _ => true,
        };
        devices.iter().all(|(device, _)| on.contains(device)) && records.iter().all(is_listed)
    }

    /// True if all `devices` have a page that lists the extent as left by a dirty copy, or that names a list
    /// as of `until` or later.
    fn is_left_on_page(&self, extent: ExtentId, until: u64, devices: &[(DeviceId, Bytes)]) -> bool {
        let (page, on) = &*self.page.borrow();
        let is_in_list = page.recent.as_ref().is_some_and(|recent| recent.batch >= until);
        (is_in_list || page.lists_left(extent)) && devices.iter().all(|(device, _)| on.contains(device))
    }

    /// Notes that both images contain all batches up to `done`.
    pub fn forget(&self, done: u64) {
        self.blocks.forget(done);
        self.extents.borrow_mut().retain(|_, batch| *batch > done);
        self.changes.set(self.changes.get() + 1);
        if done >= self.floor.get() {
            self.contained.set(done);
        }
    }

    /// Notes that rings begin or end: batches up to `newest` may lie in the ring that is unused from now on.
    /// Until a checkpoint contains these batches, nothing overwrites them.
    pub fn set_aside(&self, newest: u64) {
        self.floor.set(newest);
        self.contained.set(0);
        self.recent.replace(None);
        self.durable.set(None);
        self.changes.set(self.changes.get() + 1);
    }

    /// Returns the newest durable page, for the proof.
    pub fn durable(&self) -> Option<Witnessed> {
        self.durable.get()
    }

    /// True if recent entries can be written only after a checkpoint.
    fn wait_for_checkpoint(&self) -> bool {
        self.contained.get() == 0 && !(self.extents.borrow().is_empty() && self.blocks.is_empty())
    }

    /// Returns all extents that changed since the last checkpoint.
    pub fn all(&self) -> Vec<ExtentId> {
        self.extents.borrow().keys().copied().collect()
    }

    /// Returns number and batch of the next list of recent entries. None if the last list has every durable
    /// change, or if no place is free.
    pub fn next_list(&self, newest: u64) -> Option<(u64, u64)> {
        let known = self.known()?.batch;
        let is_lacking = |batch: &u64| (known + 1..=newest).contains(batch);
        let lacks = self.extents.borrow().values().any(is_lacking) || self.blocks.lacks(known);
        let is_needed = self.is_named.get() && lacks;
        is_needed.then(|| (self.lists.get() + 1, newest))
    }

    /// Notes that a list is durable: from now on pages of the witness name the list. False if the list is
    /// unusable, because rings have changed meanwhile.
    pub fn note_list(&self, recent: Recent) -> bool {
        self.lists.set(recent.number);
        self.is_named.set(false);
        let is_usable = self.contained.get() > 0;
        self.recent.replace(is_usable.then_some(recent));
        is_usable
    }

    /// Returns the list, or the images, that a page of the witness has to name, without runs. None until the
    /// images are known to contain all batches of the unused ring.
    fn known(&self) -> Option<Recent> {
        let contained = self.contained.get();
        let list = self.recent.borrow().clone().filter(|recent| recent.batch > contained);
        let images = (contained > 0).then(|| Recent { batch: contained, ..Recent::default() });
        list.or(images)
    }
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Writes and flushes the witness and the list of recent entries, beside guests, until the volume closes.
    pub async fn keep_witness(&self) {
        while !self.jobs.are_ending() {
            if let Err(error) = self.bring_witness_up_to_date().await {
                self.fail(error);
            }
            self.pause(self.rt.now() + PAUSE, || false).await;
        }
    }

    /// Writes and flushes the witness and the list of recent entries, if out of date.
    pub async fn bring_witness_up_to_date(&self) -> Result<()> {
        let now = (self.journal.in_ring(), self.journal.listed.changes.get());
        if self.journal.failure().is_some() || self.journal.listed.written.get() == now {
            return Ok(());
        }
        self.confirm_own().await?;
        if self.journal.listed.wait_for_checkpoint() && self.journal.place_of_entries(&self.store).is_some() {
            self.checkpoint().await?;
        }
        let is_free = self.journal.listed.is_named.get();
        if !is_free {
            // An earlier page may name the place of the next list.
            self.name_list().await?;
        }
        match self.write_recent_entries().await? || is_free {
            true => self.name_list().await,
            false => Ok(()),
        }
    }

    /// Writes and flushes the witness.
    async fn name_list(&self) -> Result<()> {
        let (number, written) = self.write_witness().await;
        let mut is_named = !written.is_empty();
        for &device in &written {
            let member = self.store.member(device);
            if let Err(error) = self.flush_member(member, "the journal's witness").await {
                is_named = false;
                self.give_up(device, error).await?;
            }
        }
        self.journal.listed.is_named.set(is_named);
        let is_kept = |device: DeviceId| {
            is_named && self.journal.witnesses(&self.store).iter().any(|(id, _)| *id == device)
        };
        if let (&[device], Ok(number)) = (&written[..], u32::try_from(number))
            && is_kept(device)
        {
            let alone = self.journal.listed.bad_place.get().is_some();
            self.journal.listed.durable.set(Some(Witnessed { device, number, alone }));
            self.jobs.wake();
        }
        Ok(())
    }

    /// Lists the changes of a commit that begins. The witness is written first if the records place extents
    /// on devices without the journal, or if the device of the witness is to be flushed anyway.
    pub async fn list_changes(&self, records: &[Record]) {
        let (listed, witnesses) = (&self.journal.listed, self.journal.witnesses(&self.store));
        let any = listed.set(records, u64::MAX);
        if planted(Bug::ChangesNotListed) {
            return;
        }
        let left = self.store.state.borrow_mut().take_left_dirty();
        if !left.is_empty() && !D::ALWAYS_ANSWERS && !planted(Bug::DirtyCopiesNotListed) {
            listed.blocks.begin(left, |extent, until| listed.is_left_on_page(extent, until, &witnesses));
            listed.changes.set(listed.changes.get() + 1);
        }
        let is_flushed = |(device, _): &(DeviceId, Bytes)| self.store.member(*device).has_unflushed();
        let is_due = any
            && (witnesses.iter().any(is_flushed) || self.journal.concern_other_devices(&self.store, records));
        // An extent that changes again and again costs one page between two lists of entries.
        let is_new = is_due && !listed.is_on_page(records, &witnesses);
        if is_new || listed.blocks.is_due() && !witnesses.is_empty() {
            self.write_witness().await;
        }
    }

    /// Writes the witness. Returns the number of the page, and the devices that make the page durable with
    /// their next flush. If a place cannot be written, the other place gets the next page. If both fail, the
    /// witness stays out of date, and is written again later.
    async fn write_witness(&self) -> (u64, Vec<DeviceId>) {
        // A late page must not overwrite the page after the next.
        let _alone = self.journal.witnesses.acquire(1).await;
        let were_both_usable = self.journal.listed.bad_place.get().is_none();
        let written = match self.write_page().await {
            Ok(written) => Ok(written),
            Err(failed) => match self.prove_alone(were_both_usable).await {
                Ok(()) => self.write_page().await,
                Err(error) => {
                    self.fail(error);
                    Err(failed)
                }
            },
        };
        let failed = &self.journal.listed.failed;
        match &written {
            Ok(_) if failed.replace(0) > 0 => {
                tracing::warn!(
                    "the witness of volume '{}' is writable again",
                    self.store.devices.superblock().name
                );
            }
            Ok(_) => {}
            Err((device, error)) => {
                failed.set(failed.get() + 1);
                // Powers of two: one line for a burst of errors.
                if failed.get().is_power_of_two() {
                    let (name, device, failures) = (
                        &self.store.devices.superblock().name,
                        self.store.member(*device).describe(),
                        failed.get(),
                    );
                    tracing::error!(
                        %error,
                        failures,
                        "the witness of the journal of volume '{name}' cannot be written to {device}: if \
                         the device with the journal is lost now, data flushed since may read as older \
                         bytes; replace {device}"
                    );
                }
            }
        }
        written.unwrap_or_default()
    }

    /// Makes the proof say durably that the newest page is alone. Called after a failed write: the next page
    /// overwrites the page that the proof may name. Otherwise a power cut that tears the next page would
    /// accuse a sound device.
    async fn prove_alone(&self, has_turned_bad: bool) -> Result<()> {
        let durable = &self.journal.listed.durable;
        durable.set(durable.get().map(|page| Witnessed { alone: true, ..page }));
        // Before the first batch of this opening, the proof of an earlier opening stays.
        if has_turned_bad && self.journal.proof_half.get().is_some() {
            self.prove().await?;
            self.flush_proofs().await?;
        }
        Ok(())
    }

    /// Writes the next page of the witness. Fails if a device does not get the page.
    async fn write_page(&self) -> std::result::Result<(u64, Vec<DeviceId>), (DeviceId, Error)> {
        let listed = &self.journal.listed;
        let state = (self.journal.in_ring(), listed.changes.get());
        listed.pages.set(listed.pages.get() + 1);
        let behind = |known: &u64| -> Vec<ExtentId> {
            let extents = listed.extents.borrow();
            extents.iter().filter(|(_, batch)| *batch > known).map(|(extent, _)| *extent).collect()
        };
        let recent = listed.known().map(|known| {
            let runs = witness::runs(behind(&known.batch).into_iter());
            Recent { runs, ..known }
        });
        let since = recent.as_ref().map_or(0, |recent| recent.batch);
        let (left, of_left) = listed.blocks.left_since(since);
        let mut witness = Witness {
            epoch: self.store.devices.superblock().epoch,
            number: listed.pages.get(),
            promised: state.0,
            listed: self.journal.newest() + BEYOND,
            runs: witness::runs(listed.extents.borrow().keys().copied()),
            contained: listed.contained.get(),
            recent,
            left: None,
        };
        witness.list_left(left.into_iter());
        let page = Arena::new(witness::SIZE).alloc(witness::SIZE).await;
        page.copy_from_slice(Bytes::ZERO, &witness::encode(self.store.devices.superblock().volume, &witness));
        let place = witness.number % proof::PAGES;
        let (mut written, mut failed) = (Vec::new(), None);
        for (device, offset) in self.journal.witnesses(&self.store) {
            let at = offset + witness::SIZE * place;
            match self.device_write(self.store.member(device), at, &page, Origin::Background).await {
                Ok(()) => written.push(device),
                // No promise depends on this page.
                Err(error) => failed = Some((device, error)),
            }
        }
        let number = witness.number;
        listed.page.replace((witness, written.clone()));
        if let Some(failed) = failed {
            listed.bad_place.set(Some(place));
            return Err(failed);
        }
        if listed.bad_place.get() == Some(place) {
            listed.bad_place.set(None);
        }
        listed.written.set(state);
        listed.blocks.note_written(of_left);
        Ok((number, written))
    }
}

impl Journal {
    /// Notes that `records` are durable, with the newest batch.
    pub fn note_listed<D: Device>(&self, store: &Store<D>, records: &[Record]) {
        let (listed, newest) = (&self.listed, self.newest());
        listed.set(records, newest);
        let changes = store.state.borrow().dirty_changes();
        if !changes.is_empty() && !D::ALWAYS_ANSWERS && !planted(Bug::DirtyCopiesNotListed) {
            listed.blocks.end(&changes, newest);
            listed.changes.set(listed.changes.get() + 1);
        }
    }

    /// Returns the places of witnesses: beside the unused rings.
    pub(super) fn witnesses<D: Device>(&self, store: &Store<D>) -> Vec<(DeviceId, Bytes)> {
        if store.shape.copies > 1 || D::ALWAYS_ANSWERS {
            return Vec::new();
        }
        let mut places = store.devices.places(RegionKind::Proof);
        places.retain(|(device, _)| !self.is_on(*device) && store.member(*device).is_written());
        places
    }
}

/// True if the journal is lost with its device, and the volume continues with a journal on another device.
/// The contents of the lost journal are known only from the map images and the witness.
pub(crate) fn is_journal_lost(superblock: &Superblock, is_current: impl Fn(DeviceId) -> bool) -> bool {
    let rings = images(superblock, RegionKind::Journal);
    let is_lost = rings.first().is_some_and(|(device, _)| !is_current(*device));
    superblock.copies == 1 && superblock.adopted().is_none() && is_lost
}
