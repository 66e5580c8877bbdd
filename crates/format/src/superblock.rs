//! The superblock: what volume a device belongs to, as which of its devices, and where everything lies.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDVOL"
//! 8       4     CRC-32C of bytes 12..8192
//! 12      4     format version: 1
//! 16      8     sequence: one more at each change
//! 24      8     features that an older version may ignore (compat)
//! 32      8     features that an older version may read but not write (read-only compat)
//! 40      8     features that an older version must not touch (incompat)
//! 48      16    volume UUID
//! 64      8     volume size in bytes
//! 72      4     extent size in bytes
//! 76      4     block size in bytes
//! 80      1     this device's place in the table
//! 81      1     devices in the table
//! 82      1     required copies: 1 or 2
//! 83      1     first metadata device (journal and map image 0)
//! 84      1     second metadata device (map image 1)
//! 85      3     0
//! 88      8     generation: how often the volume was opened
//! 96      64    name, UTF-8, zero-padded
//! 160     1024  policy and its settings, UTF-8, zero-padded
//! 4096    4096  device table: 32 entries of 128 bytes
//!
//! entry   0     16  device UUID
//!         16    8   size in bytes
//!         24    4   slots
//!         28    4   first slot number
//!         32    8   offset of slot 0
//!         40    8   offset of the journal, 0: none
//!         48    8   length of the journal
//!         56    8   offset of map image 0, 0: none
//!         64    8   offset of map image 1, 0: none
//!         72    1   class: 1 ssd, 2 hdd
//!         73    7   0
//!         80    48  model of an emulated device, UTF-8, zero-padded
//! ```
//!
//! There are three copies on each device; the valid one with the highest sequence counts. All copies of all devices
//! are written at each change, one copy after the other with a flush between, so that a power cut leaves one whole.

use crate::layout::{METADATA_START, MOST_DEVICES, SMALLEST_DEVICE, map_len};
use crate::{Invalid, Uuid, journal};
use braid_base::{Bytes, DeviceClass, DeviceId};
use std::ops::RangeInclusive;

/// The length of a superblock.
pub const SIZE: Bytes = Bytes(8192);
/// The longest name of a volume, in bytes.
pub const LONGEST_NAME: usize = 63;
/// The longest policy with settings, in bytes.
pub const LONGEST_POLICY: usize = 1023;

const MAGIC: [u8; 8] = *b"BRAIDVOL";
/// The lengths that [`crate::layout::journal_len`] gives.
const JOURNAL_LEN: RangeInclusive<Bytes> = Bytes(1 << 20)..=Bytes(64 << 20);
const VERSION: u32 = 1;
const TABLE: usize = 4096;
const ENTRY: usize = 128;

/// Features of the format, as bits. Version 1 has none: a bit that is set comes from the future.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// An older version may ignore these.
    pub compat: u64,
    /// An older version may read, but not write.
    pub read_only_compat: u64,
    /// An older version must not touch the volume.
    pub incompat: u64,
}

/// A superblock, verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// One more at each change.
    pub sequence: u64,
    /// How often the volume was opened: tells a device that was left behind from the others.
    pub generation: u64,
    /// What an older version must know.
    pub features: Features,
    /// The volume's identity.
    pub volume: Uuid,
    /// The volume's name.
    pub name: String,
    /// What the guest sees.
    pub volume_size: Bytes,
    /// The unit of placement.
    pub extent_size: Bytes,
    /// The unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent.
    pub copies: u8,
    /// Which device this superblock lies on.
    pub this_device: DeviceId,
    /// Holds the journal and map image 0.
    pub metadata_device: DeviceId,
    /// Holds map image 1.
    pub second_metadata_device: DeviceId,
    /// The policy and its settings, as `name,key=value,…`.
    pub policy: String,
    /// All devices of the volume.
    pub devices: Vec<DeviceEntry>,
}

/// A device in the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceEntry {
    /// The device's identity.
    pub uuid: Uuid,
    /// Bytes that it had when it was added.
    pub size: Bytes,
    /// What kind it is.
    pub class: DeviceClass,
    /// The model whose timing it emulates; empty for none.
    pub model: String,
    /// Extent slots on it.
    pub slots: u32,
    /// The number of its first slot; the first of all is 1.
    pub first_slot: u32,
    /// Where its first slot lies.
    pub slots_offset: Bytes,
    /// Where the journal lies, if here.
    pub journal: Option<(Bytes, Bytes)>,
    /// Where the map images 0 and 1 lie, if here.
    pub map: [Option<Bytes>; 2],
}

