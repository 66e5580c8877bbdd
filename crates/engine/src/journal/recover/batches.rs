//! Batches of the journal: all valid batches on every device with a ring, compared with the proof.

use super::forgetful::{Forgetful, RingEnd, forgetful};
use super::{Mode, RecoveryInput, witnessed};
use crate::buffer::buffer;
use crate::devices::{Deadline, Member};
use crate::journal::{images, is_journal_lost, rings};
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, ExtentId};
use braid_format::journal::{self, LARGEST_BATCH, PAGE, Record};
use braid_format::proof::{self, Proof, Witnessed};
use braid_format::superblock::RegionKind;
use braid_runtime::{Buf, Device};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

/// A batch to replay.
pub(super) struct FoundBatch {
    pub sequence: u64,
    epoch: u64,
    tail: u64,
    /// Devices whose journal has the batch.
    pub on: Vec<DeviceId>,
    /// Offset of the batch in the ring.
    pub place: Bytes,
    len: Bytes,
    pub records: Vec<Record>,
    /// Extents that the previous batch changed; none if not listed.
    pub previous: Option<Vec<ExtentId>>,
}

impl FoundBatch {
    /// True if the batch has records of dirty cached copies.
    pub fn writes_back(&self) -> bool {
        self.records.iter().any(|record| matches!(record, Record::Extra(_, Some(extra)) if extra.dirty))
    }

    /// Bytes of the ring that the batch occupies.
    pub fn room(&self) -> Bytes {
        self.len.align_up(PAGE)
    }
}

/// Contents of the journal.
#[derive(Default)]
pub(super) struct Batches {
    /// Batches found, from the oldest to replay to the newest.
    pub live: Vec<FoundBatch>,
    /// Batches needed and not found, with their changed extents; none if unknown.
    pub lost: Vec<(u64, Option<Vec<ExtentId>>)>,
    /// Contents that no version of Braid writes.
    pub problem: Option<String>,
    /// A place that could not be read, and is not needed.
    pub warning: Option<String>,
    proved: u64,
    /// Page of the witness that the proof names, and the opening that wrote both.
    pub witnessed: Option<(u64, Witnessed)>,
    /// Ends of the journals.
    ends: Vec<RingEnd>,
    /// Numbers of all batches that count, in order, including batches that need no replay.
    known: Vec<u64>,
}

impl Batches {
    /// Notes that batches up to `promised` were promised and are missing: no later batch takes such a number.
    pub fn go_on_beyond(&mut self, promised: u64) {
        self.proved = self.proved.max(promised);
    }

    /// Returns the devices that lack batches they had, given that the host noted batch `noted` as durable.
    pub fn forgetful(&self, noted: u64) -> Vec<Forgetful> {
        forgetful(&self.ends, &self.known, self.proved.max(noted))
    }

    /// Returns the number of the next batch: a number that was never promised.
    pub fn next_sequence(&self) -> u64 {
        self.live.last().map_or(0, |b| b.sequence).max(self.proved) + 1
    }
}

