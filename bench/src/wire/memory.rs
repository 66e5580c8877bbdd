//! A disk that is a vector in memory. The vector's lock lets the library's thread reach the same disk as a
//! shard; a server with one serving thread never waits for the lock.

use braid_base::{Bytes, KIB};
use braid_engine::{Allocation, Durability, Error, ErrorKind, Export, Result, Zeroing};
use braid_runtime::Buf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The disk. Clones share the bytes.
#[derive(Clone)]
pub struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    size: Bytes,
}

impl Memory {
    /// A disk with all of its memory present.
    pub fn new(size: Bytes) -> Memory {
        // Zeros would be pages that do not exist until the first write.
        Memory { bytes: Arc::new(Mutex::new(vec![1; size.as_usize()])), size }
    }

    /// Number of bytes.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Fills `into` with the bytes at `offset`.
    pub fn copy_to(&self, offset: Bytes, into: &mut [u8]) -> Result<()> {
        let at = offset.as_usize();
        let bytes = self.lock();
        into.copy_from_slice(bytes.get(at..at + into.len()).ok_or_else(beyond)?);
        Ok(())
    }

    /// Writes `from` at `offset`.
    pub fn copy_from(&self, offset: Bytes, from: &[u8]) -> Result<()> {
        let at = offset.as_usize();
        let mut bytes = self.lock();
        bytes.get_mut(at..at + from.len()).ok_or_else(beyond)?.copy_from_slice(from);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn beyond() -> Error {
    Error::new(ErrorKind::Invalid, "a range beyond the end of the memory")
}

impl Export for Memory {
    fn size(&self) -> Bytes {
        self.size
    }

    fn preferred_block(&self) -> Bytes {
        KIB * 128
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        into.with_bytes_mut(|into| self.copy_to(offset, into))
    }

    async fn write(&self, offset: Bytes, from: &Buf, _: Durability) -> Result<()> {
        from.with_bytes(|from| self.copy_from(offset, from))
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discards_to_zeros(&self) -> bool {
        false
    }

    async fn discard(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    async fn write_zeroes(&self, _: Bytes, _: Bytes, _: Zeroing, _: Durability) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "the memory of a benchmark is not zeroed"))
    }

    async fn prefetch(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn allocation(&self, _: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        (Allocation::Data, limit)
    }
}
