//! Making a volume: sizes, layout, empty map images, superblocks last.

use crate::open::write_superblocks;
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceClass, DeviceId, KIB, MIB, Rng};
use braid_format::layout::{self, METADATA_START, MOST_DEVICES, SMALLEST_DEVICE, SUPERBLOCK_ROOM};
use braid_format::superblock::{self, DeviceEntry, Features, LONGEST_NAME, LONGEST_POLICY, Superblock};
use braid_format::{Uuid, journal, map_page};
use braid_policy::DeviceView;
use braid_runtime::{Arena, Buf, Device};

/// What a new volume shall be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its name, at most 63 bytes.
    pub name: String,
    /// Its identity: 128 random bits.
    pub identity: Uuid,
    /// Its size; none for as much as the devices that the policy uses can hold.
    pub size: Option<Bytes>,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent, 1 or 2.
    pub copies: u8,
    /// The policy, as `name,key=value,…`.
    pub policy: String,
    /// For each device, the model that it emulates; empty for none.
    pub models: Vec<String>,
    /// Whether devices may be overwritten that hold something else.
    pub overwrite: bool,
}

impl CreateOptions {
    /// The defaults: 128 KiB extents, 4 KiB blocks, one copy, `wardrop`, all the room there is.
    pub fn new(name: impl Into<String>, identity: Uuid) -> CreateOptions {
        CreateOptions {
            name: name.into(),
            identity,
            size: None,
            extent_size: KIB * 128,
            block_size: KIB * 4,
            copies: 1,
            policy: "wardrop".to_owned(),
            models: Vec::new(),
            overwrite: false,
        }
    }
}

/// Slots that no volume may count on: moves need somewhere to go.
const SPARE_SLOTS: u32 = 4;
/// The share of slots kept free for moves: one in this many.
const SPARE_SHARE: u32 = 100;
/// How much at the start of a device must be zero for it to count as empty.
const LOOK_FOR_CONTENT: Bytes = Bytes(1 << 20);

/// Makes a volume on `devices`, in the order of their ids. It is open to nobody afterwards: open it.
pub async fn create<D: Device>(devices: &[D], options: &CreateOptions) -> Result<Superblock> {
    let superblock = plan(devices, options)?;
    if !options.overwrite {
        refuse_content(devices).await?;
    }
    write_empty_map(devices, &superblock).await?;
    erase_journal(devices, &superblock).await?;
    let all: Vec<&D> = devices.iter().collect();
    write_superblocks(&all, &superblock, &(0..devices.len()).collect::<Vec<_>>()).await?;
    Ok(superblock)
}

/// Decides the sizes and the layout.
fn plan<D: Device>(devices: &[D], options: &CreateOptions) -> Result<Superblock> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
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
    let (extent_size, block_size) = (options.extent_size, options.block_size);
    superblock::check_sizes(MIB, extent_size, block_size).or_else(invalid_text)?;
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
    // The map's size depends on the volume's, which depends on the room that the map leaves: count it once for the
    // largest volume there could be.
    let most: Bytes = devices.iter().map(|d| d.geometry().size).sum();
    let volume_size = options.size.unwrap_or(most).min(most);
    let entries = entries(devices, options, volume_size)?;
    let views = views(&entries);
    let policy = braid_policy::parse(&options.policy, &views)
        .map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
    let room = |view: &DeviceView| {
        let spare = SPARE_SLOTS.max(view.slots / SPARE_SHARE);
        u64::from(view.slots.saturating_sub(spare + policy.extra_slots(view)))
    };
    let (all, largest) = views.iter().map(room).fold((0, 0), |(all, largest), r| (all + r, r.max(largest)));
    let most = extent_size
        * match options.copies {
            1 => all,
            // The second copy lies on another device: what the others have no room for, the largest cannot use.
            _ => (all / 2).min(all - largest),
        };
    let homes = extent_size * views.iter().filter(|v| policy.uses(v)).map(room).sum::<u64>();
    let size = options.size.unwrap_or(homes.min(most));
    if size > most {
        return invalid(format!(
            "a volume of {size} does not fit: the devices have room for {most} (after metadata, {} cop{} and slots kept \
             for moves); use a smaller --size or larger devices",
            options.copies,
            if options.copies == 1 { "y" } else { "ies" }
        ));
    }
    superblock::check_sizes(size, extent_size, block_size).or_else(invalid_text)?;
    let text = written_policy(&*policy);
    if text.len() > LONGEST_POLICY {
        return invalid(format!(
            "the policy's settings have {} characters: at most {LONGEST_POLICY}",
            text.len()
        ));
    }
    let (metadata, second) = metadata_devices(&entries);
    Ok(Superblock {
        sequence: 1,
        generation: 1,
        features: Features::default(),
        volume: options.identity,
        name: options.name.clone(),
        volume_size: size,
        extent_size,
        block_size,
        copies: options.copies,
        this_device: DeviceId(0),
        metadata_device: metadata,
        second_metadata_device: second,
        policy: text,
        devices: entries,
    })
}

