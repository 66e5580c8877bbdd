//! Memory of a world that outlives its software: the legacy of a dead process for the next process.
//!
//! Each store is a cut point, as is each start or end of a device operation: the software may die between
//! any two stores. After the cut no store happens any more.

use crate::Power;
use braid_base::Bytes;
use braid_runtime::LastingMemory;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;

/// Memory of a world that outlives the software. Cheap to clone: a handle.
#[derive(Clone)]
pub struct LastingBytes {
    power: Power,
    bytes: Rc<RefCell<Vec<u8>>>,
    /// Number of the machine's life.
    life: Rc<Cell<u64>>,
    /// Maximum size of the memory.
    limit: Rc<Cell<Bytes>>,
}

/// Content of the memory between two worlds.
#[derive(Clone, Default, Debug)]
pub struct StoredMemory {
    bytes: Vec<u8>,
    life: u64,
}

impl StoredMemory {
    /// Restarts the machine. Real memory is lost then; here the bytes stay, and no opening may use them.
    pub fn restart_machine(&mut self) {
        self.life += 1;
    }

    /// The bytes, for tests that damage them.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl LastingBytes {
    /// Creates memory with the stored content, in a world with this power.
    pub(crate) fn attach(power: Power, stored: StoredMemory) -> LastingBytes {
        let StoredMemory { bytes, life } = stored;
        let (bytes, life) = (Rc::new(RefCell::new(bytes)), Rc::new(Cell::new(life)));
        LastingBytes { power, bytes, life, limit: Rc::new(Cell::new(Bytes(u64::MAX))) }
    }

    /// Returns the content at this moment.
    pub fn store_away(&self) -> StoredMemory {
        StoredMemory { bytes: self.bytes.borrow().clone(), life: self.life.get() }
    }

    /// Limits the size of the memory from now on.
    pub fn set_limit(&self, limit: Bytes) {
        self.limit.set(limit);
    }

    fn change(&self, at: Bytes, from: &[u8]) {
        if self.power.pass_store() {
            let at = at.as_usize();
            self.bytes.borrow_mut()[at..at + from.len()].copy_from_slice(from);
        }
    }
}

impl fmt::Debug for LastingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of lasting memory", self.len())
    }
}

impl LastingMemory for LastingBytes {
    fn life(&self) -> [u8; 16] {
        u128::from(self.life.get()).to_le_bytes()
    }

    fn len(&self) -> Bytes {
        Bytes::of_len(self.bytes.borrow().len())
    }

    fn set_len(&self, len: Bytes) -> io::Result<()> {
        if len > self.limit.get() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, format!("no {len} of lasting memory")));
        }
        if !self.power.is_off() {
            self.bytes.borrow_mut().resize(len.as_usize(), 0);
        }
        Ok(())
    }

    fn load(&self, at: Bytes, into: &mut [u8]) {
        let bytes = self.bytes.borrow();
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = bytes.get(at.as_usize() + i).copied().unwrap_or(0);
        }
    }

    fn store(&self, at: Bytes, from: &[u8]) {
        self.change(at, from);
    }

    fn publish(&self, at: Bytes, word: u64) {
        self.change(at, &word.to_le_bytes());
    }
}
