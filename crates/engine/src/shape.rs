//! Sizes of a volume, and the arithmetic of ranges within its extents.

use crate::{Error, ErrorKind};
use braid_base::{BlockId, Bytes, ExtentId, SECTOR};
use braid_format::superblock::{Mapping, Superblock};
use braid_format::{SpanId, layout};
use braid_policy::{ByteRange, WholeInMemory};
use std::ops::Range;

/// Sizes of a volume, fixed while the volume is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes that a guest can address.
    pub volume_size: Bytes,
    /// Unit of placement.
    pub extent_size: Bytes,
    /// Unit of caching.
    pub block_size: Bytes,
    /// Unit of the map's record of written bytes.
    pub part_size: Bytes,
    /// Number of required copies of each extent.
    pub copies: u8,
    /// End of the homes: the end of the last extent, possibly after the end of the volume. On an adopted disk
    /// the last extent is short, and `end` is the size of the volume.
    end: Bytes,
    /// Sizes as powers of two: every request shifts instead of dividing.
    extent_bits: u32,
    block_bits: u32,
    part_bits: u32,
    span_bits: u32,
}

/// Range within one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub extent: ExtentId,
    /// Offsets from the start of the extent.
    pub range: Range<Bytes>,
}

impl Piece {
    pub fn len(&self) -> Bytes {
        self.range.end - self.range.start
    }
}

impl Shape {
    /// Sizes of the volume in a superblock.
    pub(crate) fn of(superblock: &Superblock) -> Shape {
        let Superblock { volume_size, extent_size, block_size, copies, span_extents, .. } = *superblock;
        let shape = Shape::new(volume_size, extent_size, block_size, copies, span_extents);
        match superblock.mapping() {
            Mapping::Dense => shape,
            Mapping::OwnAddress => Shape { end: volume_size, ..shape },
        }
    }

    pub(crate) fn new(
        volume_size: Bytes,
        extent_size: Bytes,
        block_size: Bytes,
        copies: u8,
        span_extents: u32,
    ) -> Shape {
        let part_size = layout::part_size(extent_size, block_size);
        let bits = |size: Bytes| {
            assert!(size.0.is_power_of_two(), "{size} is no power of two");
            size.0.ilog2()
        };
        let (extent_bits, block_bits, part_bits) = (bits(extent_size), bits(block_size), bits(part_size));
        let span_bits = span_extents.ilog2();
        Shape {
            volume_size,
            extent_size,
            block_size,
            part_size,
            copies,
            end: extent_size * volume_size.0.div_ceil(extent_size.0),
            extent_bits,
            block_bits,
            part_bits,
            span_bits,
        }
    }

    /// Number of extents of the volume.
    pub fn extents(&self) -> u32 {
        self.volume_size.0.div_ceil(self.extent_size.0) as u32
    }

    /// Number of blocks that can have an extra copy.
    pub(crate) fn blocks(&self) -> u64 {
        self.end.0.div_ceil(self.block_size.0)
    }

    /// True if an extent has the full size. Only the last extent of an adopted disk may be shorter.
    #[inline]
    pub(crate) fn is_whole(&self, extent: ExtentId) -> bool {
        self.bytes_of(extent).end <= self.end
    }

    /// Extent of the byte at `offset`.
    pub fn extent_of(&self, offset: Bytes) -> ExtentId {
        ExtentId((offset.0 >> self.extent_bits) as u32)
    }

    /// True if a range of the volume lies within one extent.
    #[inline]
    pub(crate) fn is_one_piece(&self, offset: Bytes, len: Bytes) -> bool {
        self.within(offset) + len <= self.extent_size
    }

    /// Piece for a range of the volume that lies within one extent.
    #[inline]
    pub(crate) fn one_piece(&self, offset: Bytes, len: Bytes) -> Piece {
        let start = self.within(offset);
        Piece { extent: self.extent_of(offset), range: start..start + len }
    }

    fn within(&self, offset: Bytes) -> Bytes {
        Bytes(offset.0 & (self.extent_size.0 - 1))
    }

