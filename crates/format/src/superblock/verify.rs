//! Rules of a whole superblock, verified before the engine acts on its values. Each rule is a function.

use super::table::table_len;
use super::{DeviceEntry, Features, Layout, Mapping, Region, RegionKind, Superblock, TablePlace};
use crate::layout::{
    MOST_DEVICES, SMALLEST_DEVICE, cache_table_len, device_table_room, dirty_spans_len, double_write_len,
    intents_len, most_regions, policy_state_len, proof_len, sums_len,
};
use crate::map_page::MOST_MARKED;
use crate::{Invalid, SlotNumber, count};
use braid_base::{Bytes, DeviceId};
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Regions and tables begin and end on a page.
const PAGE: Bytes = Bytes(4096);
/// The lengths returned by [`crate::layout::journal_len`].
const JOURNAL_LEN: RangeInclusive<Bytes> = Bytes(1 << 20)..=Bytes(64 << 20);

pub(super) fn verify(superblock: &Superblock) -> Result<(), Invalid> {
    devices_are_distinct(superblock)?;
    slots_are_in_order(superblock)?;
    regions_lie_in_slots(superblock)?;
    addresses_have_slots(superblock)?;
    adopted_disk_is_the_volume(superblock)?;
    tables_lie_on_their_devices(superblock)?;
    nothing_overlaps(superblock)?;
    needed_regions_are_there(superblock)
}

/// Verifies a device alone: large enough, and its slots lie between its superblock copies.
pub(super) fn verify_device(device: &DeviceEntry, extent_size: Bytes) -> Result<(), Invalid> {
    if device.size < SMALLEST_DEVICE {
        return wrong(format!("device {} has {}, less than {SMALLEST_DEVICE}", device.uuid, device.size));
    }
    count::verify(device.in_step, "a device's last epoch in step")?;
    let room = device.room();
    let fits = device
        .slots_area(extent_size)
        .is_some_and(|slots| slots.start >= room.start && slots.end <= room.end);
    if !fits || !device.slots_offset.is_aligned(PAGE) {
        return wrong(format!(
            "the {} slots of device {} at {} do not lie between its superblock copies ({}) on whole pages",
            device.slots, device.uuid, device.slots_offset, room.end
        ));
    }
    if matches!(device.layout, Layout::Tail | Layout::Adopted) && device.slots_offset != Bytes::ZERO {
        return wrong(format!(
            "device {} keeps addresses, and its slots begin at byte {}",
            device.uuid, device.slots_offset
        ));
    }
    Ok(())
}

fn devices_are_distinct(superblock: &Superblock) -> Result<(), Invalid> {
    let mut seen = HashSet::new();
    match superblock.devices.iter().find(|device| !seen.insert(device.uuid)) {
        Some(twice) => wrong(format!("device {} appears twice in the device table", twice.uuid)),
        None => Ok(()),
    }
}

/// Slot numbers ascend with the device id; a removed device leaves a gap.
fn slots_are_in_order(superblock: &Superblock) -> Result<(), Invalid> {
    let mut next = 1;
    for (i, device) in superblock.devices.iter().enumerate() {
        verify_device(device, superblock.extent_size)?;
        if u64::from(device.first_slot) < next {
            return wrong(format!("the slots of d{i} from {} overlap the slots before", device.first_slot));
        }
        next = u64::from(device.first_slot) + u64::from(device.slots);
    }
    if superblock.features.incompat & Features::PARTLY_LOST != 0 && next > MOST_MARKED {
        return wrong(format!("slot numbers reach {next}: the limit of partly lost homes is {MOST_MARKED}"));
    }
    if next > u64::from(SlotNumber::LOST.0) {
        return wrong(format!("slot numbers reach {next}: the map's limit is {}", SlotNumber::LOST.0));
    }
    Ok(())
}

