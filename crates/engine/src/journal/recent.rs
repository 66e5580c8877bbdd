//! Recent entries: map entries of extents changed since the last checkpoint, on the metadata device without
//! the journal. Only with one required copy.
//!
//! If the device with the journal is lost, the map image on the other device is as old as the last
//! checkpoint. The list of recent entries brings the image up to date, so that extents on the remaining
//! devices keep their bytes. The list lies in the unused ring, and the witness names the list.
//!
//! The order of writes, beside guests: the list, into the half of the ring that the witness does not name;
//! flush; the witness, which names the list; flush. The witness therefore never names an incomplete list.
//! Each list has all entries since the last checkpoint: no list depends on an earlier list.
//!
//! An entry never names a slot that has been used again. A freed slot on a device without the journal waits
//! for the end of a checkpoint that began after the slot was freed. From then on the extent's map page
//! contains a newer batch than the list, and the entry does not count.
//!
//! No promise depends on the list. If the list cannot be written, the witness says so, and the extents read
//! as errors after the loss.

use super::recover::RecoveryInput;
use crate::Result;
use crate::buffer::buffer;
use crate::core::{Durable, Store};
use crate::devices::Deadline;
use crate::journal::Journal;
use crate::map::State;
use crate::planted::{Bug, planted};
use braid_base::{BlockId, Bytes, DeviceId, ExtentId};
use braid_format::journal::{Extra, Record};
use braid_format::map_page::{self, Entry};
use braid_format::recent::{self, BLOCKS_PER_PAGE, Entries, List, PER_PAGE};
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::witness::{Recent, Witness, ranges};
use braid_format::{SlotNumber, Uuid};
use braid_policy::Origin;
use braid_runtime::{Arena, Device, Runtime};
use std::ops::Range;

/// Number of pages that are written or read at once: 1 MiB.
const GROUP: u32 = 256;

/// Contents of one page of a list.
enum Page<'a> {
    Extents(&'a [(ExtentId, Entry)]),
    Blocks(&'a [(BlockId, Option<Extra>)]),
}

impl Page<'_> {
    fn encode(&self, bytes: &mut [u8], volume: Uuid, list: List, number: u32) {
        match self {
            Page::Extents(entries) => recent::encode(bytes, volume, list, number, entries),
            Page::Blocks(blocks) => recent::encode_blocks(bytes, volume, list, number, blocks),
        }
    }
}

/// Contents of a list.
#[derive(Default)]
pub(super) struct ListContents {
    pub entries: Vec<(ExtentId, Entry)>,
    /// Dirty cached copies of blocks on devices without the journal.
    pub blocks: Vec<(BlockId, Option<Extra>)>,
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Writes and flushes a list of the recent entries, if the last list lacks an entry. True if the witness
    /// has to name a new list.
    pub(super) async fn write_recent_entries(&self) -> Result<bool> {
        // While metadata moves, rings begin and end: the next call will do.
        let Some(_alone) = self.store.devices.life.try_acquire(1) else { return Ok(false) };
        let Some((device, ring, len)) = self.journal.place_of_entries(&self.store) else { return Ok(false) };
        let listed = &self.journal.listed;
        let Some((number, batch)) = listed.next_list(self.journal.newest()) else { return Ok(false) };
        let list = List { epoch: self.store.devices.superblock().epoch, number, batch };
        // Newest batch and entries must match: no await between the two.
        let entries = {
            let state = self.store.state.borrow();
            listed.all().into_iter().map(|extent| (extent, state.durable_entry(extent))).collect()
        };
        let contents = ListContents { entries, blocks: listed.blocks.all() };
        let (offset, most) = recent::place(len, number);
        let pages = recent::pages(contents.entries.len()) + recent::block_pages(contents.blocks.len());
        if pages > most || self.write_list(list, &contents, device, ring + offset).await.is_err() {
            // The device counts and logs the error. No promise depends on this list.
            if !contents.blocks.is_empty() {
                // Only the list names newly dirty blocks. The checkpoint writes the cache tables instead.
                self.checkpoint().await?;
            }
            return Ok(false);
        }
        let member = self.store.member(device);
        if !planted(Bug::ListNamedEarly)
            && let Err(error) = self.flush_member(member, "the recent entries of the map").await
        {
            self.give_up(device, error).await?;
            return Ok(false);
        }
        Ok(listed.note_list(Recent { batch, number, pages: pages as u32, runs: Vec::new() }))
    }

    async fn write_list(
        &self,
        list: List,
        ListContents { entries, blocks }: &ListContents,
        device: DeviceId,
        start: Bytes,
    ) -> Result<()> {
        let (volume, member) = (self.store.devices.superblock().volume, self.store.member(device));
        let buffer = Arena::new(recent::SIZE * u64::from(GROUP)).alloc(recent::SIZE * u64::from(GROUP)).await;
        let of_extents = entries.chunks(PER_PAGE).map(Page::Extents);
        let mut pages = (0..).zip(of_extents.chain(blocks.chunks(BLOCKS_PER_PAGE).map(Page::Blocks)));
        let mut first = 0u32;
        loop {
            let count = buffer.with_bytes_mut(|bytes| {
                let places = bytes.chunks_exact_mut(recent::SIZE.as_usize());
                let mut count = 0;
                for (bytes, (number, page)) in places.zip(pages.by_ref().take(GROUP as usize)) {
                    page.encode(bytes, volume, list, number);
                    count += 1;
                }
                count
            });
            if count == 0 {
                return Ok(());
            }
            let part = buffer.slice(Bytes::ZERO..recent::SIZE * u64::from(count));
            let at = start + recent::SIZE * u64::from(first);
            self.device_write(member, at, &part, Origin::Background).await?;
            self.background.borrow_mut().journal_bytes += part.len().0;
            first += count;
        }
    }
}

