//! Proof: the number of the newest promised batch, beside the ring. Recovery needs the proof to tell a
//! journal whose end was lost or has rotted from a journal whose end was never promised.
//!
//! The proof is written once a batch is durable, beside guests' requests. The proof is durable with the next
//! flush of its device, or within a second. The newest batch itself is therefore proved only after a kill
//! without a power cut, or by the journal on a second device.

use crate::Result;
use crate::core::{Durable, Store};
use crate::journal::Journal;
use crate::shape::Shape;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos};
use braid_format::journal::{MOST_PREVIOUS, Record};
use braid_format::proof::{self, Proof};
use braid_format::superblock::RegionKind;
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};

/// Longest time for which a proof waits for a flush of its device on behalf of other work.
const UNFLUSHED: Nanos = Nanos::from_secs(1);

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Keeps the proof up to date until the volume closes.
    pub async fn keep_proof(&self) {
        let mut flush_by = None;
        while !self.jobs.are_ending() {
            let unproved = || {
                // Before the first batch of this opening, the proof of an earlier opening says more about its
                // batch.
                let has_proved = self.journal.proof_half.get().is_some();
                let is_witnessed = self.journal.listed.durable() == self.journal.proved_witness.get();
                self.journal.newest() > self.journal.proved.get() || has_proved && !is_witnessed
            };
            self.pause(flush_by.unwrap_or(Nanos::MAX), unproved).await;
            if unproved() {
                // An error here also fails the next commit, and the device counts the error.
                if self.prove().await.is_ok() {
                    flush_by.get_or_insert(self.rt.now() + UNFLUSHED);
                }
            } else if flush_by.is_some_and(|by| by <= self.rt.now()) {
                flush_by = None;
                if let Err(error) = self.flush_proofs().await {
                    self.fail(error);
                }
            }
        }
    }

    /// Writes the number of the newest promised batch, and the newest durable page of the witness. Both are
    /// durable with the next flush of each device that holds the proof.
    pub async fn prove(&self) -> Result<()> {
        let (newest, witnessed) = (self.journal.newest(), self.journal.listed.durable());
        let proof = Proof {
            epoch: self.store.devices.superblock().epoch,
            sequence: newest,
            extents: self.journal.newest_extents(),
            witnessed,
        };
        // Marked as written before the write: a failing device is not retried without end.
        self.journal.proved.set(newest);
        self.journal.proved_witness.set(witnessed);
        // The page written last is never overwritten: that page may name the same batch.
        let half =
            self.journal.proof_half.get().map_or(newest % proof::PAGES, |last| (last + 1) % proof::PAGES);
        self.journal.proof_half.set(Some(half));
        let page = Arena::new(proof::SIZE).alloc(proof::SIZE).await;
        page.copy_from_slice(Bytes::ZERO, &proof::encode(self.store.devices.superblock().volume, &proof));
        for (device, offset) in self.journal.proofs(&self.store) {
            let member = self.store.member(device);
            if member.is_written() {
                let place = offset + proof::SIZE * half;
                let written = self.device_write(member, place, &page, Origin::Background).await;
                match written {
                    Err(error) if self.store.shape.copies > 1 => self.give_up(device, error).await?,
                    // Without the proof, the journal still holds everything. The device counts the error.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Makes the proofs durable.
    pub async fn flush_proofs(&self) -> Result<()> {
        for (device, _) in self.journal.proofs(&self.store) {
            let member = self.store.member(device);
            if member.is_written()
                && let Err(error) = self.flush_member(member, "the journal's proof").await
            {
                self.give_up(device, error).await?;
            }
        }
        Ok(())
    }
}

impl Journal {
    /// Returns the places of the proofs: beside the rings in use.
    fn proofs<D: Device>(&self, store: &Store<D>) -> Vec<(DeviceId, Bytes)> {
        let mut places = store.devices.places(RegionKind::Proof);
        places.retain(|(device, _)| self.is_on(*device));
        places
    }
}

/// Returns the extents whose required copies or dirty cached copies are changed by `records`; none if there
/// are too many to list.
pub(super) fn changed_extents(
    shape: &Shape,
    records: &[Record],
    concerns_data: impl Fn(BlockId) -> bool,
) -> Option<Vec<ExtentId>> {
    let extents = records.iter().filter_map(|record| match record {
        Record::Extent(extent, _) => Some(*extent),
        Record::Extra(block, _) if concerns_data(*block) => Some(shape.range_of(*block).extent),
        _ => None,
    });
    // Blocks of one extent are adjacent in the records.
    let mut last = None;
    let changes = extents.filter(|&extent| last.replace(extent) != Some(extent));
    let extents: Vec<ExtentId> = changes.take(MOST_PREVIOUS + 1).collect();
    (extents.len() <= MOST_PREVIOUS).then_some(extents)
}
