//! Creates a volume: sizes, layout, empty map images, superblocks last.

mod empty;
mod layout;
mod options;
mod policy;
mod room;

pub(crate) use empty::write_empty_regions;
pub use layout::record_len;
pub(crate) use layout::{added_regions, room_for_slots};
pub use options::{Adoption, CreateOptions};
pub(crate) use policy::checked_policy;
pub(crate) use room::room;
pub use room::{Fit, Left, RoomLeft, SPARE_SLOTS, room_left};

use crate::adopted::{Disk, fingerprint_of, refuse_moving_homes, write_first_sums};
use crate::buffer::buffer;
use crate::devices::write_new;
use crate::map::State;
use crate::shape::Shape;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, KIB, MIB};
use braid_format::layout::{MOST_DEVICES, SMALLEST_DEVICE};
use braid_format::superblock::{self, Header, LONGEST_NAME, RegionKind, Superblock};
use braid_policy::DeviceView;
use braid_runtime::{Buf, Device};

/// Length at the start and at the end of a device that must be zero, so that the device counts as empty.
const LOOK_FOR_CONTENT: Bytes = Bytes(1 << 20);

/// Creates a volume on `devices`, in the order of their ids. The volume is not open afterwards.
pub async fn create<D: Device>(devices: &[D], options: &CreateOptions) -> Result<Superblock> {
    let mut superblock = plan(devices, options)?;
    let disk = superblock.adopted();
    let is_overwritten = |place: usize| disk.is_none_or(|disk| disk.index() != place);
    for (i, device) in devices.iter().enumerate().filter(|(i, _)| !options.overwrite && is_overwritten(*i)) {
        refuse_content(device, &format!("device d{i}")).await?;
    }
    if let Some(disk) = disk {
        let device = &devices[disk.index()];
        let geometry = device.geometry();
        let read = async |at: Bytes, into: &Buf| device.read(at, into).await;
        let place = Disk { id: disk, size: geometry.size, alignment: geometry.alignment };
        // The sums must describe contents that survive a power cut.
        device.flush().await.map_err(|e| Error::io(format_args!("device {disk} could not flush"), &e))?;
        let (fingerprint, marks) = fingerprint_of(place, read).await?;
        superblock.devices[disk.index()].fingerprint = fingerprint;
        if let Some(region) = superblock.region(RegionKind::Sums, 0) {
            let (record, volume) = (&devices[region.device.index()], superblock.volume);
            write_first_sums(record, region.offset, volume, place, &marks, read).await?;
        }
    }
    let all: Vec<Option<&D>> = devices.iter().map(Some).collect();
    write_empty_regions(&all, &superblock, options.map_group).await?;
    write_new(&[&all], &superblock).await?;
    Ok(superblock)
}

/// Returns the slots for data on each device of a volume as [`create`] would make it. Writes nothing.
pub fn planned_slots<D: Device>(devices: &[D], options: &CreateOptions) -> Result<Vec<u32>> {
    let superblock = plan(devices, options)?;
    Ok(State::new(&Shape::of(&superblock), &superblock).views.iter().map(|view| view.free).collect())
}

/// Refuses options and devices of which no volume can be made.
fn check_options<D: Device>(devices: &[D], options: &CreateOptions) -> Result<()> {
    if devices.is_empty() || devices.len() > MOST_DEVICES {
        return invalid(format!("a volume has 1 to {MOST_DEVICES} devices, not {}", devices.len()));
    }
    if options.name.is_empty() || options.name.len() > LONGEST_NAME {
        return invalid(format!(
            "the name '{}' has {} bytes: use 1 to {LONGEST_NAME}",
            options.name,
            options.name.len()
        ));
    }
    if !matches!(options.copies, 1 | 2) || usize::from(options.copies) > devices.len() {
        return invalid(format!(
            "{} required copies on {} device(s): use 1, or 2 with at least two devices",
            options.copies,
            devices.len()
        ));
    }
    let extent_size = options.extent_size;
    superblock::check_sizes(MIB, extent_size, options.block_size).or_else(invalid)?;
    if let Some(adoption) = &options.adoption {
        check_adoption(devices, options, adoption)?;
    }
    for (i, device) in devices.iter().enumerate() {
        let geometry = device.geometry();
        if geometry.size < SMALLEST_DEVICE.max(extent_size * 4) {
            return invalid(format!(
                "device d{i} has {}: use at least {} with extents of {extent_size}",
                geometry.size,
                SMALLEST_DEVICE.max(extent_size * 4)
            ));
        }
        if geometry.alignment > KIB * 4 {
            return invalid(format!(
                "device d{i} needs requests of {}: at most 4 KiB is supported",
                geometry.alignment
            ));
        }
    }
    Ok(())
}

