//! A device as the superblock and the device table describe it: 128 bytes.
//!
//! ```text
//! offset  size  field
//! 0       16    device UUID
//! 16      8     size in bytes
//! 24      8     offset of slot 0
//! 32      8     the last epoch in which the device was in step
//! 40      4     slots
//! 44      4     first slot number
//! 48      1     class: 1 ssd, 2 hdd
//! 49      1     state: 1 active, 2 missing, 3 failed, 4 draining, 5 slow, 6 returning, 7 removed
//! 50      1     role, a bit each: 1 data, 2 metadata, 4 cache, 8 leaving
//! 51      1     layout: 1 head, 2 tail, 3 adopted
//! 52      12    0
//! 64      48    model of an emulated device, UTF-8, zero-padded
//! 112     4     0
//! 116     4     content of an adopted disk (see `fingerprint.rs`)
//! 120     8     0
//! ```

use super::coded;
use crate::layout::superblock_offsets;
use crate::{Fingerprint, Invalid, Uuid, text};
use braid_base::{Bytes, DeviceClass};
use std::fmt;
use std::ops::{BitOr, Range};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// The length of an entry, in bytes.
pub(crate) const DEVICE_ENTRY: usize = 128;
/// The longest name of a model, in bytes.
pub const LONGEST_MODEL: usize = 47;

/// A device of the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceEntry {
    /// The device's identity: random. An adopted disk has no mark of Braid, so its identity derives from the
    /// disk.
    pub uuid: Uuid,
    /// The size at the time of the addition.
    pub size: Bytes,
    /// The kind of device.
    pub class: DeviceClass,
    /// The model of the emulated timing; empty for none.
    pub model: String,
    /// Extent slots of the device, including slots taken by regions.
    pub slots: u32,
    /// The number of its first slot; the lowest of all devices is 1.
    pub first_slot: u32,
    /// Start of its first slot.
    pub slots_offset: Bytes,
    /// Whether the device serves requests; if not, the reason.
    pub state: DeviceState,
    /// The uses of the device.
    pub role: Role,
    /// The places of Braid's own structures on the device.
    pub layout: Layout,
    /// The last epoch in which the device was in step: the device missed no write up to the end of that
    /// opening.
    pub in_step: u64,
    /// The content of an adopted disk when last known.
    pub fingerprint: Fingerprint,
}

/// Whether a device serves requests. Recorded on the survivors before an acknowledgement depends on the
/// state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(u8)]
pub enum DeviceState {
    /// Present and in step.
    Active = 1,
    /// Not found at the opening, or lost since.
    Missing = 2,
    /// Present, but its errors exclude it from use.
    Failed = 3,
    /// Present and in step; its data is being moved away.
    Draining = 4,
    /// Present and in step, but avoided while another copy serves.
    Slow = 5,
    /// Back after an absence and being resynchronised. Ranges that may differ are not read.
    Returning = 6,
    /// No longer a device of the volume, or not yet: nothing lies on the device. Its id and its slot numbers
    /// stay reserved.
    Removed = 7,
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceState::Active => "active",
            DeviceState::Missing => "missing",
            DeviceState::Failed => "failed",
            DeviceState::Draining => "draining",
            DeviceState::Slow => "slow",
            DeviceState::Returning => "returning",
            DeviceState::Removed => "removed",
        })
    }
}

/// The places of Braid's own structures on a device, and therefore of extents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, Unaligned)]
#[repr(u8)]
pub enum Layout {
    /// Two superblock copies at the start, one at the end. An extent lies in any slot.
    Head = 1,
    /// All superblock copies and regions at the end. Slot 0 lies at byte 0, and an extent only in the slot of
    /// its own number: its bytes have the same address on the device as in the volume.
    Tail = 2,
    /// No structure of Braid: the disk has earlier data, and is the volume byte for byte. Extent n lies in
    /// slot n, the last extent as far as the disk reaches.
    Adopted = 3,
}

/// What a device is used for: a set of flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Role(u8);

impl Role {
    /// Holds required copies.
    pub const DATA: Role = Role(1);
    /// Holds regions.
    pub const METADATA: Role = Role(2);
    /// Holds extra copies.
    pub const CACHE: Role = Role(4);
    /// Lost, and to be removed: nothing new is placed on the device.
    pub const LEAVING: Role = Role(8);
    const ALL: Role = Role(15);

