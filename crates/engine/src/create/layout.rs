//! Places of all structures on the devices of a new volume.

use super::options::{Adoption, CreateOptions};
use super::room::SPARE_SLOTS;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, KIB, MIB, Rng};
use braid_format::layout::{self, METADATA_START};
use braid_format::superblock::{
    DeviceEntry, DeviceState, DirtyBlocks, Features, Layout, Mapping, Phase, Region, RegionKind, Role,
    Superblock, TablePlace,
};
use braid_format::{Fingerprint, Uuid, map_page, map_summary};
use braid_runtime::Device;

/// Largest share of a device for the policy's state: one in this many bytes. Smaller devices, below 32 MiB,
/// do not keep the state.
const LARGEST_STATE_SHARE: u64 = 64;

/// Lays out a volume of at most `volume_size`. The first SSD and the first other device (the record beside an
/// adopted disk, or the disk that keeps epochs) each have a journal, a proof, a map image and a double-write
/// area. With two copies or an SSD, both have the table of spans. With two copies, both have the policy's
/// state; with one, only the first. A single device has one journal and proof, both map images, and no
/// double-write area. An adopted disk needs no map.
pub(super) fn lay_out<D: Device>(
    devices: &[D],
    options: &CreateOptions,
    volume_size: Bytes,
    keeps_epochs: bool,
) -> Result<Superblock> {
    let (extent_size, copies) = (options.extent_size, options.copies);
    let is_disk = |i: usize| options.adoption.is_some_and(|adoption| adoption.disk == i);
    let is_ssd = |i: usize| devices[i].geometry().class == DeviceClass::Ssd && !is_disk(i);
    let first = (0..devices.len()).find(|&i| is_ssd(i)).unwrap_or(0);
    let image = keeps_epochs.then(|| image(devices, options)).transpose()?;
    let second = match (options.adoption, image) {
        (Some(adoption), _) => adoption.record,
        // The disk that keeps epochs must be enough for a recovery.
        (None, Some(image)) => image,
        (None, None) => (0..devices.len()).find(|&i| i != first).unwrap_or(first),
    };
    let table = layout::device_table_room(devices.len()) * 2;
    let is_metadata = |i: usize| i == first || i == second;
    let entries = entries(devices, options, |i| if is_metadata(i) { table } else { Bytes::ZERO })?;
    let place = |i: usize| {
        let offset = match entries[i].layout {
            Layout::Head => METADATA_START,
            Layout::Tail => layout::superblock_offsets(entries[i].size, Layout::Tail)[0] - table,
            Layout::Adopted => unreachable!("no metadata lies on an adopted disk"),
        };
        TablePlace { device: DeviceId(i as u16), offset, len: table }
    };
    let mut tables = vec![place(first)];
    if second != first {
        tables.push(place(second));
    }
    let mut superblock = Superblock {
        sequence: 1,
        epoch: 1,
        phase: Phase::Closed,
        features: Features::default(),
        volume: options.identity,
        name: options.name.clone(),
        volume_size: volume_size.min(extent_size * u64::from(u32::MAX / 2)),
        extent_size,
        block_size: options.block_size,
        span_extents: layout::span_extents(volume_size, extent_size, options.span_size),
        copies,
        policy: String::new(),
        dirty_blocks: DirtyBlocks::None,
        tables,
        owner: 0,
        devices: entries,
        regions: Vec::new(),
    };
    let is_large = map_summary::group_pages(superblock.map_pages()).is_some();
    if options.adoption.is_none() && (is_large || options.map_group.is_some()) {
        superblock.features.incompat |= Features::MAP_SUMMARY;
    }
    let id = |place: usize| DeviceId(place as u16);
    superblock.regions = regions(&superblock, id(first), id(second), image.map(id))?;
    if superblock.region(RegionKind::CacheTable, 0).is_some() {
        superblock.features.incompat |= Features::CLEAN_EXTRAS;
    }
    Ok(superblock)
}

