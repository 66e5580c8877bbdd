//! The guest's memory: files of the virtual machine's process, mapped here.
//!
//! An access beyond the end of a mapped file would kill the daemon. A file must therefore be as long as
//! announced, and is sealed against shrinking. A file that cannot be sealed is mapped all the same: most
//! files on hugetlbfs cannot, and the guest itself has no way to shrink them.

use crate::chain::Place;
use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use std::fs::File;
use std::rc::Rc;
use vm_memory::mmap::MmapRegionError;
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// Largest number of regions.
pub const REGIONS_MAX: usize = 32;

/// A region, as the virtual machine's process announces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// Address in the guest.
    pub guest: u64,
    /// Address in the virtual machine's process: addresses of queues are given so.
    pub user: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte in the file.
    pub offset: u64,
}

/// All regions.
#[derive(Default)]
pub struct Regions {
    announced: Vec<Announced>,
    mapped: Rc<GuestMemoryMmap>,
}

/// Why memory cannot be mapped.
#[derive(Debug)]
pub enum BadMemory {
    /// The file is no regular file, or ends before the region's end.
    File,
    /// Regions overlap, an address overflows, or no region is as named.
    Region,
    /// There are [`REGIONS_MAX`] already.
    TooMany,
    /// The kernel refuses.
    Mapping(#[expect(dead_code, reason = "for the log")] MmapRegionError),
}

impl Regions {
    /// Guest memory with all regions.
    pub fn mapped(&self) -> &Rc<GuestMemoryMmap> {
        &self.mapped
    }

    /// Maps one more region.
    pub fn add(&mut self, region: Announced, file: File) -> Result<(), BadMemory> {
        if self.announced.len() == REGIONS_MAX {
            return Err(BadMemory::TooMany);
        }
        let mapping = map(file, region.offset, region.len)?;
        let guest = GuestRegionMmap::new(mapping, GuestAddress(region.guest)).ok_or(BadMemory::Region)?;
        let mapped = self.mapped.insert_region(guest.into()).map_err(|_| BadMemory::Region)?;
        self.mapped = Rc::new(mapped);
        self.announced.push(region);
        Ok(())
    }

    /// Unmaps a region, once all requests that use the region have ended.
    pub fn remove(&mut self, region: Announced) -> Result<(), BadMemory> {
        let is_named = |known: &Announced| {
            known.guest == region.guest && known.user == region.user && known.len == region.len
        };
        let at = self.announced.iter().position(is_named).ok_or(BadMemory::Region)?;
        let removed = self.mapped.remove_region(GuestAddress(region.guest), region.len);
        self.mapped = Rc::new(removed.map_err(|_| BadMemory::Region)?.0);
        self.announced.remove(at);
        Ok(())
    }

    /// The guest's address of an address of the virtual machine's process.
    pub fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        let found = self.announced.iter().find(|r| user >= r.user && user - r.user < r.len)?;
        Some(GuestAddress(user - found.user + found.guest))
    }
}

/// Maps a part of a file for reading and writing.
pub fn map(file: File, offset: u64, len: u64) -> Result<MmapRegion, BadMemory> {
    let stat = fstat(&file).map_err(|_| BadMemory::File)?;
    let end = offset.checked_add(len).ok_or(BadMemory::File)?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_regular || len == 0 || u64::try_from(stat.st_size).map_or(true, |size| size < end) {
        return Err(BadMemory::File);
    }
    // The length may have changed before the seal: it is looked at once more.
    let sealed = fcntl_add_seals(&file, SealFlags::SHRINK).is_ok()
        || fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let stat = fstat(&file).map_err(|_| BadMemory::File)?;
    if u64::try_from(stat.st_size).map_or(true, |size| size < end) {
        return Err(BadMemory::File);
    }
    if !sealed {
        tracing::debug!("memory of a guest lies in a file that may shrink, which would end this daemon");
    }
    MmapRegion::from_file(FileOffset::new(file, offset), len as usize).map_err(BadMemory::Mapping)
}

/// A position in the bytes of several places, one after the other.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    places: &'a [Place],
    /// Bytes of the first place that are done.
    done: u32,
}

/// A place lies outside of the guest's memory, or there are fewer bytes than asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outside;

impl<'a> Cursor<'a> {
    /// Stands before the first byte.
    pub fn new(places: &'a [Place]) -> Cursor<'a> {
        Cursor { places, done: 0 }
    }

    /// Copies the next bytes out of guest memory.
    pub fn read(&mut self, memory: &GuestMemoryMmap, into: &mut [u8]) -> Result<(), Outside> {
        let mut rest = into;
        while !rest.is_empty() {
            let (start, len) = self.next(rest.len())?;
            let (part, after) = rest.split_at_mut(len);
            memory.read_slice(part, start).map_err(|_| Outside)?;
            rest = after;
        }
        Ok(())
    }

    /// Copies bytes to the next places in guest memory.
    pub fn write(&mut self, memory: &GuestMemoryMmap, from: &[u8]) -> Result<(), Outside> {
        let mut rest = from;
        while !rest.is_empty() {
            let (start, len) = self.next(rest.len())?;
            let (part, after) = rest.split_at(len);
            memory.write_slice(part, start).map_err(|_| Outside)?;
            rest = after;
        }
        Ok(())
    }

    /// The next bytes that lie together, at most `longest`, which is above zero.
    fn next(&mut self, longest: usize) -> Result<(GuestAddress, usize), Outside> {
        let (first, others) = self.places.split_first().ok_or(Outside)?;
        let start = first.start.0.checked_add(u64::from(self.done)).ok_or(Outside)?;
        let left = first.len - self.done;
        let len = longest.min(left as usize);
        if len == left as usize {
            (self.places, self.done) = (others, 0);
        } else {
            self.done += len as u32;
        }
        Ok((GuestAddress(start), len))
    }
}