    /// True if all flags of `other` are set.
    pub const fn contains(self, other: Role) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags without the flags of `other`.
    pub const fn without(self, other: Role) -> Role {
        Role(self.0 & !other.0)
    }

    fn from_bits(bits: u8) -> Result<Role, Invalid> {
        match bits & !Role::ALL.0 {
            0 => Ok(Role(bits)),
            unknown => Err(Invalid::Value(format!("device role has the unknown bits {unknown:#x}"))),
        }
    }
}

impl BitOr for Role {
    type Output = Role;
    fn bitor(self, other: Role) -> Role {
        Role(self.0 | other.0)
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Role::DATA, "data"),
            (Role::METADATA, "metadata"),
            (Role::CACHE, "cache"),
            (Role::LEAVING, "leaving"),
        ];
        let set = names.into_iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name);
        f.write_str(&set.collect::<Vec<_>>().join("+"))
    }
}

impl DeviceEntry {
    /// The bytes of the device's slots; `None` if the slots reach beyond 64 bits.
    pub fn slots_area(&self, extent_size: Bytes) -> Option<Range<Bytes>> {
        let len = extent_size.0.checked_mul(u64::from(self.slots))?;
        let end = self.slots_offset.checked_add(Bytes(len))?;
        let end = if self.layout == Layout::Adopted { end.min(self.size) } else { end };
        Some(self.slots_offset..end)
    }

    /// The bytes between the superblock copies: the room of slots and device table. Requires a verified size.
    pub(super) fn room(&self) -> Range<Bytes> {
        let places = superblock_offsets(self.size, self.layout);
        match self.layout {
            Layout::Head => crate::layout::METADATA_START..places[2],
            Layout::Tail => Bytes::ZERO..places[0],
            Layout::Adopted => Bytes::ZERO..self.size,
        }
    }
}

/// An entry as bytes, not verified.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDevice {
    uuid: Uuid,
    size: U64,
    slots_offset: U64,
    in_step: U64,
    slots: U32,
    first_slot: U32,
    class: u8,
    state: u8,
    role: u8,
    layout: u8,
    zero: [u8; 12],
    model: [u8; LONGEST_MODEL + 1],
    unused: U32,
    content: U32,
    rest: [u8; 8],
}

const _: () = assert!(size_of::<RawDevice>() == DEVICE_ENTRY);
const _: () = assert!(std::mem::offset_of!(RawDevice, class) == 48);
const _: () = assert!(std::mem::offset_of!(RawDevice, model) == 64);
const _: () = assert!(std::mem::offset_of!(RawDevice, content) == 116);

impl RawDevice {
    pub(super) fn encode(device: &DeviceEntry) -> RawDevice {
        RawDevice {
            uuid: device.uuid,
            size: device.size.0.into(),
            slots_offset: device.slots_offset.0.into(),
            in_step: device.in_step.into(),
            slots: device.slots.into(),
            first_slot: device.first_slot.into(),
            class: match device.class {
                DeviceClass::Ssd => 1,
                DeviceClass::Hdd => 2,
            },
            state: device.state as u8,
            role: device.role.0,
            layout: device.layout as u8,
            zero: [0; 12],
            model: text::encode(&device.model),
            unused: U32::ZERO,
            content: device.fingerprint.content.into(),
            rest: [0; 8],
        }
    }

    pub(super) fn decode(&self) -> Result<DeviceEntry, Invalid> {
        Ok(DeviceEntry {
            uuid: self.uuid,
            size: Bytes(self.size.get()),
            class: match self.class {
                1 => DeviceClass::Ssd,
                2 => DeviceClass::Hdd,
                other => return Err(Invalid::Value(format!("device class {other} is unknown"))),
            },
            model: text::decode(&self.model, "device model")?,
            slots: self.slots.get(),
            first_slot: self.first_slot.get(),
            slots_offset: Bytes(self.slots_offset.get()),
            state: coded(self.state, "device state")?,
            role: Role::from_bits(self.role)?,
            layout: coded(self.layout, "device layout")?,
            in_step: self.in_step.get(),
            fingerprint: Fingerprint { content: self.content.get() },
        })
    }
}
