//! Recovery: the map images, then what the journal says beyond them.
//!
//! A page that image 0 has torn is read from image 1: the two are never written at the same time. The journal is
//! searched whole for the newest valid batch; that one says which is the oldest that must be replayed, and all between
//! must be there. A batch that a power cut tore was never promised to anyone.

use crate::create::buffer;
use crate::journal::Ring;
use crate::journal::map_images;
use crate::map::State;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, ExtentId};
use braid_format::journal::{self, Extra, LARGEST_BATCH, PAGE, Record};
use braid_format::map_page::{self, Entry};
use braid_format::superblock::Superblock;
use braid_format::{Invalid, SlotNumber};
use braid_runtime::{Arena, Buf, Device};
use std::collections::VecDeque;

/// What recovery found, besides the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Map pages that image 0 did not hold and image 1 did.
    pub pages_from_second_image: u32,
    /// Journal batches that were replayed.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
}

/// Loads the map and replays the journal. Claims every slot that is in use.
pub(crate) async fn recover<D: Device>(
    devices: &[D],
    superblock: &Superblock,
    state: &mut State,
) -> Result<(Ring, Recovery)> {
    let mut recovery = Recovery::default();
    load_map(devices, superblock, state, &mut recovery).await?;
    let (ring, extras) = replay_journal(devices, superblock, state, &mut recovery).await?;
    claim_slots(superblock, state, extras)?;
    state.refresh_all();
    Ok((ring, recovery))
}

fn corrupt(superblock: &Superblock, what: impl std::fmt::Display) -> Error {
    let name = &superblock.name;
    Error::new(ErrorKind::Corrupt, format!("{what}: volume '{name}' is damaged; run braid check {name}"))
}

/// Map pages read in one piece.
const GROUP: u32 = (Arena::LARGEST.0 / map_page::SIZE.0) as u32;

async fn load_map<D: Device>(
    devices: &[D],
    superblock: &Superblock,
    state: &mut State,
    recovery: &mut Recovery,
) -> Result<()> {
    let pages = map_page::pages(superblock.extents(), superblock.copies);
    let [(first_device, first_image), (second_device, second_image)] = map_images(superblock);
    let (group, single) = (buffer(Arena::LARGEST).await, buffer(map_page::SIZE).await);
    for first in (0..pages).step_by(GROUP as usize) {
        let count = GROUP.min(pages - first);
        let bytes = group.slice(Bytes::ZERO..map_page::SIZE * u64::from(count));
        let at = first_image + map_page::SIZE * u64::from(first);
        let read = devices[first_device.index()].read(at, &bytes).await;
        for page in first..first + count {
            let place = map_page::SIZE * u64::from(page - first);
            let in_group = bytes.slice(place..place + map_page::SIZE);
            if read.is_ok() && load_page(&in_group, page, superblock, state).is_ok() {
                continue;
            }
            let at = second_image + map_page::SIZE * u64::from(page);
            let failed = |e| {
                Error::io(
                    format_args!("map page {page} is damaged on {first_device}, and {second_device} failed"),
                    &e,
                )
            };
            devices[second_device.index()].read(at, &single).await.map_err(failed)?;
            load_page(&single, page, superblock, state).map_err(|e| {
                corrupt(superblock, format_args!("map page {page} is in neither image ({e})"))
            })?;
            recovery.pages_from_second_image += 1;
            state.mark_stale(ExtentId(page * map_page::extents_per_page(superblock.copies)));
        }
    }
    Ok(())
}

fn load_page(
    bytes: &Buf,
    page: u32,
    superblock: &Superblock,
    state: &mut State,
) -> std::result::Result<(), Invalid> {
    let first = page * map_page::extents_per_page(superblock.copies);
    let extents = superblock.extents();
    bytes.with_bytes(|bytes| {
        map_page::decode(bytes, superblock.volume, page, superblock.copies, |place, entry| {
            // What lies beyond the last extent of the last page is padding.
            if first + place < extents {
                state.map.set(ExtentId(first + place), entry);
            }
        })
    })
}

/// A valid batch: its header, and where it lies.
type Batch = (journal::Header, Bytes);

