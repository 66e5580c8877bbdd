//! Memory that outlives the process: a daemon that dies leaves its content to the next daemon on the same
//! machine.

use braid_base::Bytes;
use std::fmt::Debug;
use std::io;

/// A range of lasting memory. After [`LastingMemory::set_len`] a store makes no system call.
///
/// If the process dies, exactly the bytes stored until then remain. A machine that stops or restarts may keep
/// or lose the bytes: [`LastingMemory::life`] tells.
pub trait LastingMemory: Debug {
    /// Life of the machine, new after each restart. Content left by another life is invalid.
    fn life(&self) -> [u8; 16];

    /// Length in bytes.
    fn len(&self) -> Bytes;

    /// True if the length is zero.
    fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// Sets the length and takes all memory for `len` bytes at once. New bytes are zeros.
    ///
    /// # Errors
    /// If the machine lacks the memory. A failed call may leave a length of zero.
    fn set_len(&self, len: Bytes) -> io::Result<()>;

    /// Copies bytes out; beyond the end, zeros.
    fn load(&self, at: Bytes, into: &mut [u8]);

    /// Stores bytes, in any order. The range must lie within the length.
    fn store(&self, at: Bytes, from: &[u8]);

    /// Stores eight bytes at once, little-endian, after all earlier stores. The address is a multiple of
    /// eight within the length.
    fn publish(&self, at: Bytes, word: u64);
}
