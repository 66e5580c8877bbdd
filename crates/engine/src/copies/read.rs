//! Reads of a piece from the copies that hold its current bytes: required copies, dirty blocks, clean blocks.

use crate::Result;
use crate::core::{Extents, Store};
use crate::devices::Deadline;
use crate::shape::Piece;
use braid_base::Bytes;
use braid_format::SlotNumber;
use braid_format::journal::Extra;
use braid_format::map_page::Entry;
use braid_policy::Origin;
use braid_runtime::{Buf, Device, Runtime, join_all};

/// Longest gap that a disk passes over in less time than a seek takes.
const LONGEST_PASSED: Bytes = Bytes(64 << 10);

/// Source of a run of bytes.
enum Source {
    /// Never written, or discarded: no device is used.
    Zeros,
    /// A required copy.
    Required,
    /// An extra copy. If a clean extra copy cannot be read, a required copy is read instead.
    Extra(Extra),
}

/// Piece with one source.
struct SourcePiece {
    piece: Piece,
    source: Source,
    /// Read from the home although some blocks have clean extra copies.
    passes_clean: bool,
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Reads a piece from the copies that hold its current bytes, all sources in parallel. The caller holds
    /// the extent's lock. A background read waits only briefly for dirty copies, because guests may wait for
    /// the lock.
    pub async fn read_copies(&self, piece: &Piece, into: &Buf, origin: Origin) -> Result<()> {
        let deadline = if origin == Origin::Guest { Deadline::Only } else { Deadline::Brief };
        self.read_copies_by(piece, into, false, origin, deadline).await
    }

    /// Like [`Extents::read_copies`], with a deadline for dirty copies. With `passes_clean`, clean extra
    /// copies are read only if the home cannot be read.
    pub async fn read_copies_by(
        &self,
        piece: &Piece,
        into: &Buf,
        passes_clean: bool,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        if passes_clean {
            let read = self.read_parts(piece, into, true, origin, deadline).await;
            // A late device may still fill the buffer, so no second read may use the buffer.
            if read.is_ok() || self.store.devices.refuse_late().is_err() {
                return read;
            }
        }
        self.read_parts(piece, into, false, origin, deadline).await
    }

    async fn read_parts(
        &self,
        piece: &Piece,
        into: &Buf,
        passes_clean: bool,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let (.., end) = self.store.source_at(piece, piece.range.start, passes_clean);
        if end == piece.range.end {
            return self.read_part(piece, into, passes_clean, origin, deadline).await;
        }
        let parts = self.store.parts_of(piece, passes_clean);
        let reads = parts.iter().map(async |part| {
            let range = &part.piece.range;
            let into = into.slice(range.start - piece.range.start..range.end - piece.range.start);
            self.read_part(&part.piece, &into, part.passes_clean, origin, deadline).await
        });
        join_all(reads).await.into_iter().collect()
    }

    /// Reads one part; splits the part if its sources change meanwhile. With `passes_clean`, clean extra
    /// copies are not used.
    async fn read_part(
        &self,
        piece: &Piece,
        into: &Buf,
        passes_clean: bool,
        origin: Origin,
        deadline: Deadline,
    ) -> Result<()> {
        let mut at = piece.range.start;
        while at < piece.range.end {
            let (source, entry, end) = self.store.source_at(piece, at, passes_clean);
            let part = into.slice(at - piece.range.start..end - piece.range.start);
            let states = self.store.devices.changes();
            let read = match source {
                Source::Zeros => {
                    part.fill_zero();
                    Ok(())
                }
                Source::Required => self.read_required(piece.extent, &entry, at..end, &part, origin).await,
                Source::Extra(extra) => {
                    let start = self.store.shape.block_size * u64::from(extra.place)
                        + at % self.store.shape.block_size;
                    let range = start..start + (end - at);
                    match extra.dirty {
                        true => match self
                            .store
                            .check_extra_kept(&Piece { extent: piece.extent, range: at..end }, &extra)
                        {
                            Ok(()) => self.read_slot_by(extra.slot, range, &part, origin, deadline).await,
                            Err(error) => Err(error),
                        },
                        false if self.answers_later(extra.slot, entry.home) => {
                            self.read_required(piece.extent, &entry, at..end, &part, origin).await
                        }
                        false => match self.read_slot_copied(extra.slot, range, &part, origin).await {
                            Ok(()) => Ok(()),
                            Err(_) => self.read_required(piece.extent, &entry, at..end, &part, origin).await,
                        },
                    }
                }
            };
            // If a device failed meanwhile, its bytes, and bytes copied from the device earlier, may be older
            // than its lost writes: the read is repeated. A late device may still fill the buffer, so the
            // read is then not repeated.
            let may_be_filled = read.is_err() && self.store.devices.refuse_late().is_err();
            if self.store.devices.changes() == states || may_be_filled {
                read?;
                at = end;
            }
        }
        Ok(())
    }
}

impl<D: Device> Store<D> {
    /// Cuts a piece into parts with one source each. A short clean extra copy between two parts on the home
    /// is read from the home: a disk passes over the bytes in less time than a second request takes. With
    /// `passes_clean`, clean extra copies are never used.
    fn parts_of(&self, piece: &Piece, passes_clean: bool) -> Vec<SourcePiece> {
        let mut parts: Vec<SourcePiece> = Vec::new();
        let mut at = piece.range.start;
        while at < piece.range.end {
            let (source, _, end) = self.source_at(piece, at, passes_clean);
            let is_clean = |source: &Source| matches!(source, Source::Extra(extra) if !extra.dirty);
            if matches!(source, Source::Required)
                && let Some(before) = parts.iter().rposition(|part| !is_clean(&part.source))
                && matches!(parts[before].source, Source::Required)
                && at - parts[before].piece.range.end <= LONGEST_PASSED
            {
                parts.truncate(before + 1);
                let part = &mut parts[before];
                (part.piece.range.end, part.passes_clean) = (end, true);
            } else {
                let piece = Piece { extent: piece.extent, range: at..end };
                parts.push(SourcePiece { piece, source, passes_clean });
            }
            at = end;
        }
        parts
    }

    /// Returns the source of the bytes at `at`, and the end of the bytes with the same source. With
    /// `passes_clean`, clean extra copies do not count.
    fn source_at(&self, piece: &Piece, at: Bytes, passes_clean: bool) -> (Source, Entry, Bytes) {
        let state = self.state.borrow();
        let entry = state.map.get(piece.extent);
        let has_extras = state.map.has_extras(piece.extent) && !state.is_suspect(piece.extent);
        let size = self.shape.block_size;
        let counts = |extra: &Extra| extra.dirty || !passes_clean;
        let extra = |at| match has_extras {
            true => self.extra_in(&state, self.shape.block_of(piece.extent, at)).filter(counts),
            false => None,
        };
        let mut block = at.align_down(size) + size;
        if let Some(first) = extra(at) {
            // Extends the run over neighbours with adjacent extra copies.
            let mut next = Extra { place: first.place + 1, ..first };
            while block < piece.range.end && extra(block) == Some(next) {
                (block, next.place) = (block + size, next.place + 1);
            }
            return (Source::Extra(first), entry, block.min(piece.range.end));
        }
        let (is_valid, mut end) = self.shape.run(entry.valid, at, piece.range.end);
        if has_extras {
            // The run ends at the next extra copy.
            while block < end && extra(block).is_none() {
                block += size;
            }
            end = end.min(block);
        }
        let written =
            is_valid && entry.home != SlotNumber::NONE || entry.home == SlotNumber::LOST || entry.partly_lost;
        (if written { Source::Required } else { Source::Zeros }, entry, end)
    }
}
