//! What a write costs inside an SSD: the translation layer, as a formula.
//!
//! A write that goes on where one of the last few writers stopped (a *stream*), or near there, fills erase blocks in
//! order and costs its own bytes. Any other write is random and costs more:
//! - in a drive that maps pages, collection copies what is still valid in the erase blocks that it frees. The copies
//!   grow with the share of the drive that is in use and with the share over which random writes are spread:
//!   amplification = `base` + `fill` × share in use + `span` × share in use × share written at random.
//! - in a drive that maps erase blocks, each random write merges a block of a fixed size: `merge`.
//!
//! The form is ours, fitted to published rates: it has the right corners, and no theory behind what lies between. A
//! page-mapped translation with real collection replaces this file; its interface is `Translation`.
//!
//! Shares are of the device's size, so that a small emulated device shows what a full-size one would.

use braid_base::Bytes;

/// The constants of the formula.
#[derive(Clone, Copy, Debug)]
pub struct TranslationParams {
    /// How many sequential writers the drive tells apart: 1 to 16.
    pub streams: usize,
    /// How far from a stream's end a write still belongs to it, in 1/65,536 of the device.
    pub reach: u64,
    /// Bytes programmed for each random write beside its own; zero where pages are mapped.
    pub merge: Bytes,
    /// Bytes programmed per byte of a random write, on an empty drive.
    pub base: f64,
    /// What is added on a full drive.
    pub fill: f64,
    /// What is added on a full drive that is written at random all over.
    pub span: f64,
}

/// What a write makes the drive program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Its own bytes and the copies that go with them.
    pub programmed: Bytes,
    /// Merges that must come first.
    pub merged: Bytes,
}

/// The state that the formula needs. Starts as after long use: all in use, which is what sheets' sustained rates mean.
#[derive(Clone, Debug)]
pub struct Translation {
    params: TranslationParams,
    size: Bytes,
    region: Bytes,
    reach: Bytes,
    /// Where each stream goes on, the latest first.
    streams: [Bytes; 16],
    in_use: [Bytes; REGIONS],
    total_in_use: Bytes,
    /// The regions of the last random writes, a ring.
    recent: [u8; RECENT],
    newest: usize,
    recent_in: [u16; REGIONS],
    regions_written: u32,
}

/// The device is looked at in so many equal regions.
const REGIONS: usize = 128;

/// The share written at random is that of the regions met by so many random writes: eight for each region, so that
/// uniform writes miss one in three thousand.
const RECENT: usize = 1_024;

impl Translation {
    /// The layer of a used drive of `size`.
    pub fn new(params: &TranslationParams, size: Bytes) -> Translation {
        assert!(
            (1..=16).contains(&params.streams),
            "a drive tells 1 to 16 streams apart, not {}",
            params.streams
        );
        let region = Bytes(size.0.div_ceil(REGIONS as u64).max(1));
        let in_use = std::array::from_fn(|at| size.saturating_sub(region * at as u64).min(region));
        let mut recent_in = [0; REGIONS];
        recent_in[0] = RECENT as u16;
        Translation {
            params: *params,
            size,
            region,
            reach: Bytes((u128::from(size.0) * u128::from(params.reach) / 65_536) as u64),
            streams: [Bytes::ZERO; 16],
            in_use,
            total_in_use: size,
            recent: [0; RECENT],
            newest: 0,
            recent_in,
            regions_written: 1,
        }
    }

    /// Accounts for a write and says what it costs.
    pub fn write(&mut self, offset: Bytes, len: Bytes) -> Cost {
        self.change_use(offset, len, |held, touched, region| (held + touched).min(region));
        if self.continues_stream(offset, len) {
            return Cost { programmed: len, merged: Bytes::ZERO };
        }
        self.remember(offset);
        let fill = self.total_in_use.0 as f64 / self.size.0 as f64;
        let span = f64::from(self.regions_written) / REGIONS as f64;
        let amplification = self.params.base + self.params.fill * fill + self.params.span * fill * span;
        Cost { programmed: Bytes((len.0 as f64 * amplification) as u64), merged: self.params.merge }
    }

    /// The bytes are no longer in use. Bytes are counted by region, so that discarding some twice counts twice.
    pub fn discard(&mut self, offset: Bytes, len: Bytes) {
        self.change_use(offset, len, |held, touched, _| held.saturating_sub(touched));
    }

    fn change_use(&mut self, offset: Bytes, len: Bytes, change: impl Fn(Bytes, Bytes, Bytes) -> Bytes) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let index = (at / self.region) as usize;
            let region_end = (self.region * (index as u64 + 1)).min(self.size);
            let region_start = self.region * index as u64;
            let held = self.in_use[index];
            let next = end.min(region_end);
            self.in_use[index] = change(held, next - at, region_end - region_start);
            self.total_in_use = self.total_in_use + self.in_use[index] - held;
            at = next;
        }
    }

    fn continues_stream(&mut self, offset: Bytes, len: Bytes) -> bool {
        let streams = &mut self.streams[..self.params.streams];
        let near = |end: &Bytes| offset.max(*end) - offset.min(*end) <= self.reach;
        let found = streams.iter().position(near);
        let at = found.unwrap_or(streams.len() - 1);
        streams[..=at].rotate_right(1);
        streams[0] = offset + len;
        found.is_some()
    }

    fn remember(&mut self, offset: Bytes) {
        let region = (offset / self.region) as u8;
        self.newest = (self.newest + 1) % RECENT;
        let forgotten = std::mem::replace(&mut self.recent[self.newest], region);
        let forgotten_count = &mut self.recent_in[forgotten as usize];
        *forgotten_count -= 1;
        self.regions_written -= u32::from(*forgotten_count == 0);
        let count = &mut self.recent_in[region as usize];
        self.regions_written += u32::from(*count == 0);
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{GIB, KIB, Rng};

    const PAGES: TranslationParams =
        TranslationParams { streams: 2, reach: 0, merge: Bytes::ZERO, base: 1.0, fill: 1.0, span: 2.0 };

    fn last_of_random_writes(translation: &mut Translation, span: Bytes) -> u64 {
        let mut rng = Rng::new(1);
        let mut last = Bytes::ZERO;
        for _ in 0..5_000 {
            last = translation.write(KIB * 4 * rng.below(span / (KIB * 4)), KIB * 4).programmed;
        }
        last / KIB / 4
    }

    #[test]
    fn sequential_writers_cost_their_own_bytes_as_long_as_they_are_few() {
        let mut translation = Translation::new(&PAGES, GIB);
        translation.write(GIB / 2, KIB * 4);
        for step in 0..100 {
            for start in [Bytes::ZERO, GIB / 2 + KIB * 4] {
                let cost = translation.write(start + KIB * 4 * step, KIB * 4);
                assert_eq!(cost.programmed, KIB * 4, "step {step}");
            }
        }
    }

    #[test]
    fn random_writes_cost_more_the_wider_they_spread() {
        let narrow = last_of_random_writes(&mut Translation::new(&PAGES, GIB), GIB / 10);
        let wide = last_of_random_writes(&mut Translation::new(&PAGES, GIB), GIB);
        assert_eq!((narrow, wide), (2, 4));
    }

    #[test]
    fn a_discarded_device_is_as_new() {
        let mut translation = Translation::new(&PAGES, GIB);
        translation.discard(Bytes::ZERO, GIB);
        assert_eq!(translation.total_in_use, Bytes::ZERO);
        assert_eq!(last_of_random_writes(&mut translation, GIB / 50), 1);
    }
}
