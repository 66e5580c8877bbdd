//! Ids: numbers of devices, nodes, extents, blocks and slots.

use std::fmt;
use std::str::FromStr;

/// A device of a volume, by its place in the volume's device table. A volume has at most 32; a simulation may
/// have a thousand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

impl DeviceId {
    /// The id as an index into tables of devices.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A machine with devices, by its number in a network. Devices of the volume's own host are on no node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl NodeId {
    /// The id as an index into tables of nodes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An extent of a volume: its offset divided by the extent size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u32);

impl ExtentId {
    /// The id as an index into tables of extents.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for ExtentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent {}", self.0)
    }
}

/// A block of a volume: its offset divided by the block size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// An extent slot: a place for an extent on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Device of the slot.
    pub device: DeviceId,
    /// Number of the slot on the device, counted from the first slot.
    pub index: u32,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.index)
    }
}

/// Class of a device, by its seek cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceClass {
    /// Solid state: no moving parts. Memory counts as solid state, too.
    Ssd,
    /// A hard disk.
    Hdd,
}

impl fmt::Display for DeviceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceClass::Ssd => "ssd",
            DeviceClass::Hdd => "hdd",
        })
    }
}

impl FromStr for DeviceClass {
    type Err = String;
    fn from_str(text: &str) -> Result<DeviceClass, String> {
        match text {
            "ssd" => Ok(DeviceClass::Ssd),
            "hdd" => Ok(DeviceClass::Hdd),
            _ => Err(format!("unknown device class '{text}': use ssd or hdd")),
        }
    }
}
