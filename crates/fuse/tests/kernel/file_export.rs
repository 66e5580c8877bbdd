//! An export over a sparse file, without caches of its own: what it acknowledged survives `kill -9`.

use braid_base::{Bytes, KIB, Nanos};
use braid_engine::{Allocation, Durability, Error, ErrorKind, Export, Result, Zeroing};
use braid_runtime::{Buf, Runtime};
use braid_uring::Ring;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

/// What the daemon says once so many requests have been in flight at the same time.
pub const MET: &str = "the requests have met";
/// How long a request waits for others at most.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// Sparse file, and size.
#[derive(Clone)]
pub struct FileExport {
    ring: Ring,
    file: Rc<File>,
    size: Bytes,
    /// Each request waits until so many have been there at the same time.
    together: u32,
    in_flight: Rc<Cell<u32>>,
    met: Rc<Cell<bool>>,
}

impl FileExport {
    pub fn open(ring: &Ring, path: &Path, size: Bytes, together: u32) -> FileExport {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(size.0).unwrap();
        let (in_flight, met) = (Rc::default(), Rc::new(Cell::new(together <= 1)));
        FileExport { ring: ring.clone(), file: Rc::new(file), size, together, in_flight, met }
    }

    async fn wait(&self, offset: Bytes, len: Bytes) -> Result<()> {
        if offset + len > self.size {
            return Err(Error::new(ErrorKind::Invalid, "beyond the end"));
        }
        if !self.met.get() {
            self.meet().await;
        }
        Ok(())
    }

    async fn meet(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
        let end = self.ring.now() + PATIENCE;
        while self.in_flight.get() < self.together && !self.met.get() && self.ring.now() < end {
            self.ring.sleep(Nanos::from_millis(1)).await;
        }
        if self.in_flight.get() >= self.together && !self.met.replace(true) {
            println!("{MET}");
        }
        self.in_flight.set(self.in_flight.get() - 1);
    }

    fn allocate(&self, flags: FallocateFlags, offset: Bytes, len: Bytes) -> Result<()> {
        rustix::fs::fallocate(&*self.file, flags | FallocateFlags::KEEP_SIZE, offset.0, len.0)
            .map_err(|error| failed(error.into()))
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("the sparse file", &error)
}

impl Export for FileExport {
    fn size(&self) -> Bytes {
        self.size
    }

    fn preferred_block(&self) -> Bytes {
        KIB * 128
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        self.wait(offset, into.len()).await?;
        into.with_bytes_mut(|bytes| self.file.read_exact_at(bytes, offset.0)).map_err(failed)
    }

    async fn write(&self, offset: Bytes, from: &Buf, _: Durability) -> Result<()> {
        self.wait(offset, from.len()).await?;
        from.with_bytes(|bytes| self.file.write_all_at(bytes, offset.0)).map_err(failed)
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.wait(offset, len).await?;
        self.allocate(FallocateFlags::PUNCH_HOLE, offset, len)
    }

    async fn write_zeroes(&self, offset: Bytes, len: Bytes, zeroing: Zeroing, _: Durability) -> Result<()> {
        self.wait(offset, len).await?;
        // A file in memory cannot zero a range and keep its room: make it anew.
        self.allocate(FallocateFlags::PUNCH_HOLE, offset, len)?;
        match zeroing {
            Zeroing::MayDiscard => Ok(()),
            Zeroing::KeepAllocated => self.allocate(FallocateFlags::empty(), offset, len),
        }
    }

    async fn prefetch(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        let seek = |from| rustix::fs::seek(&*self.file, from).map(Bytes);
        let data = seek(SeekFrom::Data(offset.0)).unwrap_or(self.size);
        if data > offset {
            return (Allocation::Hole, (data - offset).min(limit));
        }
        let hole = seek(SeekFrom::Hole(offset.0)).unwrap_or(self.size);
        (Allocation::Data, (hole - offset).min(limit))
    }
}
