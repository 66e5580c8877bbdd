//! Reads all bytes of a volume, piece by piece, and compares the bytes with the oracle.

use crate::workload::{describe, own_buffer};
use crate::{Errors, SharedOracle, World};
use braid_base::{Bytes, Nanos};
use braid_engine::Export;
use braid_runtime::{Arena, Buf};

/// Size of the pieces in which a whole volume is read.
pub(crate) const READ_ALL_PIECE: Bytes = Bytes(256 << 10);

/// Rules for reading a whole volume.
pub(crate) struct Verify {
    pub world: World,
    pub arena: Arena,
    /// Meaning of a read error.
    pub errors: Errors,
    /// The longest that a read may take.
    pub limit: Nanos,
}

impl Verify {
    /// Reads all bytes after a crash; the result is the truth from then on. Unreadable bytes stay
    /// undetermined, if errors are tolerated.
    ///
    /// # Errors
    /// The first wrong byte, forbidden error, or read that does not end, as a sentence.
    pub async fn after_crash<E: Export>(&self, export: &E, oracle: &SharedOracle) -> Result<(), String> {
        let mut piece = self.arena.alloc(READ_ALL_PIECE).await;
        for (offset, len) in pieces(export.size()) {
            let into = part(&mut piece, len);
            if self.read(export, offset, &into).await? {
                let found = into.with_bytes(|bytes| oracle.borrow_mut().find_after_crash(offset, bytes));
                found.map_err(|mismatch| describe("after the crash, reading all", &mismatch))?;
            }
        }
        oracle.borrow_mut().resume();
        Ok(())
    }

    /// Reads all once more.
    ///
    /// # Errors
    /// As [`Verify::after_crash`].
    pub async fn again<E: Export>(
        &self,
        export: &E,
        oracle: &SharedOracle,
        occasion: &str,
    ) -> Result<(), String> {
        let mut piece = self.arena.alloc(READ_ALL_PIECE).await;
        for (offset, len) in pieces(export.size()) {
            let into = part(&mut piece, len);
            let id = oracle.borrow_mut().begin_read();
            if self.read(export, offset, &into).await? {
                let found = into.with_bytes(|bytes| oracle.borrow_mut().end_read(id, offset, bytes));
                found.map_err(|mismatch| describe(occasion, &mismatch))?;
            } else {
                oracle.borrow_mut().fail_read(id);
            }
        }
        Ok(())
    }

    /// Reads a piece. False if the read failed and errors are tolerated.
    async fn read<E: Export>(&self, export: &E, offset: Bytes, into: &Buf) -> Result<bool, String> {
        let read = self.world.within(self.limit, export.read(offset, into)).await;
        match read {
            None => Err(format!("a read of all at {:#x} has not ended after {}", offset.0, self.limit)),
            Some(Err(error)) if self.errors == Errors::Forbidden => {
                Err(format!("a read of all at {:#x} failed: {:?}: {error}", offset.0, error.kind()))
            }
            Some(result) => Ok(result.is_ok()),
        }
    }
}

/// Returns the first bytes of a buffer that no device uses: a new buffer if a late device still uses
/// `piece`.
fn part(piece: &mut Buf, len: Bytes) -> Buf {
    if piece.is_shared() {
        *piece = own_buffer(READ_ALL_PIECE);
    }
    piece.slice(Bytes::ZERO..len)
}

/// The pieces of a volume of `size`: offset, length.
fn pieces(size: Bytes) -> impl Iterator<Item = (Bytes, Bytes)> {
    (0..size.0.div_ceil(READ_ALL_PIECE.0)).map(move |at| {
        let offset = READ_ALL_PIECE * at;
        (offset, READ_ALL_PIECE.min(size - offset))
    })
}
