//! Memory that outlives the process: what a daemon that dies leaves to the next one on the same machine.

use braid_base::Bytes;
use std::fmt::Debug;
use std::io;

/// A range of such memory. After [`LastingMemory::set_len`] a store makes no system call.
///
/// If the process dies, what it has stored until then is there, and nothing else. A machine that stops or
/// restarts may keep it or not: [`LastingMemory::life`] tells.
pub trait LastingMemory: Debug {
    /// The life of the machine: another one after each restart. What another life has left counts for
    /// nothing.
    fn life(&self) -> [u8; 16];

    /// Bytes that there are.
    fn len(&self) -> Bytes;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// Has room for so many bytes from now on, without taking more later. New bytes are zeros.
    ///
    /// # Errors
    /// If the machine does not have them; the length stays as it was.
    fn set_len(&self, len: Bytes) -> io::Result<()>;

    /// Copies bytes out; zeros from behind the end.
    fn load(&self, at: Bytes, into: &mut [u8]);

    /// Stores bytes, in any order. The range lies within the length.
    fn store(&self, at: Bytes, from: &[u8]);

    /// Stores eight bytes at once, little-endian, after all that was stored before. The address is a multiple
    /// of eight within the length.
    fn publish(&self, at: Bytes, word: u64);
}
