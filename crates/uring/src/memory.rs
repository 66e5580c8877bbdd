//! Memory as a device: for tests, for the demo, and to measure the cost of the software alone.
#![allow(unsafe_code)]

use braid_base::{Bytes, DeviceClass};
use braid_runtime::{Buf, Device, Geometry};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// Bytes in memory, all zero at first. Only written pages take room. Requests complete at once. No data
/// survives the process, and a flush promises nothing.
pub struct MemoryDevice {
    start: NonNull<u8>,
    geometry: Geometry,
}

impl MemoryDevice {
    /// Makes a device of `size` bytes, with alignment 1. The size may exceed the machine's memory; the
    /// written part must not.
    ///
    /// # Errors
    /// `InvalidInput` if the size is zero; also fails if the address space is too small for the size.
    pub fn new(size: Bytes, class: DeviceClass) -> io::Result<MemoryDevice> {
        if size == Bytes::ZERO {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a memory device needs a size above zero",
            ));
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), size.as_usize(), access, flags) };
        let start = mapped.map_err(|e| {
            let error = io::Error::from(e);
            io::Error::new(error.kind(), format!("cannot map a memory device of {size}: {error}"))
        })?;
        let start = NonNull::new(start.cast()).expect("a mapping does not start at address zero");
        Ok(MemoryDevice {
            start,
            geometry: Geometry { size, class, alignment: Bytes(1), memory_alignment: Bytes(1) },
        })
    }

    /// Address of the byte at `offset`, which the caller has checked.
    fn at(&self, offset: Bytes) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset.as_usize())
    }
}

impl Device for MemoryDevice {
    const ALWAYS_ANSWERS: bool = true;

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.geometry.check(offset, into.len())?;
        // SAFETY: the range was checked and lies in the mapping, which nobody else refers to; a buffer lies
        // in its arena, never in this mapping.
        into.with_bytes_mut(|bytes| unsafe {
            std::ptr::copy_nonoverlapping(self.at(offset), bytes.as_mut_ptr(), bytes.len());
        });
        Ok(())
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.geometry.check(offset, from.len())?;
        // SAFETY: as above; the device is of one thread, so nobody reads or writes at the same time.
        from.with_bytes(|bytes| unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len());
        });
        Ok(())
    }

    async fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Gives whole pages within the range back to the system. The pages then read as zeros.
    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.geometry.check(offset, len)?;
        let (first, end) = (offset.align_up(PAGE), (offset + len).align_down(PAGE));
        if first >= end {
            return Ok(());
        }
        // SAFETY: the range lies in the mapping; the kernel replaces its bytes by zeros, and nobody refers to
        // them.
        unsafe { madvise(self.at(first).cast(), (end - first).as_usize(), Advice::LinuxDontNeed) }?;
        Ok(())
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; nobody refers to it any more. A failure leaves it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.geometry.size.as_usize()) };
    }
}

/// Unit in which memory is given back. On machines with larger pages the kernel refuses or rounds.
const PAGE: Bytes = Bytes(4096);
