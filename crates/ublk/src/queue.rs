//! Channel for requests: `/dev/ublkcN`, and the kernel's table of requests, one for each tag.
#![allow(unsafe_code)]

use crate::wire::{DESCRIPTOR, Descriptor, Request, TagCommand, TagVerb};
use braid_base::Nanos;
use braid_engine::{Error, Result};
use braid_runtime::{Buf, Runtime};
use braid_uring::Ring;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::fd::AsFd;

/// The only queue of a device.
pub(crate) struct Queue {
    ring: Ring,
    file: File,
    table: *mut c_void,
    /// Bytes of the table.
    len: usize,
    depth: u16,
}

/// Patience for the file of a new device: a device manager may give the file its rights first.
const PATIENCE: Nanos = Nanos::from_secs(5);
const PAUSE: Nanos = Nanos::from_millis(5);

impl Queue {
    /// Opens the queue of a device.
    ///
    /// # Errors
    /// If the file cannot be opened in [`PATIENCE`]: another server has it, or a sandbox forbids it.
    pub async fn open(ring: &Ring, device: u32, depth: u16) -> Result<Queue> {
        let path = format!("/dev/ublkc{device}");
        let deadline = ring.now() + PATIENCE;
        let file = loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => break file,
                Err(_) if ring.now() < deadline => ring.sleep(PAUSE).await,
                Err(error) => return Err(Error::io(format_args!("opening {path}"), &error)),
            }
        };
        let len = (usize::from(depth) * DESCRIPTOR).next_multiple_of(rustix::param::page_size());
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses a free place for the mapping.
        let table = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, &file, 0) };
        let table = table.map_err(|error| Error::io(format_args!("mapping {path}"), &error.into()))?;
        Ok(Queue { ring: ring.clone(), file, table, len, depth })
    }

    /// Sends a command for a tag, and completes when the tag has a request. `memory` is for the bytes of the
    /// next write; for [`TagVerb::CommitAndFetch`] it holds the bytes of the answered read, too.
    pub fn send(
        &self,
        verb: TagVerb,
        tag: u16,
        result: i32,
        memory: &Buf,
    ) -> impl Future<Output = io::Result<u32>> + use<> {
        let address = memory.as_ptr().expose_provenance() as u64;
        let command = TagCommand { queue: 0, tag, result, address };
        self.ring.command(self.file.as_fd(), verb as u32, command.encode(), Some(memory.clone()))
    }

    /// Request of a tag, once [`Queue::send`] has completed. `None` if the kernel asks for an impossible
    /// range.
    pub fn request(&self, tag: u16) -> Option<Request> {
        assert!(tag < self.depth, "a tag of the queue");
        let descriptor = self.table.cast::<Descriptor>().wrapping_add(tag.into());
        // SAFETY: the table has an aligned descriptor for each tag, and stays mapped until the queue is
        // dropped. Any bytes are valid. The kernel changes the descriptor only after the next command.
        unsafe { descriptor.read_volatile() }.decode()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mapping is this queue's own, and no reference leads there. If this fails, the mapping
        // stays, and nothing else.
        let _ = unsafe { munmap(self.table, self.len) };
    }
}
