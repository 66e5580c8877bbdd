//! The proof of the newest promised batch, outside the ring: so that recovery can tell a journal whose end
//! was lost or has rotted from one whose end was never promised.
//!
//! It is written once a batch is durable, beside the requests of guests, and is durable with the next flush
//! of its device, or within a second. So the newest batch itself is proved only after a kill without a power
//! cut, or by the journal on a second device.

use crate::Result;
use crate::core::Core;
use crate::shape::Shape;
use braid_base::{BlockId, Bytes, DeviceId, ExtentId, Nanos};
use braid_format::journal::{MOST_PREVIOUS, Record};
use braid_format::proof::{self, Proof};
use braid_format::superblock::RegionKind;
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};

/// How long a proof may wait for the flush of its device by others.
const UNFLUSHED: Nanos = Nanos::from_secs(1);

impl<R: Runtime, D: Device> Core<R, D> {
    /// Keeps the proof up to date until the volume closes.
    pub async fn keep_proof(&self) {
        let mut flush_by = None;
        while !self.jobs.are_ending() {
            let unproved = || {
                // Before the first batch of this opening, the proof of an earlier one says more of its batch.
                let has_proved = self.journal.proof_half.get().is_some();
                let is_witnessed = self.journal.listed.durable() == self.journal.proved_witness.get();
                self.journal.newest() > self.journal.proved.get() || has_proved && !is_witnessed
            };
            self.pause(flush_by.unwrap_or(Nanos::MAX), unproved).await;
            if unproved() {
                // What fails here fails the next commit, too, and is counted by the device.
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

    /// Writes down the newest promised batch, and the witness's newest durable page. Both are durable with
    /// the next flush of each device that holds the proof.
    pub async fn prove(&self) -> Result<()> {
        let (newest, witnessed) = (self.journal.newest(), self.journal.listed.durable());
        let proof = Proof {
            epoch: self.devices.superblock().epoch,
            sequence: newest,
            extents: self.journal.newest_extents(),
            witnessed,
        };
        // Said to be written first: a device that fails is not tried without end.
        self.journal.proved.set(newest);
        self.journal.proved_witness.set(witnessed);
        // Never over the page that was written last, which may be of the same batch.
        let half =
            self.journal.proof_half.get().map_or(newest % proof::PAGES, |last| (last + 1) % proof::PAGES);
        self.journal.proof_half.set(Some(half));
        let page = Arena::new(proof::SIZE).alloc(proof::SIZE).await;
        page.copy_from_slice(Bytes::ZERO, &proof::encode(self.devices.superblock().volume, &proof));
        for (device, offset) in self.proofs() {
            let member = self.member(device);
            if member.is_written() {
                let place = offset + proof::SIZE * half;
                let written = self.device_write(member, place, &page, Origin::Background).await;
                match written {
                    Err(error) if self.shape.copies > 1 => self.give_up(device, error).await?,
                    // Without it the journal still holds all. The device counts the error.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Where the proofs lie: beside the rings that are in use.
    fn proofs(&self) -> Vec<(DeviceId, Bytes)> {
        let mut places = self.places(RegionKind::Proof);
        places.retain(|(device, _)| self.journal.is_on(*device));
        places
    }

    /// Makes the proofs durable.
    pub async fn flush_proofs(&self) -> Result<()> {
        for (device, _) in self.proofs() {
            let member = self.member(device);
            if member.is_written()
                && let Err(error) = self.flush_member(member, "the journal's proof").await
            {
                self.give_up(device, error).await?;
            }
        }
        Ok(())
    }
}

/// The extents whose required copies or dirty extra copies records change; none where they are too many to
/// list.
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
    // The blocks of an extent follow each other.
    let mut last = None;
    let changes = extents.filter(|&extent| last.replace(extent) != Some(extent));
    let extents: Vec<ExtentId> = changes.take(MOST_PREVIOUS + 1).collect();
    (extents.len() <= MOST_PREVIOUS).then_some(extents)
}
