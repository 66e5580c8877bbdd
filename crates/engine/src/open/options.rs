//! Options of an opening.

use super::AdoptedDisk;
use crate::fence::Noted;
use crate::request::Readahead;
use braid_base::{Bytes, DeviceId};
use braid_runtime::LastingMemory;
use std::fmt;
use std::rc::Rc;

/// Options of an opening.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Names of the devices in messages: their paths.
    pub names: Vec<String>,
    /// Extents in the memory cache; 0 for none.
    pub cache_extents: usize,
    /// Condition for a read to bring its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for reading ahead of streams (guests' reads in order or by a stride). Zero, [`Readahead::Off`],
    /// or extents of more than 1 MiB turn reading ahead off.
    pub ahead: Bytes,
    /// Repairs a damaged volume: keeps proved data, declares the rest lost ([`crate::Recovery::lost`]), and
    /// writes all map pages again.
    pub repair: bool,
    /// Devices whose data is discarded: they are resynchronised from the other devices.
    pub distrust: Vec<DeviceId>,
    /// Devices known to be outdated, from [`crate::Volume::outdated_devices`] of the last opening. If no
    /// other device would count as current, the rest must be present or be excluded by name. The list may be
    /// a moment older than the truth. A recovery ignores the list and follows its disk.
    pub outdated: Vec<DeviceId>,
    /// Receives the outdated devices before the other devices record them: a crash of the opening must not
    /// lose the caller's note.
    pub before_open: Option<BeforeOpen>,
    /// Recovers the volume from the disk that keeps epochs alone: without the excluded devices, and without
    /// later writes.
    pub recover: bool,
    /// Random number of this opening. It distinguishes two openings begun at the same time.
    pub owner: u64,
    /// The caller's last note of the volume ([`crate::Volume::noted`]), or an empty note; none if no other
    /// host can reach the devices. If the volume is in use by another opening than the note's, the opening
    /// takes 2 s more, and with a shared device (`Device::is_shared`) 5 s before that, to see whether the
    /// other opening lives. A recovery does not wait: later writes of other daemons are discarded.
    pub noted: Option<Noted>,
    /// Opens the volume although another host may serve it: the opening does not watch for the lease of the
    /// other host, and takes the devices over at once. A living owner is fenced: within a second nothing of
    /// it is acknowledged or written any more. Unflushed writes of its guests may be lost.
    pub take_over: bool,
    /// The adopted disk, if the volume has one.
    pub adopted: Option<AdoptedDisk>,
    /// Memory that outlives this process. A log there keeps acknowledged, unflushed changes for the next
    /// opening, if this process dies. The log of an earlier process is read.
    pub memory: Option<Rc<dyn LastingMemory>>,
}

/// Callback of a host before a volume is open: notes the devices that this opening counts as outdated
/// ([`OpenOptions::outdated`]).
#[derive(Clone)]
pub struct BeforeOpen(pub Rc<Note>);

/// Notes devices.
type Note = dyn Fn(&[DeviceId]);

impl fmt::Debug for BeforeOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeOpen")
    }
}

impl OpenOptions {
    /// Options for devices with these names: no memory cache, no repair.
    pub fn new(names: Vec<String>) -> OpenOptions {
        let readahead = Readahead::default();
        OpenOptions {
            names,
            cache_extents: 0,
            readahead,
            ahead: Bytes::ZERO,
            repair: false,
            distrust: Vec::new(),
            outdated: Vec::new(),
            before_open: None,
            recover: false,
            owner: 0,
            noted: None,
            take_over: false,
            adopted: None,
            memory: None,
        }
    }
}