impl Superblock {
    /// As bytes.
    ///
    /// # Panics
    /// Where a text or the table is longer than its room: creation checks that.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE.as_usize()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        assert!(
            self.name.len() <= LONGEST_NAME && self.policy.len() <= LONGEST_POLICY,
            "a text fits its room"
        );
        assert!(self.devices.len() <= MOST_DEVICES, "the device table has {MOST_DEVICES} places");
        put(0, &MAGIC);
        put(12, &VERSION.to_le_bytes());
        put(16, &self.sequence.to_le_bytes());
        put(24, &self.features.compat.to_le_bytes());
        put(32, &self.features.read_only_compat.to_le_bytes());
        put(40, &self.features.incompat.to_le_bytes());
        put(48, &self.volume.0);
        put(64, &self.volume_size.0.to_le_bytes());
        put(72, &(self.extent_size.0 as u32).to_le_bytes());
        put(76, &(self.block_size.0 as u32).to_le_bytes());
        let places = [self.this_device.0 as u8, self.devices.len() as u8, self.copies];
        put(80, &places);
        put(83, &[self.metadata_device.0 as u8, self.second_metadata_device.0 as u8]);
        put(88, &self.generation.to_le_bytes());
        put(96, self.name.as_bytes());
        put(160, self.policy.as_bytes());
        for (device, place) in self.devices.iter().zip(bytes[TABLE..].chunks_exact_mut(ENTRY)) {
            device.encode(place);
        }
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Verifies `bytes`, which are `SIZE` long, as far as one superblock can tell by itself.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Invalid> {
        assert_eq!(bytes.len(), SIZE.as_usize(), "a superblock has one size");
        if bytes[0..8] != MAGIC {
            return Err(Invalid::Absent);
        }
        if bytes[8..12] != crc32c::crc32c(&bytes[12..]).to_le_bytes() {
            return Err(Invalid::Checksum);
        }
        let field = Fields(bytes);
        let features =
            Features { compat: field.u64(24), read_only_compat: field.u64(32), incompat: field.u64(40) };
        let version = field.u32(12);
        if version != VERSION || features.read_only_compat != 0 || features.incompat != 0 {
            return Err(Invalid::Feature(format!(
                "the volume was made by a newer version of Braid (format {version}, features {:#x} to write, {:#x} to \
                 read; this version knows format {VERSION} without features): use that version or a later one",
                features.read_only_compat, features.incompat
            )));
        }
        let count = usize::from(bytes[81]);
        if count == 0 || count > MOST_DEVICES {
            return Err(Invalid::Value(format!(
                "the device table has {count} entries, not 1 to {MOST_DEVICES}"
            )));
        }
        let devices = bytes[TABLE..].chunks_exact(ENTRY).take(count).map(DeviceEntry::decode);
        let superblock = Superblock {
            sequence: field.u64(16),
            generation: field.u64(88),
            features,
            volume: field.uuid(48),
            name: field.text(96, LONGEST_NAME + 1)?,
            volume_size: Bytes(field.u64(64)),
            extent_size: Bytes(u64::from(field.u32(72))),
            block_size: Bytes(u64::from(field.u32(76))),
            copies: bytes[82],
            this_device: DeviceId(u16::from(bytes[80])),
            metadata_device: DeviceId(u16::from(bytes[83])),
            second_metadata_device: DeviceId(u16::from(bytes[84])),
            policy: field.text(160, LONGEST_POLICY + 1)?,
            devices: devices.collect::<Result<_, _>>()?,
        };
        superblock.verify()?;
        Ok(superblock)
    }

    /// The entry of the device that this superblock lies on.
    pub fn this_entry(&self) -> &DeviceEntry {
        &self.devices[self.this_device.index()]
    }

    /// Extents of the volume.
    pub fn extents(&self) -> u32 {
        self.volume_size.0.div_ceil(self.extent_size.0) as u32
    }

    fn verify(&self) -> Result<(), Invalid> {
        let wrong = |what: String| Err(Invalid::Value(what));
        check_sizes(self.volume_size, self.extent_size, self.block_size).map_err(Invalid::Value)?;
        for (device, what) in [
            (self.this_device, "this device"),
            (self.metadata_device, "the metadata device"),
            (self.second_metadata_device, "the second metadata device"),
        ] {
            if device.index() >= self.devices.len() {
                return wrong(format!("{what} is {device} of {} devices", self.devices.len()));
            }
        }
        if !matches!(self.copies, 1 | 2) {
            return wrong(format!("the volume requires {} copies, not 1 or 2", self.copies));
        }
        let mut next = 1u64;
        for (i, device) in self.devices.iter().enumerate() {
            let end = device.slots_offset.0.checked_add(u64::from(device.slots) * self.extent_size.0);
            if u64::from(device.first_slot) != next || end.is_none_or(|end| end > device.size.0) {
                return wrong(format!("the slots of d{i} overlap or reach beyond its end"));
            }
            next += u64::from(device.slots);
        }
        if next > u64::from(u32::MAX) {
            return wrong(format!("{next} slots are more than the map can number"));
        }
        self.verify_metadata()
    }

    /// Journal and map images are where recovery looks for them: on their devices, one behind the other before the slots.
    fn verify_metadata(&self) -> Result<(), Invalid> {
        let wrong = |what: String| Err(Invalid::Value(what));
        let (first, second) =
            (&self.devices[self.metadata_device.index()], &self.devices[self.second_metadata_device.index()]);
        if first.journal.is_none() || first.map[0].is_none() || second.map[1].is_none() {
            return wrong("the journal or a map image is on no device".to_owned());
        }
        let map_len = map_len(self.extents(), self.copies);
        for (i, device) in self.devices.iter().enumerate() {
            if device.size < SMALLEST_DEVICE {
                return wrong(format!("d{i} has {}, less than {SMALLEST_DEVICE}", device.size));
            }
            if device
                .journal
                .is_some_and(|(_, len)| !JOURNAL_LEN.contains(&len) || !len.is_aligned(journal::PAGE))
            {
                return wrong(format!("the journal on d{i} has a length that none can have"));
            }
            let maps = device.map.into_iter().flatten().map(|offset| (offset, map_len));
            let mut free = METADATA_START;
            for (offset, len) in device.journal.into_iter().chain(maps) {
                let end = offset.checked_add(len).filter(|end| *end <= device.slots_offset);
                match end {
                    Some(end) if offset >= free && offset.is_aligned(journal::PAGE) => free = end,
                    _ => return wrong(format!("the metadata of d{i} overlaps or reaches beyond its room")),
                }
            }
        }
        Ok(())
    }
}