    /// Cuts a range of the volume at the bounds of extents, in order.
    pub(crate) fn pieces(&self, offset: Bytes, len: Bytes) -> impl Iterator<Item = Piece> + use<> {
        let (size, end) = (self.extent_size, offset + len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let start = at % size;
            let piece_len = (size - start).min(end - at);
            let piece = Piece { extent: ExtentId((at / size) as u32), range: start..start + piece_len };
            at += piece_len;
            Some(piece)
        })
    }

    /// Valid bits of an extent written as a whole.
    pub(crate) fn all_parts(&self) -> u16 {
        mask(0, self.extent_size / self.part_size)
    }

    /// Parts touched by a range.
    pub(crate) fn parts_touched(&self, range: &Range<Bytes>) -> u16 {
        mask(range.start.0 >> self.part_bits, (range.end.0 + self.part_size.0 - 1) >> self.part_bits)
    }

    /// Parts covered as a whole by a range.
    pub(crate) fn parts_covered(&self, range: &Range<Bytes>) -> u16 {
        let first = (range.start.0 + self.part_size.0 - 1) >> self.part_bits;
        let end = range.end.0 >> self.part_bits;
        if first < end { mask(first, end) } else { 0 }
    }

    /// Parts covered as a whole by a piece. The end of the volume counts as the end of the extent.
    pub(crate) fn parts_covered_of(&self, piece: &Piece) -> u16 {
        let end =
            if piece.range.end == self.len_of(piece.extent) { self.extent_size } else { piece.range.end };
        self.parts_covered(&(piece.range.start..end))
    }

    /// True if a piece contains all of its extent within the volume.
    pub(crate) fn is_all_of(&self, piece: &Piece) -> bool {
        piece.range.start == Bytes::ZERO && piece.range.end >= self.len_of(piece.extent)
    }

    /// True if `parts` contains all parts of an extent within the volume.
    pub(crate) fn are_all_parts(&self, extent: ExtentId, parts: u16) -> bool {
        let all = self.parts_touched(&(Bytes::ZERO..self.len_of(extent)));
        parts & all == all
    }

    fn len_of(&self, extent: ExtentId) -> Bytes {
        self.extent_size.min(self.volume_size - self.bytes_of(extent).start)
    }

    /// Longest run of parts from `at`, at most to `end`, with equal validity. Returns the validity and the
    /// end of the run.
    pub(crate) fn run(&self, valid: u16, at: Bytes, end: Bytes) -> (bool, Bytes) {
        let part_valid = |at: Bytes| valid >> (at.0 >> self.part_bits) & 1 == 1;
        let first = part_valid(at);
        let mut reach = at;
        while reach < end && part_valid(reach) == first {
            reach = (reach.align_down(self.part_size) + self.part_size).min(end);
        }
        (first, reach)
    }

    /// Block of the byte at `at` within an extent.
    pub(crate) fn block_of(&self, extent: ExtentId, at: Bytes) -> BlockId {
        let blocks = u64::from(extent.0) << (self.extent_bits - self.block_bits);
        BlockId(blocks + (at.0 >> self.block_bits))
    }

    /// Blocks of an extent.
    pub(crate) fn blocks_of(&self, extent: ExtentId) -> impl Iterator<Item = BlockId> + use<> {
        let per_extent = 1u64 << (self.extent_bits - self.block_bits);
        (u64::from(extent.0) * per_extent..(u64::from(extent.0) + 1) * per_extent).map(BlockId)
    }

    /// Span of an extent.
    #[inline]
    pub(crate) fn span_of(&self, extent: ExtentId) -> SpanId {
        SpanId(extent.0 >> self.span_bits)
    }

    /// Bytes of the volume in an extent, full size even at the end of the volume.
    #[inline]
    pub(crate) fn bytes_of(&self, extent: ExtentId) -> Range<Bytes> {
        let start = Bytes(u64::from(extent.0) << self.extent_bits);
        start..start + self.extent_size
    }

    /// Bytes of the volume in a span, at most to the end of the last extent.
    pub(crate) fn bytes_of_span(&self, span: SpanId) -> Range<Bytes> {
        let (size, end) = (self.span_size(), self.extent_size * u64::from(self.extents()));
        size * u64::from(span.0)..(size * (u64::from(span.0) + 1)).min(end)
    }

    /// Bytes of a full span.
    pub(crate) fn span_size(&self) -> Bytes {
        Bytes(self.extent_size.0 << self.span_bits)
    }

    /// Extents of a span.
    pub(crate) fn extents_of(&self, span: SpanId) -> impl DoubleEndedIterator<Item = ExtentId> + use<> {
        let (first, end) = (u64::from(span.0) << self.span_bits, (u64::from(span.0) + 1) << self.span_bits);
        (first as u32..end.min(u64::from(self.extents())) as u32).map(ExtentId)
    }

    /// Number of blocks touched by a piece.
    #[inline]
    pub(crate) fn blocks_touched(&self, piece: &Piece) -> u64 {
        let end = (piece.range.end.0 + self.block_size.0 - 1) >> self.block_bits;
        end - (piece.range.start.0 >> self.block_bits)
    }

    /// Extent of a block, and the block's range within the extent. The last block of an adopted disk may be
    /// short.
    pub(crate) fn range_of(&self, block: BlockId) -> Piece {
        let per_extent = self.extent_size / self.block_size;
        let (start, at) = (self.block_size * (block.0 % per_extent), self.block_size * block.0);
        let len = self.end.saturating_sub(at).min(self.block_size);
        Piece { extent: ExtentId((block.0 / per_extent) as u32), range: start..start + len }
    }

    /// Returns an error for a range beyond the end of the volume.
    #[inline]
    pub(crate) fn check_range(&self, offset: Bytes, len: Bytes) -> crate::Result<()> {
        let size = self.volume_size;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a request for {len} at byte {} reaches beyond the volume's {} bytes",
                    offset.0, size.0
                ),
            )),
        }
    }

    /// Returns an extent as a piece.
    pub(crate) fn whole_extent(&self, extent: ExtentId) -> Piece {
        Piece { extent, range: Bytes::ZERO..self.extent_size }
    }

    /// Returns the span with a byte of the volume.
    pub(crate) fn span_at(&self, at: Bytes) -> SpanId {
        self.span_of(self.extent_of(at))
    }

    /// Range of the volume of a piece.
    pub(crate) fn bytes_of_piece(&self, piece: &Piece) -> Range<Bytes> {
        let start = self.bytes_of(piece.extent).start;
        start + piece.range.start..start + piece.range.end
    }

    /// Returns a piece of a request as a policy sees it. `whole` is set if the memory cache holds all of the
    /// extent.
    #[inline]
    pub(crate) fn shown<'a>(
        &self,
        piece: &Piece,
        request: ByteRange,
        whole: bool,
    ) -> braid_policy::Piece<'a> {
        braid_policy::Piece {
            extent: piece.extent,
            range: piece.range.clone(),
            first_block: self.block_of(piece.extent, piece.range.start),
            blocks: self.blocks_touched(piece) as u32,
            request,
            whole: whole.then(WholeInMemory::vouched_by_the_engine),
        }
    }

    /// Range of the volume with the sectors that a piece touches.
    pub(crate) fn sectors_of(&self, piece: &Piece) -> Range<Bytes> {
        let bytes = self.bytes_of(piece.extent);
        let (from, to) = (piece.range.start.align_down(SECTOR), piece.range.end.align_up(SECTOR));
        bytes.start + from..(bytes.start + to).min(bytes.end)
    }

    /// Iterates over the blocks that a piece touches, each with the touched range of the extent.
    pub(crate) fn blocks_in(&self, piece: &Piece) -> impl Iterator<Item = (BlockId, Range<Bytes>)> + use<> {
        let (shape, piece) = (*self, piece.clone());
        let mut at = piece.range.start;
        std::iter::from_fn(move || {
            if at >= piece.range.end {
                return None;
            }
            let end = (at.align_down(shape.block_size) + shape.block_size).min(piece.range.end);
            let range = at..end;
            at = end;
            Some((shape.block_of(piece.extent, range.start), range))
        })
    }

    /// Bytes of the image that belong to the volume, in whole extents.
    pub(crate) fn image_len(&self) -> Bytes {
        self.extent_size * u64::from(self.extents())
    }
}

