//! Memory of a guest, page by page, for the client of the library virtio-driver.
#![allow(unsafe_code)]

use std::fs::File;
use vm_memory::{FileOffset, MmapRegion};

const PAGE: usize = 4096;

/// Pages that guest and device share.
pub struct SharedPages {
    region: MmapRegion,
    file: File,
}

impl SharedPages {
    pub fn new(count: usize) -> SharedPages {
        let memory = rustix::fs::memfd_create("pages", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(memory.expect("a memfd"));
        file.set_len((count * PAGE) as u64).expect("a length");
        let offset = FileOffset::new(file.try_clone().expect("a handle"), 0);
        SharedPages { region: MmapRegion::from_file(offset, count * PAGE).expect("a mapping"), file }
    }

    /// Address and length.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.region.as_ptr(), self.region.size())
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// A run of pages. The caller leaves them alone while a request has them.
    #[allow(clippy::mut_from_ref, reason = "memory that the device changes, too")]
    pub fn pages(&self, first: usize, count: usize) -> &mut [u8] {
        assert!((first + count) * PAGE <= self.region.size());
        // SAFETY: the range lies in the mapping, which lives as long as `self`. The tests of one thread use a
        // page for one request at a time.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr().add(first * PAGE), count * PAGE) }
    }
}