/// Searches the journal.
pub(super) async fn find<D: Device>(input: &RecoveryInput<'_, D>) -> Result<Batches> {
    let superblock = input.superblock;
    let mut all: BTreeMap<u64, FoundBatch> = BTreeMap::new();
    let mut batches = Batches::default();
    let replicas = rings(superblock, |device| input.members[device.index()].is_current());
    let len = superblock.journal().map_or(Bytes::ZERO, |region| region.len);
    let (mut whole, mut unread_part) = (false, None);
    for &(device, offset) in &replicas {
        let member = &input.members[device.index()];
        if member.is_current() {
            let ring = PatientReader { member, offset, len, error: RefCell::default() };
            search(input, &ring, &mut all, &mut batches.problem).await?;
            let error = ring.error.into_inner();
            whole |= error.is_none();
            batches.ends.push(RingEnd { device, newest: 0, is_whole: error.is_none() });
            unread_part = unread_part.or(error);
        }
    }
    // An unreadable place may have held the last promised batch, so the place must not count as empty.
    if let (false, Mode::Strict, Some(error)) = (whole, input.mode, unread_part) {
        return Err(super::unread(superblock, "the journal", &error));
    }
    let contained = contained(input).await?;
    all.retain(|sequence, _| *sequence > contained);
    let (proof, warning) =
        read_proof(input, |device| replicas.iter().any(|(ring, _)| *ring == device)).await?;
    batches.warning = warning;
    let proof = proof.filter(|proof| proof.sequence > contained);
    batches.witnessed = proof.as_ref().and_then(|proof| Some((proof.epoch, proof.witnessed?)));
    batches.proved = proof.as_ref().map_or(contained, |proof| proof.sequence);
    let Some((_, newest)) = all.values().map(|b| (b.epoch, b.sequence)).max() else {
        batches.lose_up_to_proof(1, proof);
        return Ok(batches);
    };
    // A batch of an earlier opening that reached the device late does not count, even if the batch that
    // replaced its number is lost.
    let mut epoch = 0;
    all.retain(|&sequence, batch| {
        epoch = epoch.max(batch.epoch);
        sequence <= newest && batch.epoch == epoch
    });
    batches.known = all.keys().copied().collect();
    for end in &mut batches.ends {
        let last = all.values().rev().find(|batch| batch.on.contains(&end.device));
        end.newest = last.map_or(0, |batch| batch.sequence);
    }
    let tail = all[&newest].tail;
    for sequence in tail..newest {
        if !all.contains_key(&sequence) {
            let listed = all.get(&(sequence + 1)).and_then(|next| next.previous.clone());
            batches.lost.push((sequence, listed));
        }
    }
    batches.lose_up_to_proof(newest + 1, proof);
    batches.live = all.into_values().filter(|batch| batch.sequence >= tail).collect();
    Ok(batches)
}

/// Returns the newest batch of the searched ring that the images contain, if the journal is lost with its
/// device. The searched ring may have been out of use, and partly overwritten by recent entries. Its batches
/// up to this number do not count.
async fn contained<D: Device>(input: &RecoveryInput<'_, D>) -> Result<u64> {
    let is_current = |device: DeviceId| input.members[device.index()].is_current();
    if !is_journal_lost(input.superblock, is_current) {
        return Ok(0);
    }
    let (found, _) = witnessed::read_without_journal(input).await?;
    Ok(found.map_or(0, |(_, witness)| witness.contained))
}

impl Batches {
    /// Counts all promised batches from `first` as lost.
    fn lose_up_to_proof(&mut self, first: u64, proof: Option<Proof>) {
        let Some(proof) = proof else { return };
        // The newest batches decide which pages still prove something.
        for sequence in first.max(proof.sequence.saturating_sub(MOST_LOST))..=proof.sequence {
            let listed = if sequence == proof.sequence { proof.extents.clone() } else { None };
            self.lost.push((sequence, listed));
        }
    }
}

/// Number of lost batches that are listed before the newest lost batch.
const MOST_LOST: u64 = 1_000;

/// Reads the newest proof beside a ring in use, on any current device. A proof elsewhere describes another
/// ring: a ring to which the journal was about to move, or from which the journal has moved.
///
/// Returns a warning if one of the two pages of a proof cannot be read and the other page is valid. The pages
/// are written in turn, so the valid page lacks at most the batches promised since the previous write.
async fn read_proof<D: Device>(
    input: &RecoveryInput<'_, D>,
    has_ring: impl Fn(DeviceId) -> bool,
) -> Result<(Option<Proof>, Option<String>)> {
    let superblock = input.superblock;
    let (mut newest, mut read, mut unread, mut warning) = (None, false, None, None);
    for (device, offset) in images(superblock, RegionKind::Proof) {
        let member = &input.members[device.index()];
        if !member.is_current() || !has_ring(device) {
            continue;
        }
        let (buf, mut found, mut failed) = (buffer(proof::SIZE).await, None, None);
        for page in 0..proof::PAGES {
            match member.read(offset + proof::SIZE * page, &buf, Deadline::Only).await {
                Err(error) => failed = Some(error),
                Ok(()) => {
                    let decoded = buf.with_bytes(|bytes| proof::newest(bytes, superblock.volume));
                    found = found.max(decoded.ok());
                }
            }
        }
        read |= failed.is_none() || found.is_some();
        if let (Some(error), Some(_)) = (&failed, &found) {
            warning = Some(format!(
                "a page of the journal's proof on {device} cannot be read, and the other page counts \
                 ({error}); replace {device} soon"
            ));
        }
        (newest, unread) = (newest.max(found), unread.or(failed));
    }
    match (read, input.mode, unread) {
        (false, Mode::Strict, Some(error)) => Err(super::unread(superblock, "the journal's proof", &error)),
        _ => Ok((newest, warning)),
    }
}

