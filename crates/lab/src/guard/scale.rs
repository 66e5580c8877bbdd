//! Ghosts of a part of a volume: one piece of each run of pieces, chosen by a hash, with time shortened in
//! proportion.
//!
//! The pieces are contiguous in a ghost. Requests to the pieces arrive faster in proportion to the reduced
//! amount. Devices are as fast as the real devices, and smaller in the same proportion. Queues and the number
//! of waiting clients are as on the volume, and a stream stays a stream. (SHARDS, Waldspurger and others,
//! FAST 2015, samples single addresses at random; here each run of pieces has exactly one in the sample,
//! which varies less.)

use braid_base::{Bytes, MIB, Op, Request};

/// Part of a volume in ghosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Length of a run, in pieces: one piece of each run is chosen.
    one_in: u32,
    piece: Bytes,
}

/// Fewest pieces that represent a volume.
const FEWEST_PIECES: u64 = 256;
/// Largest factor: with more, a policy's times would shrink to the times of single requests.
const MOST: u32 = 256;
/// Cost of a request beyond its bytes, as bytes: between positioning on an SSD (some 40 KB) and on a disk
/// (some 800 KB).
const POSITION: u64 = 128 << 10;

impl Scale {
    /// The whole volume.
    pub const WHOLE: Scale = Scale { one_in: 1, piece: MIB };

    /// One piece of `one_in`, rounded up to a power of two, but so that enough pieces of the volume remain. A
    /// piece is at least as long as the unit that policies place as a whole.
    pub fn of(one_in: u64, volume: Bytes, extent: Bytes) -> Scale {
        let piece = MIB.max(extent * 8);
        let most = (volume / piece / FEWEST_PIECES).clamp(1, u64::from(MOST));
        let most = 1 << most.ilog2();
        Scale { one_in: one_in.next_power_of_two().min(most) as u32, piece }
    }

    /// Length of a run, in pieces.
    pub fn one_in(self) -> u32 {
        self.one_in
    }

    /// Length of a piece.
    pub fn piece(self) -> Bytes {
        self.piece
    }

    /// Address in a ghost of an address of the volume, or of the next address in the ghost's part.
    pub fn image(self, at: Bytes) -> Bytes {
        if self.one_in == 1 {
            return at;
        }
        let run = at / self.run();
        let into = (at % self.run()).saturating_sub(self.piece * self.chosen(run));
        self.piece * run + into.min(self.piece)
    }

    /// Address of the volume represented by a ghost's address.
    pub fn place(self, image: Bytes) -> Bytes {
        let run = image / self.piece;
        self.run() * run + self.piece * self.chosen(run) + image % self.piece
    }

    fn run(self) -> Bytes {
        self.piece * u64::from(self.one_in)
    }

    /// Piece of a run in the ghost.
    fn chosen(self, run: u64) -> u64 {
        // The finalizer of SplitMix64.
        let mixed = (run ^ (run >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % u64::from(self.one_in)
    }

    /// The ghost's request for a request to the volume, if any; `number` counts the requests.
    pub(super) fn request(self, request: Request, number: u64) -> Option<Request> {
        if self.one_in == 1 {
            return Some(request);
        }
        if request.op == Op::Flush {
            return number.is_multiple_of(u64::from(self.one_in)).then_some(request);
        }
        let offset = self.image(request.offset);
        let len = self.image(request.offset + request.len) - offset;
        (len > Bytes::ZERO).then_some(Request { offset, len, ..request })
    }
}

/// Cost of a request, in transferred bytes.
pub(super) fn cost(request: &Request) -> u64 {
    POSITION + if request.op == Op::Discard { 0 } else { request.len.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, Rng, TIB};

    #[test]
    fn whole_scale_maps_requests_to_themselves() {
        let request = Request { op: Op::Read, offset: Bytes(12345), len: Bytes(678) };
        assert_eq!(Scale::WHOLE.request(request, 7), Some(request));
        assert_eq!(Scale::WHOLE.image(Bytes(98765)), Bytes(98765));
        assert_eq!(Scale::WHOLE.place(Bytes(98765)), Bytes(98765));
    }

    #[test]
    fn image_takes_one_piece_per_run_and_keeps_streams() {
        let scale = Scale::of(5, MIB * 4096, KIB * 128);
        assert_eq!(scale.one_in(), 8);
        let (mut begin, mut pieces) = (Bytes::ZERO, Vec::new());
        for piece in 0..4096 {
            let image = scale.image(MIB * piece)..scale.image(MIB * (piece + 1));
            assert_eq!(image.start, begin, "the image has no gaps");
            begin = image.end;
            if image.start < image.end {
                assert_eq!((image.end - image.start, scale.place(image.start)), (MIB, MIB * piece));
                pieces.push(piece);
            }
        }
        assert_eq!(pieces.len(), 512);
        assert!(pieces.iter().enumerate().all(|(run, piece)| piece / 8 == run as u64));
        assert!(
            (0..8).all(|place| pieces.iter().any(|piece| piece % 8 == place)),
            "any piece may be the one"
        );
        let stream = Request { op: Op::Write, offset: MIB * 80, len: MIB * 160 };
        assert_eq!(scale.request(stream, 0), Some(Request { offset: MIB * 10, len: MIB * 20, ..stream }));
    }

    #[test]
    fn image_receives_small_requests_in_proportion_to_pieces() {
        let scale = Scale::of(16, TIB, KIB * 128);
        let mut rng = Rng::new(5);
        let read = |offset| Request { op: Op::Read, offset: Bytes(offset), len: KIB * 4 };
        let found = (0..16_000).filter(|_| {
            let offset = rng.below(TIB.0 / 4096) * 4096;
            scale.request(read(offset), 0).is_some()
        });
        assert!((800..1200).contains(&found.count()));
    }

    #[test]
    fn small_volume_is_not_divided_and_division_is_bounded() {
        assert_eq!(Scale::of(64, MIB * 300, KIB * 128).one_in(), 1);
        assert_eq!(Scale::of(64, MIB * 3072, KIB * 128).one_in(), 8);
        assert_eq!(Scale::of(1 << 40, TIB * 256, KIB * 128).one_in(), MOST);
    }
}
