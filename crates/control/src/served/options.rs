//! Settings for serving a volume.

use crate::served::address::NbdAddress;
use braid_base::{Bytes, DeviceId};
use braid_engine::Readahead;
use std::ffi::OsString;

/// Settings for serving a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Addresses of the NBD exports; empty for a Unix socket in the state directory.
    pub nbd: Vec<NbdAddress>,
    /// Extents in the memory cache.
    pub cache_extents: usize,
    /// When a read brings its whole extent into the memory cache.
    pub readahead: Readahead,
    /// Memory for read-ahead of sequential streams; 0 for none.
    pub ahead: Bytes,
    /// NBD connections at a time, on all addresses together.
    pub clients: usize,
    /// Command that detaches this volume, run when the daemon stops; `None` to leave detaching to the
    /// administrator.
    pub detach: Option<Vec<OsString>>,
    /// Devices whose content is excluded: they are rebuilt from the other devices.
    pub distrust: Vec<DeviceId>,
    /// Write dirty blocks back to an adopted disk even if the disk was changed while Braid did not serve the
    /// volume.
    pub force: bool,
    /// Model for SSDs without a model of their own, by name or file: for simulations of the volume
    /// (`equi,mode=auto`).
    pub ssd_model: Option<String>,
    /// Model for disks without a model of their own, as [`ServeOptions::ssd_model`].
    pub hdd_model: Option<String>,
}

impl Default for ServeOptions {
    /// 100 extents, as in the paper that `wardrop` follows.
    fn default() -> ServeOptions {
        let (nbd, readahead) = (Vec::new(), Readahead::default());
        ServeOptions {
            nbd,
            cache_extents: 100,
            readahead,
            ahead: Bytes::ZERO,
            clients: 32,
            detach: None,
            distrust: Vec::new(),
            force: false,
            ssd_model: None,
            hdd_model: None,
        }
    }
}

impl ServeOptions {
    /// Largest number of clients that the daemon has memory for.
    pub const MOST_CLIENTS: usize = 256;
    /// Largest memory cache in extents.
    pub const MOST_CACHE_EXTENTS: usize = 1_000_000;
}