/// Adds every valid batch in one ring to `all`.
async fn search<D: Device>(
    input: &RecoveryInput<'_, D>,
    ring: &PatientReader<'_, D>,
    all: &mut BTreeMap<u64, FoundBatch>,
    problem: &mut Option<String>,
) -> Result<()> {
    // A batch may reach from one piece of reading into the next: the buffer holds two adjacent pieces.
    let (step, window) = (LARGEST_BATCH, buffer(LARGEST_BATCH).await);
    let mut start = Bytes::ZERO;
    let mut bytes = vec![0u8; (step * 2).as_usize()];
    // No batch begins within another valid batch: a valid batch has not been overwritten.
    let mut past = Bytes::ZERO;
    let mut held = ring.read(start, &window).await;
    window.copy_to_slice(Bytes::ZERO, &mut bytes[..step.as_usize()]);
    while start < ring.len {
        let next = ring.read(start + step, &window).await;
        window.copy_to_slice(Bytes::ZERO, &mut bytes[step.as_usize()..]);
        let valid = (held + next).as_usize();
        for at in (0..held.as_usize()).step_by(PAGE.as_usize()) {
            if start + Bytes::of_len(at) < past {
                continue;
            }
            let Ok(header) = journal::verify(&bytes[at..valid], input.superblock.volume) else { continue };
            past = start + Bytes::of_len(at) + header.len;
            let place = start + Bytes::of_len(at);
            if let Some(known) = all.get_mut(&header.sequence).filter(|known| known.epoch >= header.epoch) {
                if known.epoch == header.epoch && known.place == place {
                    known.on.push(ring.member.id);
                }
                continue;
            }
            let batch = &bytes[at..valid];
            let records: std::result::Result<Vec<Record>, _> = journal::records(batch, &header).collect();
            match records {
                Ok(records) => {
                    let found = FoundBatch {
                        sequence: header.sequence,
                        epoch: header.epoch,
                        tail: header.tail,
                        on: vec![ring.member.id],
                        place,
                        len: header.len,
                        records,
                        previous: journal::previous(batch, &header),
                    };
                    all.insert(header.sequence, found);
                }
                Err(braid_format::Invalid::Feature(text)) => {
                    return Err(Error::new(crate::ErrorKind::Unsupported, text));
                }
                Err(invalid) => drop(problem.get_or_insert(invalid.to_string())),
            }
        }
        bytes.copy_within(step.as_usize().., 0);
        (start, held) = (start + step, next);
    }
    Ok(())
}

/// Reads a ring around its bad places.
struct PatientReader<'a, D> {
    member: &'a Member<D>,
    offset: Bytes,
    len: Bytes,
    /// Error of the first place that could not be read.
    error: RefCell<Option<io::Error>>,
}

impl<D: Device> PatientReader<'_, D> {
    /// Reads a piece, with zeros for unreadable pages. Returns the length of the piece.
    async fn read(&self, at: Bytes, into: &Buf) -> Bytes {
        let part = into.len().min(self.len.saturating_sub(at));
        let start = self.offset + at;
        if part == Bytes::ZERO
            || self.member.read(start, &into.slice(Bytes::ZERO..part), Deadline::Only).await.is_ok()
        {
            return part;
        }
        into.fill_zero();
        let mut page = Bytes::ZERO;
        while page < part {
            let one = into.slice(page..page + PAGE);
            if let Err(error) = self.member.read(start + page, &one, Deadline::Only).await {
                self.error.borrow_mut().get_or_insert(error);
                one.fill_zero();
            }
            page += PAGE;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The journal was lost after 500,000 batches. Only the first 1,000 counted as lost. A map page with any
    /// later batch passed for up to date, and a repair proved old places.
    #[test]
    fn of_very_many_lost_batches_the_newest_count() {
        let mut batches = Batches::default();
        let proof = Proof { epoch: 3, sequence: 500_000, extents: Some(vec![ExtentId(7)]), witnessed: None };
        batches.lose_up_to_proof(1, Some(proof));
        let newest = &batches.lost[batches.lost.len() - 2..];
        assert_eq!(newest, [(499_999, None), (500_000, Some(vec![ExtentId(7)]))]);
        assert!(batches.lost.len() <= 1_001);
    }
}