/// Decides the sizes and the layout.
fn plan<D: Device>(devices: &[D], options: &CreateOptions) -> Result<Superblock> {
    check_options(devices, options)?;
    let (extent_size, block_size) = (options.extent_size, options.block_size);
    // The size of the map depends on the size of the volume, which depends on the room left by the map. The
    // map is therefore sized once, for the largest possible volume.
    let most: Bytes = match &options.adoption {
        Some(adoption) => devices[adoption.disk].geometry().size,
        None => devices.iter().map(|d| d.geometry().size).sum(),
    };
    let largest = options.size.unwrap_or(most).min(most);
    let mut superblock = layout::lay_out(devices, options, largest, false)?;
    let parse = |superblock: &Superblock| {
        let views = State::new(&Shape::of(superblock), superblock).views;
        let policy = braid_policy::parse(&options.policy, &views);
        policy.map(|policy| (views, policy)).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))
    };
    let (mut views, policy) = parse(&superblock)?;
    if options.adoption.is_some() {
        refuse_moving_homes(&*policy, &views)?;
        superblock.policy = checked_policy(&*policy, options.copies)?;
        superblock.verify().map_err(|wrong| Error::new(ErrorKind::Invalid, wrong.to_string()))?;
        return Ok(superblock);
    }
    if policy.keeps_epochs() {
        superblock = layout::lay_out(devices, options, largest, true)?;
        (views, _) = parse(&superblock)?;
    }
    let (most, homes) = room(&views, &superblock.devices, &*policy, extent_size, options.copies);
    let size = options.size.unwrap_or_else(|| match options.left {
        Left::Nothing => homes.min(most),
        Left::ForPolicies => {
            room::usual_size(&views, &superblock.devices, &*policy, extent_size, options.copies)
        }
    });
    if size > most {
        return invalid(format!(
            "a volume of {size} does not fit: the devices have room for {most} (after metadata, {} cop{} and slots kept \
             for moves); use a smaller --size or larger devices",
            options.copies,
            if options.copies == 1 { "y" } else { "ies" }
        ));
    }
    if policy.keeps_epochs() {
        let is_ssd = |view: &&DeviceView| view.class == DeviceClass::Ssd;
        let slots: u64 = views.iter().filter(is_ssd).map(|view| u64::from(view.free)).sum();
        if extent_size * slots < size {
            return invalid(format!(
                "policy '{}' keeps all of the volume on the SSDs, and the SSDs have room for {}: use a \
                 smaller --size or larger SSDs",
                options.policy,
                extent_size * slots
            ));
        }
    }
    superblock::check_sizes(size, extent_size, block_size).or_else(invalid)?;
    superblock.volume_size = size;
    superblock.policy = checked_policy(&*policy, options.copies)?;
    superblock.verify().map_err(|wrong| Error::new(ErrorKind::Invalid, wrong.to_string()))?;
    Ok(superblock)
}

/// Checks that a disk can be adopted as it is.
fn check_adoption<D: Device>(devices: &[D], options: &CreateOptions, adoption: &Adoption) -> Result<()> {
    let disk = devices[adoption.disk].geometry();
    let is_cache = |i: usize| i != adoption.disk && i != adoption.record;
    let is_ssd = |i: usize| devices[i].geometry().class == DeviceClass::Ssd;
    if adoption.disk == adoption.record || !(0..devices.len()).any(is_cache) {
        return invalid("an adopted disk needs an SSD before it: give one with --ssd".to_owned());
    }
    if let Some(other) = (0..devices.len()).find(|&i| is_cache(i) && !is_ssd(i)) {
        return invalid(format!("device d{other} is not an SSD: only SSDs can cache an adopted disk"));
    }
    if options.copies != 1 {
        return invalid(format!(
            "{} copies of an adopted disk: the disk holds the only copy, use 1",
            options.copies
        ));
    }
    if let Some(size) = options.size.filter(|&size| size != disk.size) {
        return invalid(format!(
            "a size of {size} for an adopted disk of {}: the volume has the size of the disk, leave the \
             size out",
            disk.size
        ));
    }
    let least = record_len(disk.size, devices.len(), options);
    let record = devices[adoption.record].geometry().size;
    if record < least {
        return invalid(format!("the record of the volume has {record}: use at least {least}"));
    }
    Ok(())
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Refuses a device with contents in its first or last MiB. The end reveals RAID members, ZFS pools, and
/// partitioned disks with a wiped start.
pub(crate) async fn refuse_content<D: Device>(device: &D, name: &str) -> Result<()> {
    let size = device.geometry().size;
    let buf = buffer(LOOK_FOR_CONTENT.min(size)).await;
    let end = (size - buf.len()).align_down(KIB * 4);
    for (offset, describe) in [(Bytes::ZERO, describe_start as fn(&[u8]) -> String), (end, describe_end)] {
        let read = device.read(offset, &buf).await;
        read.map_err(|e| Error::io(format_args!("{name} could not be read"), &e))?;
        if !buf.with_bytes(|bytes| bytes.iter().any(|&byte| byte != 0)) {
            continue;
        }
        let what = buf.with_bytes(describe);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "{name} {what}: all data on the device would be lost; use another device, or --force to \
                 overwrite it"
            ),
        ));
    }
    Ok(())
}

/// Description of the start of a device that is not empty.
fn describe_start(bytes: &[u8]) -> String {
    match Header::decode(&bytes[..superblock::SIZE.as_usize()]) {
        Ok(header) => format!("belongs to volume '{}' ({})", header.name, header.volume),
        Err(_) => "is not empty".to_owned(),
    }
}

/// Description of the end of a device that is not empty.
fn describe_end(bytes: &[u8]) -> String {
    /// At the start of the superblock of versions 0.90 and 1.0, in this or the other byte order.
    const MD: [[u8; 4]; 2] = [0xa92b_4efc_u32.to_le_bytes(), 0xa92b_4efc_u32.to_be_bytes()];
    /// At the start of each uberblock in the third and fourth label.
    const ZFS: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];
    let at_starts = |unit: usize, is_it: &dyn Fn(&[u8]) -> bool| bytes.chunks(unit).any(is_it);
    let what = if at_starts(4096, &|page| MD.iter().any(|magic| page.starts_with(magic))) {
        "a member of an md RAID is there"
    } else if at_starts(1024, &|block| ZFS.iter().any(|magic| block.starts_with(magic))) {
        "a member of a ZFS pool is there"
    } else if at_starts(512, &|sector| sector.starts_with(b"EFI PART")) {
        "the backup of a GPT partition table is there"
    } else {
        "something is there"
    };
    format!("is not empty at its end ({what})")
}