impl Journal {
    /// Returns the ring beside the witness: device, offset and length.
    pub(super) fn place_of_entries<D: Device>(&self, store: &Store<D>) -> Option<(DeviceId, Bytes, Bytes)> {
        let witnesses = self.witnesses(store);
        let superblock = store.devices.superblock();
        if !store.devices.beside.borrow().is_empty() {
            return None;
        }
        let ring =
            |&(device, _): &(DeviceId, Bytes)| ring_on(&superblock, device).map(|(o, l)| (device, o, l));
        witnesses.iter().find_map(ring)
    }

    /// True if `records` place extents on devices without the journal, or take extents from there. If the
    /// journal is lost, such extents must not read as older bytes.
    pub(super) fn concern_other_devices<D: Device>(&self, store: &Store<D>, records: &[Record]) -> bool {
        let state = store.state.borrow();
        let on_other = |slot| {
            let place = state.space.locate(slot);
            place.is_some_and(|place| !self.is_on(place.device))
        };
        records.iter().any(|record| match record {
            Record::Extent(_, entry) if on_other(entry.home) => true,
            Record::Extent(extent, entry) => {
                entry.home == SlotNumber::NONE && on_other(state.durable_entry(*extent).home)
            }
            _ => false,
        })
    }
}

/// Restores extents after the loss of the journal with its device. The map image does not know the current
/// places of extents that the witness lists. Takes their entries from the list of recent entries, and marks
/// the remaining extents as lost. Returns the lost extents, in order.
pub(super) fn restore<D: Device>(
    input: &RecoveryInput<'_, D>,
    witness: &Witness,
    contents: Option<&ListContents>,
    state: &mut State,
    sequence_of: impl Fn(ExtentId) -> u64,
) -> Vec<ExtentId> {
    let superblock = input.superblock;
    let within =
        |range: Range<u32>| range.start.min(superblock.extents())..range.end.min(superblock.extents());
    // Pages of listed extents are written again before a new journal overwrites the list. From then on the
    // pages contain batch `listed`, and the next opening needs neither the witness nor the list.
    let per_page = map_page::extents_per_page(superblock.copies) as usize;
    for range in ranges(&witness.runs).map(within).filter(|range| !range.is_empty()) {
        let last = range.end - 1;
        range.step_by(per_page).chain([last]).for_each(|extent| state.mark_stale(ExtentId(extent)));
    }
    let runs = match witness.recent.as_ref().zip(contents) {
        Some((recent, contents)) => {
            for &(extent, entry) in &contents.entries {
                if extent.0 < superblock.extents() && sequence_of(extent) < recent.batch {
                    state.map.set(extent, superblock.interpret(entry));
                    state.mark_stale(extent);
                }
            }
            &recent.runs
        }
        None => &witness.runs,
    };
    let listed = ranges(runs).flat_map(within).map(ExtentId);
    let lost: Vec<ExtentId> = listed.filter(|&extent| sequence_of(extent) < witness.listed).collect();
    for &extent in &lost {
        state.map.set(extent, Entry { home: SlotNumber::LOST, ..Entry::default() });
        state.mark_stale(extent);
    }
    lost
}

/// Reads the list that the witness names. None if the witness names no list, or if a page of the list is not
/// valid.
pub(super) async fn read<D: Device>(
    input: &RecoveryInput<'_, D>,
    device: DeviceId,
    witness: &Witness,
) -> Option<ListContents> {
    let recent = witness.recent.as_ref()?;
    let (ring, len) = ring_on(input.superblock, device)?;
    let (offset, most) = recent::place(len, recent.number);
    if recent.pages as usize > most {
        return None;
    }
    let list = List { epoch: witness.epoch, number: recent.number, batch: recent.batch };
    let (volume, member) = (input.superblock.volume, &input.members[device.index()]);
    let (window, mut contents) = (buffer(recent::SIZE * u64::from(GROUP)).await, ListContents::default());
    for first in (0..recent.pages).step_by(GROUP as usize) {
        let pages = GROUP.min(recent.pages - first);
        let part = window.slice(Bytes::ZERO..recent::SIZE * u64::from(pages));
        let at = ring + offset + recent::SIZE * u64::from(first);
        member.read(at, &part, Deadline::Only).await.ok()?;
        part.with_bytes(|bytes| {
            let all = (first..).zip(bytes.chunks_exact(recent::SIZE.as_usize()));
            for (page, bytes) in all {
                match recent::decode(bytes, volume, list, page).ok()? {
                    Entries::Extents(entries) => contents.entries.extend(entries),
                    Entries::Blocks(blocks) => contents.blocks.extend(blocks),
                }
            }
            Some(())
        })?;
    }
    Some(contents)
}

/// Returns offset and length of the ring of the journal on a device.
fn ring_on(superblock: &Superblock, device: DeviceId) -> Option<(Bytes, Bytes)> {
    let rings = (0..2).filter_map(|copy| superblock.region(RegionKind::Journal, copy));
    rings.filter(|ring| ring.device == device).map(|ring| (ring.offset, ring.len)).next()
}