/// Checks the three sizes that everything else is computed from: at creation, and of what comes off a device.
/// An error is a sentence that names the limit.
pub fn check_sizes(volume_size: Bytes, extent_size: Bytes, block_size: Bytes) -> Result<(), String> {
    let power_within =
        |size: Bytes, low: u64, high: u64| size.0.is_power_of_two() && (low..=high).contains(&size.0);
    if !power_within(extent_size, 4 << 10, 64 << 20) {
        return Err(format!("the extent size is {extent_size}: use a power of two from 4 KiB to 64 MiB"));
    }
    if !power_within(block_size, 4 << 10, 64 << 10) || block_size > extent_size {
        return Err(format!(
            "the block size is {block_size}: use a power of two from 4 KiB to 64 KiB, at most the extent size"
        ));
    }
    if volume_size == Bytes::ZERO || volume_size.0.div_ceil(extent_size.0) > u64::from(u32::MAX) / 2 {
        return Err(format!(
            "the volume size is {volume_size}: use 1 to {} extents of {extent_size}, or larger extents",
            u32::MAX / 2
        ));
    }
    Ok(())
}

impl DeviceEntry {
    fn encode(&self, bytes: &mut [u8]) {
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let (journal, journal_len) = self.journal.unwrap_or_default();
        let maps = self.map.map(Option::unwrap_or_default);
        put(0, &self.uuid.0);
        put(16, &self.size.0.to_le_bytes());
        put(24, &self.slots.to_le_bytes());
        put(28, &self.first_slot.to_le_bytes());
        for (at, value) in
            [(32, self.slots_offset), (40, journal), (48, journal_len), (56, maps[0]), (64, maps[1])]
        {
            put(at, &value.0.to_le_bytes());
        }
        put(
            72,
            &[match self.class {
                DeviceClass::Ssd => 1,
                DeviceClass::Hdd => 2,
            }],
        );
        put(80, &self.model.as_bytes()[..self.model.len().min(47)]);
    }

    fn decode(bytes: &[u8]) -> Result<DeviceEntry, Invalid> {
        let field = Fields(bytes);
        let at = |offset: usize| Some(Bytes(field.u64(offset))).filter(|&o| o > Bytes::ZERO);
        Ok(DeviceEntry {
            uuid: field.uuid(0),
            size: Bytes(field.u64(16)),
            class: match bytes[72] {
                1 => DeviceClass::Ssd,
                2 => DeviceClass::Hdd,
                other => {
                    return Err(Invalid::Value(format!("device class {other} is not 1 (ssd) or 2 (hdd)")));
                }
            },
            model: field.text(80, 48)?,
            slots: field.u32(24),
            first_slot: field.u32(28),
            slots_offset: Bytes(field.u64(32)),
            journal: at(40).map(|offset| (offset, Bytes(field.u64(48)))),
            map: [at(56), at(64)],
        })
    }
}