/// Index of the disk that is to keep epochs.
fn image<D: Device>(devices: &[D], options: &CreateOptions) -> Result<usize> {
    let is_disk = |&place: &usize| devices[place].geometry().class == DeviceClass::Hdd;
    let mut disks =
        (0..devices.len()).filter(is_disk).filter(|&i| options.layouts.get(i) == Some(&Layout::Tail));
    match (disks.next(), disks.next()) {
        (Some(place), None) if options.copies == 2 => Ok(place),
        _ => {
            let text = "epochs need two copies of everything, and one disk with all of the volume at its \
                        addresses: create the disk with layout=tail, or use order=lba";
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// Lays out the regions: adjacent in the first slots of a device, or in its last slots if the device keeps
/// addresses.
fn regions(
    superblock: &Superblock,
    first: DeviceId,
    second: DeviceId,
    image: Option<DeviceId>,
) -> Result<Vec<Region>> {
    let mut regions = needed_regions(superblock, first, second);
    if let Some(device) = image {
        let len = layout::epoch_journal_len(superblock.volume_size, superblock.extent_size);
        regions.push(Region {
            kind: RegionKind::EpochJournal,
            copy: 0,
            device,
            offset: Bytes::ZERO,
            len,
            void: false,
        });
    }
    for (id, entry) in (0..).map(DeviceId).zip(&superblock.devices) {
        place_regions(&mut regions, id, entry, superblock.extent_size)?;
    }
    Ok(regions)
}

/// Places the regions of one device in its slots.
fn place_regions(
    regions: &mut [Region],
    id: DeviceId,
    entry: &DeviceEntry,
    extent_size: Bytes,
) -> Result<()> {
    let len: Bytes = regions.iter().filter(|region| region.device == id).map(|region| region.len).sum();
    let used = len.0.div_ceil(extent_size.0);
    let spare = if entry.role.contains(Role::DATA) { u64::from(SPARE_SLOTS) + 1 } else { 0 };
    if used > 0 && used + spare > u64::from(entry.slots) {
        return Err(no_room(id.index(), entry.size, entry.slots_offset + len));
    }
    let first_slot = match entry.layout {
        Layout::Head | Layout::Adopted => 0,
        Layout::Tail => u64::from(entry.slots) - used,
    };
    let mut offset = entry.slots_offset + extent_size * first_slot;
    for region in regions.iter_mut().filter(|region| region.device == id) {
        region.offset = offset;
        offset += region.len;
    }
    Ok(())
}

/// Regions of a device that joins a volume: two images of a cache table on an SSD, none on a disk.
pub(crate) fn added_regions(
    superblock: &Superblock,
    id: DeviceId,
    entry: &DeviceEntry,
) -> Result<Vec<Region>> {
    let mut regions = match entry.class {
        DeviceClass::Ssd => cache_tables(superblock, id, entry).to_vec(),
        DeviceClass::Hdd => Vec::new(),
    };
    place_regions(&mut regions, id, entry, superblock.extent_size)?;
    Ok(regions)
}

/// Two images of the cache table of an SSD, without offsets.
fn cache_tables(superblock: &Superblock, device: DeviceId, entry: &DeviceEntry) -> [Region; 2] {
    let len = layout::cache_table_len(entry.slots, superblock.extent_size, superblock.block_size);
    [0, 1].map(|copy| Region {
        kind: RegionKind::CacheTable,
        copy,
        device,
        offset: Bytes::ZERO,
        len,
        void: false,
    })
}

/// Kinds and lengths of all needed regions, without offsets.
fn needed_regions(superblock: &Superblock, first: DeviceId, second: DeviceId) -> Vec<Region> {
    let map = match superblock.mapping() {
        Mapping::Dense => superblock.map_len(),
        Mapping::OwnAddress => Bytes::ZERO,
    };
    let intents = layout::intents_len(superblock.spans());
    let journal = layout::journal_len(superblock.volume_size);
    let pages = (map.max(intents) / map_page::SIZE) as u32;
    let pairs = first != second;
    let has_cache = superblock.devices.iter().any(|entry| entry.class == DeviceClass::Ssd);
    let lens = [
        (RegionKind::Journal, journal),
        (RegionKind::Proof, layout::proof_len()),
        (RegionKind::Map, map),
        (RegionKind::Intents, intents),
        (RegionKind::DoubleWrite, layout::double_write_len(pages)),
        (RegionKind::PolicyState, layout::policy_state_len()),
    ];
    let keeps_state = |device: DeviceId| {
        layout::policy_state_len() <= superblock.devices[device.index()].size / LARGEST_STATE_SHARE
    };
    let mut regions = Vec::new();
    let mut add = |kind, copy, device, len| {
        regions.push(Region { kind, copy, device, offset: Bytes::ZERO, len, void: false });
    };
    for (copy, device) in [(0, first), (1, second)] {
        for (kind, len) in lens {
            let wanted = match kind {
                RegionKind::Map => superblock.mapping() == Mapping::Dense,
                // With one required copy, the table is for clean cached copies on SSDs.
                RegionKind::Intents => superblock.copies > 1 || has_cache,
                RegionKind::PolicyState => keeps_state(device) && (copy == 0 || superblock.copies > 1),
                // With one required copy, the second journal and the double-write areas serve for the loss of
                // the other device.
                RegionKind::DoubleWrite => pairs,
                _ => copy == 0 || pairs,
            };
            if wanted {
                add(kind, copy, device, len);
            }
        }
    }
    if superblock.adopted().is_some() {
        add(RegionKind::DirtySpans, 0, second, layout::dirty_spans_len(superblock.spans()));
        add(RegionKind::Sums, 0, second, layout::sums_len());
    }
    // Two images of a cache table on each SSD. Disks have none: a cached copy must be faster than its home.
    for (id, entry) in (0..).map(DeviceId).zip(&superblock.devices) {
        if entry.class == DeviceClass::Ssd && entry.layout != Layout::Adopted {
            regions.extend(cache_tables(superblock, id, entry));
        }
    }
    regions
}

/// Smallest size of the record of a volume on an adopted disk: a journal and tables of 2 to 66 MiB, in whole
/// slots.
pub fn record_len(disk: Bytes, devices: usize, options: &CreateOptions) -> Bytes {
    let CreateOptions { extent_size, span_size, .. } = *options;
    let span = layout::span_extents(disk, extent_size, span_size);
    let spans = (disk.0.div_ceil(extent_size.0) as u32).div_ceil(span);
    let intents = layout::intents_len(spans);
    let regions = layout::journal_len(disk)
        + layout::proof_len()
        + intents
        + layout::double_write_len((intents / map_page::SIZE) as u32)
        + layout::dirty_spans_len(spans)
        + layout::sums_len()
        + layout::policy_state_len();
    let start = (METADATA_START + layout::device_table_room(devices) * 2).align_up(MIB);
    let slots = regions.align_up(extent_size).max(extent_size * u64::from(SPARE_SLOTS + 1));
    (start + slots + layout::SUPERBLOCK_ROOM * 2).max(layout::SMALLEST_DEVICE)
}

fn no_room(device: usize, size: Bytes, metadata: Bytes) -> Error {
    let text = format!(
        "device d{device} has {size}: the volume's metadata ({metadata}) leaves no room; use a larger device"
    );
    Error::new(ErrorKind::Invalid, text)
}

/// Entries of the devices. All room between the superblocks is slots, except for `reserved` bytes of each
/// device.
fn entries<D: Device>(
    devices: &[D],
    options: &CreateOptions,
    reserved: impl Fn(usize) -> Bytes,
) -> Result<Vec<DeviceEntry>> {
    let extent_size = options.extent_size;
    let mut seed = options.identity.0.chunks(8).fold(0u64, |s, half| {
        half.iter().fold(s.rotate_left(31), |s, &byte| s.rotate_left(8) ^ u64::from(byte))
    });
    let (mut entries, mut next_slot) = (Vec::new(), 1u64);
    for (i, device) in devices.iter().enumerate() {
        let geometry = device.geometry();
        let layout = options.layouts.get(i).copied().unwrap_or(Layout::Head);
        seed = seed.wrapping_add(1);
        let mut uuid = [0; 16];
        Rng::new(seed).fill(&mut uuid);
        let (layout, role) = match &options.adoption {
            Some(Adoption { disk, .. }) if *disk == i => (Layout::Adopted, Role::DATA),
            Some(Adoption { record, .. }) if *record == i => (layout, Role::METADATA),
            _ if reserved(i) > Bytes::ZERO => (layout, Role::DATA | Role::METADATA),
            _ => (layout, Role::DATA),
        };
        if let (Layout::Adopted, Some(adoption)) = (layout, &options.adoption) {
            uuid = adoption.identity.0;
        }
        let (slots_offset, slots) = room_for_slots(i, geometry.size, layout, reserved(i), extent_size)?;
        entries.push(DeviceEntry {
            uuid: Uuid(uuid),
            size: geometry.size,
            class: geometry.class,
            model: options.models.get(i).cloned().unwrap_or_default(),
            slots: slots.min(u64::from(u32::MAX / 2)) as u32,
            first_slot: next_slot.min(u64::from(u32::MAX)) as u32,
            slots_offset,
            state: DeviceState::Active,
            role,
            layout,
            in_step: 1,
            fingerprint: Fingerprint::default(),
        });
        next_slot += slots;
    }
    if next_slot >= u64::from(u32::MAX) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "the devices have {next_slot} extents of {extent_size}, and at most 2^32 - 1 have numbers: \
                 use larger extents"
            ),
        ));
    }
    Ok(entries)
}

/// Returns the offset of the first slot of a device, and the number of slots between the superblocks, except
/// for `reserved`.
pub(crate) fn room_for_slots(
    device: usize,
    size: Bytes,
    layout: Layout,
    reserved: Bytes,
    extent_size: Bytes,
) -> Result<(Bytes, u64)> {
    if layout == Layout::Adopted {
        return Ok((Bytes::ZERO, size.0.div_ceil(extent_size.0)));
    }
    let superblocks = layout::superblock_offsets(size, layout);
    let (offset, end) = match layout {
        Layout::Head => {
            ((METADATA_START + reserved).align_up(extent_size.clamp(KIB * 4, MIB)), superblocks[2])
        }
        Layout::Tail | Layout::Adopted => (Bytes::ZERO, superblocks[0].saturating_sub(reserved)),
    };
    let slots = end.saturating_sub(offset) / extent_size;
    if slots <= u64::from(SPARE_SLOTS) {
        return Err(no_room(device, size, offset));
    }
    Ok((offset, slots))
}