/// Bits `first..end`.
fn mask(first: u64, end: u64) -> u16 {
    (((1u32 << end) - 1) & !((1u32 << first) - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB};

    fn shape() -> Shape {
        Shape::new(MIB * 10, KIB * 128, KIB * 4, 1, 1)
    }

    #[test]
    fn range_is_split_at_extent_boundaries() {
        let pieces: Vec<Piece> = shape().pieces(KIB * 127, KIB * 130).collect();
        let lens: Vec<u64> = pieces.iter().map(|p| p.len() / KIB).collect();
        assert_eq!((pieces[0].extent.0, lens), (0, vec![1, 128, 1]));
    }

    #[test]
    fn parts_are_touched_or_covered() {
        let shape = shape();
        assert_eq!(shape.part_size, KIB * 8);
        assert_eq!(shape.parts_touched(&(KIB * 4..KIB * 20)), 0b111);
        assert_eq!(shape.parts_covered(&(KIB * 4..KIB * 20)), 0b010);
        assert_eq!(shape.parts_covered(&(KIB * 4..KIB * 8)), 0);
        assert_eq!(shape.parts_covered(&(Bytes::ZERO..KIB * 128)), shape.all_parts());
        assert_eq!(shape.run(0b110, KIB * 4, KIB * 128), (false, KIB * 8));
        assert_eq!(shape.run(0b110, KIB * 9, KIB * 128), (true, KIB * 24));
        assert_eq!(shape.run(0b110, KIB * 9, KIB * 12), (true, KIB * 12));
    }

    #[test]
    fn the_last_extent_and_block_of_an_adopted_disk_are_short() {
        let shape = Shape { end: MIB * 10 - Bytes(512), ..shape() };
        let (last, blocks) = (ExtentId(79), MIB * 10 / (KIB * 4));
        assert!(shape.is_whole(ExtentId(78)) && !shape.is_whole(last));
        assert_eq!(shape.blocks(), blocks);
        let range = shape.range_of(BlockId(blocks - 1)).range;
        assert_eq!((range.start, range.end), (KIB * 124, KIB * 128 - Bytes(512)));
        assert_eq!(shape.range_of(BlockId(blocks - 2)).range, KIB * 120..KIB * 124);
    }

    #[test]
    fn small_extents_have_fewer_parts() {
        let shape = Shape::new(MIB, KIB * 4, KIB * 4, 1, 1);
        assert_eq!((shape.part_size, shape.all_parts()), (KIB * 4, 1));
        assert_eq!(shape.range_of(shape.block_of(ExtentId(7), Bytes::ZERO)).extent, ExtentId(7));
    }
}