async fn replay_journal<D: Device>(
    devices: &[D],
    superblock: &Superblock,
    state: &mut State,
    recovery: &mut Recovery,
) -> Result<(Ring, Vec<(braid_base::BlockId, Extra)>)> {
    let device = superblock.metadata_device;
    let (offset, len) = superblock.devices[device.index()]
        .journal
        .ok_or_else(|| corrupt(superblock, "the superblock names no journal"))?;
    let device = &devices[device.index()];
    let batches = find_batches(device, offset, len, superblock).await?;
    let Some((newest, _)) = batches.last().copied() else {
        return Ok((Ring::new(len, VecDeque::new(), 1), Vec::new()));
    };
    let needed: Vec<Batch> = batches.into_iter().filter(|(h, _)| h.sequence >= newest.tail).collect();
    let complete = needed.iter().map(|(h, _)| h.sequence).eq(newest.tail..=newest.sequence);
    if !complete {
        let what = format!("the journal lacks a batch between {} and {}", newest.tail, newest.sequence);
        return Err(corrupt(superblock, what));
    }
    let bytes = buffer(LARGEST_BATCH).await;
    let mut extras = hashbrown::HashMap::with_hasher(foldhash::fast::FixedState::default());
    let mut live = VecDeque::new();
    for (header, place) in needed {
        let room = header.len.align_up(PAGE);
        let batch = bytes.slice(Bytes::ZERO..room);
        let failed = |e| Error::io("the journal could not be read", &e);
        device.read(offset + place, &batch).await.map_err(failed)?;
        let records: Vec<_> = batch.with_bytes(|b| journal::records(b, &header).collect());
        for record in records {
            recovery.records += 1;
            match record.map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))? {
                Record::Extent(extent, entry) if extent.0 < superblock.extents() => {
                    state.map.set(extent, entry);
                    state.mark_stale(extent);
                }
                Record::Extent(extent, _) => {
                    return Err(corrupt(
                        superblock,
                        format!("the journal speaks of {extent:?}, beyond the volume"),
                    ));
                }
                Record::Extra(block, Some(extra)) => drop(extras.insert(block, extra)),
                Record::Extra(block, None) => drop(extras.remove(&block)),
            }
        }
        recovery.batches += 1;
        live.push_back((header.sequence, place, room));
    }
    let mut extras: Vec<_> = extras.into_iter().collect();
    extras.sort_unstable_by_key(|(block, _)| *block);
    Ok((Ring::new(len, live, newest.sequence + 1), extras))
}

/// Every valid batch in the ring, by sequence.
async fn find_batches<D: Device>(
    device: &D,
    offset: Bytes,
    len: Bytes,
    superblock: &Superblock,
) -> Result<Vec<Batch>> {
    // Batches may reach from one piece of reading into the next: two pieces lie side by side.
    let (step, window) = (LARGEST_BATCH, buffer(LARGEST_BATCH).await);
    let (mut batches, mut start) = (Vec::new(), Bytes::ZERO);
    let failed = |e| Error::io("the journal could not be read", &e);
    let read = async |at: Bytes, into: &Buf| -> Result<Bytes> {
        let part = step.min(len.saturating_sub(at));
        if part > Bytes::ZERO {
            device.read(offset + at, &into.slice(Bytes::ZERO..part)).await.map_err(failed)?;
        }
        Ok(part)
    };
    let mut bytes = vec![0u8; (step * 2).as_usize()];
    let mut held = read(start, &window).await?;
    window.copy_to_slice(Bytes::ZERO, &mut bytes[..step.as_usize()]);
    while start < len {
        let next = read(start + step, &window).await?;
        window.copy_to_slice(Bytes::ZERO, &mut bytes[step.as_usize()..]);
        let valid = (held + next).as_usize();
        for at in (0..held.as_usize()).step_by(PAGE.as_usize()) {
            if let Ok(header) = journal::verify(&bytes[at..valid], superblock.volume) {
                batches.push((header, start + Bytes::of_len(at)));
            }
        }
        bytes.copy_within(step.as_usize().., 0);
        (start, held) = (start + step, next);
    }
    batches.sort_unstable_by_key(|(header, _)| header.sequence);
    Ok(batches)
}

/// Marks every slot that the map or an extra copy uses. A slot used twice is damage.
fn claim_slots(
    superblock: &Superblock,
    state: &mut State,
    extras: Vec<(braid_base::BlockId, Extra)>,
) -> Result<()> {
    let State { map, space, .. } = state;
    for (extent, Entry { home, second, .. }) in map.iter() {
        for slot in [home, second].into_iter().filter(|&s| s != SlotNumber::NONE) {
            if !space.claim(slot) {
                return Err(corrupt(
                    superblock,
                    format!("{slot:?} of {extent:?} does not exist or is used twice"),
                ));
            }
        }
    }
    let blocks = u64::from(superblock.extents()) * (superblock.extent_size / superblock.block_size);
    for (block, extra) in extras {
        let wrong = || corrupt(superblock, format!("the extra copy of {block:?} lies where none can be"));
        let device = state.space.locate(extra.slot).ok_or_else(wrong)?.device;
        if !state.extras.is_divided(device, extra.slot) {
            if !state.space.claim(extra.slot) {
                return Err(wrong());
            }
            state.extras.divide(device, extra.slot);
        }
        if block.0 >= blocks || !state.extras.claim(device, extra.slot, extra.place) {
            return Err(wrong());
        }
        state.extras.set(block, Some(extra));
    }
    Ok(())
}