/// Little-endian fields at fixed offsets.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    fn uuid(&self, at: usize) -> Uuid {
        Uuid(self.array(at))
    }

    fn text(&self, at: usize, room: usize) -> Result<String, Invalid> {
        let bytes = &self.0[at..at + room];
        let wrong = |what: &str| Invalid::Value(format!("a text in the superblock {what}"));
        let len = bytes.iter().position(|&b| b == 0).ok_or_else(|| wrong("has no end"))?;
        let text = std::str::from_utf8(&bytes[..len]);
        text.map(str::to_owned).map_err(|_| wrong("is no UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, KIB, MIB, Rng};

    fn superblock() -> Superblock {
        let device = |i: u8, class, first_slot| DeviceEntry {
            uuid: Uuid([i; 16]),
            size: GIB,
            class,
            model: "x25-m".to_owned(),
            slots: 8000,
            first_slot,
            slots_offset: MIB * 2,
            journal: (i == 0).then_some((KIB * 32, MIB)),
            map: [(i == 0).then_some(KIB * 32 + MIB), (i == 1).then_some(KIB * 32)],
        };
        Superblock {
            sequence: 7,
            generation: 3,
            features: Features { compat: 1, ..Features::default() },
            volume: Uuid([9; 16]),
            name: "vault".to_owned(),
            volume_size: GIB,
            extent_size: KIB * 128,
            block_size: KIB * 4,
            copies: 1,
            this_device: DeviceId(1),
            metadata_device: DeviceId(0),
            second_metadata_device: DeviceId(1),
            policy: "wardrop,period=2s".to_owned(),
            devices: vec![device(0, DeviceClass::Ssd, 1), device(1, DeviceClass::Hdd, 8001)],
        }
    }

    #[test]
    fn a_superblock_comes_back_as_it_went_in() {
        let superblock = superblock();
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }

    #[test]
    fn a_newer_format_is_refused_with_the_remedy() {
        let mut newer = superblock();
        newer.features.incompat = 4;
        let error = Superblock::decode(&newer.encode()).unwrap_err();
        assert!(matches!(&error, Invalid::Feature(text) if text.contains("newer version")), "{error}");
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        let change: [fn(&mut Superblock); 7] = [
            |s| s.extent_size = KIB * 3,
            |s| s.block_size = KIB * 256,
            |s| s.volume_size = Bytes::ZERO,
            |s| s.copies = 3,
            |s| s.this_device = DeviceId(2),
            |s| s.devices[1].first_slot = 5,
            |s| s.devices[0].slots = 9000,
        ];
        for (i, change) in change.iter().enumerate() {
            let mut wrong = superblock();
            change(&mut wrong);
            assert!(matches!(Superblock::decode(&wrong.encode()), Err(Invalid::Value(_))), "change {i}");
        }
    }

    /// Each of these, with a checksum that fits, made opening panic.
    #[test]
    fn metadata_that_is_not_where_it_must_be_is_refused() {
        let change: [fn(&mut Superblock); 7] = [
            |s| s.devices[0].journal = None,
            |s| s.devices[1].map[1] = None,
            |s| s.devices[0].journal = Some((KIB * 32, KIB * 4)),
            |s| s.devices[0].map[0] = Some(KIB * 64),
            |s| s.devices[1].map[1] = Some(MIB * 2),
            |s| s.devices[1].map[1] = Some(KIB * 33),
            |s| s.devices[1].map[1] = Some(Bytes(u64::MAX - 4095)),
        ];
        for (i, change) in change.iter().enumerate() {
            let mut wrong = superblock();
            change(&mut wrong);
            assert!(matches!(Superblock::decode(&wrong.encode()), Err(Invalid::Value(_))), "change {i}");
        }
    }

    #[test]
    fn a_text_without_an_end_is_refused() {
        let mut bytes = superblock().encode();
        bytes[96..160].fill(b'x');
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Superblock::decode(&bytes), Err(Invalid::Value(_))));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut rng = Rng::new(5);
        let good = superblock().encode();
        for _ in 0..5_000 {
            let mut bytes = good.clone();
            for _ in 0..rng.between(1, 9) {
                let at = rng.below(5_000) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            bytes[0..8].copy_from_slice(&MAGIC);
            let crc = crc32c::crc32c(&bytes[12..]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            let _ = Superblock::decode(&bytes);
        }
    }
}