fn invalid_text(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::Invalid, message))
}

/// A policy as it is written in the superblock.
pub(crate) fn written_policy(policy: &dyn braid_policy::Policy) -> String {
    let settings = policy.settings();
    if settings.is_empty() { policy.name().to_owned() } else { format!("{},{settings}", policy.name()) }
}

/// The devices as a policy sees them, all empty.
pub(crate) fn views(entries: &[DeviceEntry]) -> Vec<DeviceView> {
    let view = |(i, e): (usize, &DeviceEntry)| DeviceView {
        id: DeviceId(i as u16),
        class: e.class,
        slots: e.slots,
        free: e.slots,
        in_flight: 0,
    };
    entries.iter().enumerate().map(view).collect()
}

/// Journal and map image 0 on the first SSD, image 1 on the first other device; all on the only one.
fn metadata_devices(entries: &[DeviceEntry]) -> (DeviceId, DeviceId) {
    let find = |wanted: &dyn Fn(&DeviceEntry) -> bool| entries.iter().position(wanted);
    let has_journal = find(&|e| e.journal.is_some()).unwrap_or(0);
    let has_second = find(&|e| e.map[1].is_some()).unwrap_or(0);
    (DeviceId(has_journal as u16), DeviceId(has_second as u16))
}

fn entries<D: Device>(
    devices: &[D],
    options: &CreateOptions,
    volume_size: Bytes,
) -> Result<Vec<DeviceEntry>> {
    let extent_size = options.extent_size;
    let extents = volume_size.0.div_ceil(extent_size.0).min(u64::from(u32::MAX / 2)) as u32;
    let map_len = layout::map_len(extents, options.copies);
    let journal_len = layout::journal_len(volume_size);
    let first = devices.iter().position(|d| d.geometry().class == DeviceClass::Ssd).unwrap_or(0);
    let second = (0..devices.len()).find(|&i| i != first).unwrap_or(first);
    let mut seed = options.identity.0.chunks(8).fold(0u64, |s, half| {
        half.iter().fold(s.rotate_left(31), |s, &byte| s.rotate_left(8) ^ u64::from(byte))
    });
    let (mut entries, mut next_slot) = (Vec::new(), 1u64);
    for (i, device) in devices.iter().enumerate() {
        let geometry = device.geometry();
        let mut at = METADATA_START;
        let mut take = |wanted: bool, len: Bytes| {
            let place = wanted.then_some(at);
            at += if wanted { len } else { Bytes::ZERO };
            place
        };
        let journal = take(i == first, journal_len).map(|offset| (offset, journal_len));
        let map = [take(i == first, map_len), take(i == second, map_len)];
        let slots_offset = at.align_up(extent_size.min(MIB));
        let end = (geometry.size - SUPERBLOCK_ROOM).align_down(SUPERBLOCK_ROOM);
        let slots = end.saturating_sub(slots_offset) / extent_size;
        if slots <= u64::from(SPARE_SLOTS) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "device d{i} has {}: the volume's metadata ({slots_offset}) leaves no room",
                    geometry.size
                ),
            ));
        }
        seed = seed.wrapping_add(1);
        let mut uuid = [0; 16];
        Rng::new(seed).fill(&mut uuid);
        entries.push(DeviceEntry {
            uuid: Uuid(uuid),
            size: geometry.size,
            class: geometry.class,
            model: options.models.get(i).cloned().unwrap_or_default(),
            slots: slots.min(u64::from(u32::MAX / 2)) as u32,
            first_slot: next_slot.min(u64::from(u32::MAX)) as u32,
            slots_offset,
            journal,
            map,
        });
        next_slot += slots;
    }
    if next_slot > u64::from(u32::MAX) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "the devices have {next_slot} extents of {extent_size}: use larger extents, at most 2^32 are numbered"
            ),
        ));
    }
    Ok(entries)
}