fn regions_lie_in_slots(superblock: &Superblock) -> Result<(), Invalid> {
    if superblock.regions.len() > most_regions(superblock.devices.len()) {
        return wrong(format!("{} regions exceed the room of the device table", superblock.regions.len()));
    }
    for region in &superblock.regions {
        let end = region.offset.checked_add(region.len);
        let area = superblock
            .devices
            .get(region.device.index())
            .and_then(|device| device.slots_area(superblock.extent_size));
        let inside = area.zip(end).is_some_and(|(area, end)| region.offset >= area.start && end <= area.end);
        if !inside || !on_pages(region.offset, region.len) || region.copy > 1 {
            return wrong(format!("region {region}: not on whole pages among the slots of its device"));
        }
    }
    Ok(())
}

/// A device in layout `tail` has a slot for each extent, before its metadata.
fn addresses_have_slots(superblock: &Superblock) -> Result<(), Invalid> {
    for (id, device) in (0..).map(DeviceId).zip(&superblock.devices) {
        if device.layout != Layout::Tail {
            continue;
        }
        let needed = superblock.extent_size * u64::from(superblock.extents());
        let metadata = superblock.regions_on(id).map(|region| region.start).min();
        if device.slots < superblock.extents() || metadata.is_some_and(|start| start < needed) {
            return wrong(format!(
                "{id} keeps addresses, and has no slot for each extent before its metadata"
            ));
        }
    }
    Ok(())
}

/// An adopted disk is the only adopted disk and the whole volume, and nothing of Braid's lies on the disk.
fn adopted_disk_is_the_volume(superblock: &Superblock) -> Result<(), Invalid> {
    let Some(id) = superblock.adopted() else { return Ok(()) };
    let device = &superblock.devices[id.index()];
    let others = superblock.devices.iter().filter(|device| device.layout == Layout::Adopted).count() - 1;
    let is_on = |of: DeviceId| of == id;
    let is_written = superblock.regions.iter().any(|region| is_on(region.device))
        || superblock.tables.iter().any(|table| is_on(table.device));
    if others > 0
        || is_written
        || superblock.copies != 1
        || device.size != superblock.volume_size
        || device.slots != superblock.extents()
    {
        return wrong(format!(
            "the adopted disk {id} of {} in {} slots is not the whole volume of {} in {} extents with one \
             copy",
            device.size,
            device.slots,
            superblock.volume_size,
            superblock.extents()
        ));
    }
    Ok(())
}

/// Verifies a place of the device table alone: reads of the table have a bounded length.
pub(super) fn verify_table_place(table: &TablePlace) -> Result<(), Invalid> {
    let (half, most) = (table.len / 2, device_table_room(MOST_DEVICES));
    let bounded = table.offset.checked_add(table.len).is_some() && half <= most;
    if !bounded || half * 2 != table.len || !on_pages(table.offset, half) {
        return wrong(format!("device table {table}: not two halves of whole pages, {most} each at most"));
    }
    Ok(())
}

fn tables_lie_on_their_devices(superblock: &Superblock) -> Result<(), Invalid> {
    let least = Bytes::of_len(table_len(superblock.devices.len(), superblock.regions.len()));
    for table in &superblock.tables {
        verify_table_place(table)?;
        let room = superblock.devices.get(table.device.index()).map(DeviceEntry::room);
        let inside =
            room.is_some_and(|room| table.offset >= room.start && table.offset + table.len <= room.end);
        if !inside || table.len / 2 < least {
            return wrong(format!(
                "device table {table}: too short for {least} in each half, or not between superblock copies"
            ));
        }
    }
    match superblock.tables.as_slice() {
        [_] => Ok(()),
        [first, second] if first.device != second.device => Ok(()),
        _ => wrong("the device table is not on one device or on two different ones".to_owned()),
    }
}

