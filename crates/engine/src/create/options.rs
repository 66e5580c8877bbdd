//! Options of a new volume.

use super::room::Left;
use braid_base::{Bytes, KIB, MIB};
use braid_format::Uuid;
use braid_format::superblock::Layout;

/// Options of a new volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Name, at most 63 bytes.
    pub name: String,
    /// Identity: 128 random bits.
    pub identity: Uuid,
    /// Size; none for all the room on the devices that the policy uses, except for `left`.
    pub size: Option<Bytes>,
    /// Room that a volume without a size leaves on its devices.
    pub left: Left,
    /// Unit of placement.
    pub extent_size: Bytes,
    /// Unit of caching.
    pub block_size: Bytes,
    /// Required copies of each extent, 1 or 2.
    pub copies: u8,
    /// With two copies, the smallest length of a span, the unit of recorded differences. The first write to a
    /// span waits until the record "copies may differ" is durable. After an unclean stop, the whole span is
    /// resynchronised.
    pub span_size: Bytes,
    /// Policy, as `name,key=value,…`.
    pub policy: String,
    /// Emulated model of each device; empty for none.
    pub models: Vec<String>,
    /// A disk to adopt with its contents.
    pub adoption: Option<Adoption>,
    /// Place of Braid's structures on each device; [`Layout::Head`] by default.
    pub layouts: Vec<Layout>,
    /// True if devices with other contents may be overwritten.
    pub overwrite: bool,
    /// Pages of the map in a group of its summary. None to choose by the size of the map: a small map has no
    /// summary.
    pub map_group: Option<u32>,
}

impl CreateOptions {
    /// Defaults: 128 KiB extents, 4 KiB blocks, one copy, spans of 16 MiB, `equi`, and all the room on the
    /// devices.
    pub fn new(name: impl Into<String>, identity: Uuid) -> CreateOptions {
        CreateOptions {
            name: name.into(),
            identity,
            size: None,
            left: Left::Nothing,
            extent_size: KIB * 128,
            block_size: KIB * 4,
            copies: 1,
            span_size: MIB * 16,
            policy: "equi".to_owned(),
            models: Vec::new(),
            adoption: None,
            layouts: Vec::new(),
            overwrite: false,
            map_group: None,
        }
    }
}

/// A disk that becomes the volume with its contents, and the device for everything that must survive the loss
/// of the SSDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adoption {
    /// Index of the disk among the devices.
    pub disk: usize,
    /// Identity of the disk: a sum of its serial number, or `NO_SERIAL`.
    pub identity: Uuid,
    /// Index of the record: a device for metadata alone, neither the disk nor an SSD, of at least
    /// [`crate::record_len`].
    pub record: usize,
}