/// Refuses devices that hold anything, as far as their first MiB tells.
async fn refuse_content<D: Device>(devices: &[D]) -> Result<()> {
    let buf = buffer(LOOK_FOR_CONTENT).await;
    for (i, device) in devices.iter().enumerate() {
        let read = device.read(Bytes::ZERO, &buf).await;
        read.map_err(|e| Error::io(format_args!("device d{i} could not be read"), &e))?;
        let known = buf.with_bytes(|b| Superblock::decode(&b[..superblock::SIZE.as_usize()]));
        let what = match known {
            Ok(superblock) => format!("belongs to volume '{}' ({})", superblock.name, superblock.volume),
            Err(_) if buf.with_bytes(|b| b.iter().any(|&byte| byte != 0)) => "is not empty".to_owned(),
            Err(_) => continue,
        };
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "device d{i} {what}: everything on it would be lost; use another device, or --force to overwrite it"
            ),
        ));
    }
    Ok(())
}

/// Writes both map images with nothing mapped: what lay there before must not be taken for pages.
async fn write_empty_map<D: Device>(devices: &[D], superblock: &Superblock) -> Result<()> {
    let pages = map_page::pages(superblock.extents(), superblock.copies);
    let buf = buffer(Arena::LARGEST).await;
    let group = (Arena::LARGEST / map_page::SIZE) as u32;
    for first in (0..pages).step_by(group as usize) {
        let count = group.min(pages - first);
        buf.with_bytes_mut(|bytes| {
            for (page, bytes) in (first..first + count).zip(bytes.chunks_exact_mut(map_page::SIZE.as_usize()))
            {
                map_page::encode(bytes, superblock.volume, page, 0, superblock.copies, std::iter::empty());
            }
        });
        for (device, image) in crate::journal::map_images(superblock) {
            let (at, len) = (image + map_page::SIZE * u64::from(first), map_page::SIZE * u64::from(count));
            let written = devices[device.index()].write(at, &buf.slice(Bytes::ZERO..len)).await;
            written.map_err(|e| Error::io(format_args!("the map could not be written to {device}"), &e))?;
        }
    }
    Ok(())
}

/// Makes sure that no batch of an earlier volume with the same UUID is found.
async fn erase_journal<D: Device>(devices: &[D], superblock: &Superblock) -> Result<()> {
    let device = superblock.metadata_device;
    let Some((offset, len)) = superblock.devices[device.index()].journal else { return Ok(()) };
    let buf = buffer(journal::LARGEST_BATCH).await;
    buf.fill_zero();
    let mut at = Bytes::ZERO;
    while at < len {
        let step = buf.len().min(len - at);
        let written = devices[device.index()].write(offset + at, &buf.slice(Bytes::ZERO..step)).await;
        written.map_err(|e| Error::io(format_args!("the journal could not be written to {device}"), &e))?;
        at += step;
    }
    Ok(())
}

/// A buffer of its own for rare work.
pub(crate) async fn buffer(len: Bytes) -> Buf {
    Arena::new(len).alloc(len).await
}