/// Regions and tables of one device are disjoint.
fn nothing_overlaps(superblock: &Superblock) -> Result<(), Invalid> {
    let regions = superblock.regions.iter().map(|r| (r.device, r.offset, r.len));
    let tables = superblock.tables.iter().map(|t| (t.device, t.offset, t.len));
    let mut places: Vec<_> = regions.chain(tables).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        let ((device, offset, len), (next_device, next, _)) = (pair[0], pair[1]);
        if device == next_device && offset + len > next {
            return wrong(format!("the regions at {offset} and {next} of {device} overlap"));
        }
    }
    Ok(())
}

fn needed_regions_are_there(superblock: &Superblock) -> Result<(), Invalid> {
    let mut seen = HashSet::new();
    // Cache tables, checksum regions and epoch journals are counted for each device.
    let per_device = |region: &Region| {
        use RegionKind::{CacheTable, Checksums, EpochJournal};
        matches!(region.kind, CacheTable | Checksums | EpochJournal).then_some(region.device)
    };
    for region in &superblock.regions {
        // A reproduced region lies beside its void copy.
        if !region.void && !seen.insert((region.kind, region.copy, per_device(region))) {
            return wrong(format!("region {region}: the device table has another such copy"));
        }
        // Nothing in a void region counts. If the volume has grown since, the region may be short.
        if !region.void && !lengths(superblock, region).contains(&region.len) {
            return wrong(format!("region {region}: invalid length for a {}", region.kind));
        }
    }
    if let (Some(first), Some(second)) =
        (superblock.region(RegionKind::Journal, 0), superblock.region(RegionKind::Journal, 1))
        && first.len != second.len
    {
        return wrong(format!("region {second}: the other journal is {} long", first.len));
    }
    let of_two: &[_] = match superblock.copies {
        1 => &[],
        _ => &[(RegionKind::Intents, 0), (RegionKind::DoubleWrite, 0)],
    };
    let of_map: &[_] = match superblock.mapping() {
        Mapping::Dense => &[(RegionKind::Map, 0), (RegionKind::Map, 1)],
        Mapping::OwnAddress => &[],
    };
    let always = [(RegionKind::Journal, 0), (RegionKind::Proof, 0)];
    for &(kind, copy) in always.iter().chain(of_map).chain(of_two) {
        if !superblock.regions.iter().any(|region| (region.kind, region.copy) == (kind, copy)) {
            return wrong(format!("there is no {kind} copy {copy} in the device table"));
        }
        if superblock.regions.iter().all(|region| region.kind != kind || region.void) {
            return wrong(format!("every {kind} in the device table is void"));
        }
    }
    Ok(())
}

/// The allowed lengths of a region. The region's device must exist.
fn lengths(superblock: &Superblock, region: &Region) -> RangeInclusive<Bytes> {
    let at_least = |len: Bytes| len..=Bytes(u64::MAX);
    match region.kind {
        RegionKind::Journal => JOURNAL_LEN,
        RegionKind::Proof => at_least(proof_len()),
        RegionKind::Map => at_least(superblock.map_len()),
        RegionKind::Intents => at_least(intents_len(superblock.spans())),
        RegionKind::DirtySpans => at_least(dirty_spans_len(superblock.spans())),
        RegionKind::Sums => at_least(sums_len()),
        RegionKind::PolicyState => at_least(policy_state_len()),
        RegionKind::DoubleWrite => double_write_len(1)..=double_write_len(u32::MAX),
        RegionKind::CacheTable => {
            let slots = superblock.devices[region.device.index()].slots;
            at_least(cache_table_len(slots, superblock.extent_size, superblock.block_size))
        }
        RegionKind::Checksums | RegionKind::EpochJournal => at_least(PAGE),
    }
}

fn on_pages(offset: Bytes, len: Bytes) -> bool {
    len > Bytes::ZERO && offset.is_aligned(PAGE) && len.is_aligned(PAGE)
}

fn wrong<T>(what: String) -> Result<T, Invalid> {
    Err(Invalid::Value(what))
}
