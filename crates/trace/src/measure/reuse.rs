//! Reuse distance: the number of other distinct blocks of 4 KiB touched between two references to the same
//! block. The reuse distance is the distance on an LRU stack: an LRU cache of more blocks still holds the
//! block.

use super::blocks::Touch;
use super::distribution::{Bucket, Distribution};
use super::{BLOCK_BYTES, share};

/// Reuse distances, as bytes of the blocks between two references to the same block.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Reuse {
    /// First references to blocks, as a share of all references.
    pub first_references_share: f64,
    /// 10th percentile of all other references.
    pub reuse_distance_bytes_p10: u64,
    /// 25th percentile.
    pub reuse_distance_bytes_p25: u64,
    /// Median.
    pub reuse_distance_bytes_p50: u64,
    /// 75th percentile.
    pub reuse_distance_bytes_p75: u64,
    /// 90th percentile.
    pub reuse_distance_bytes_p90: u64,
    /// The whole distribution, by powers of two. The first bucket is reuse without other blocks in between.
    pub histogram: Vec<Bucket>,
}

#[derive(Default)]
pub(super) struct Counting {
    pub distances: Distribution,
    /// Weight of first references.
    pub firsts: u64,
}

impl Counting {
    pub(super) fn add(&mut self, touch: &Touch) {
        match &touch.before {
            Some(before) => self.distances.add(before.distance, touch.weight),
            None => self.firsts += touch.weight,
        }
    }

    pub(super) fn finish(self) -> Reuse {
        let Counting { distances, firsts } = self;
        let percentile = |percent| distances.percentile(percent).saturating_mul(BLOCK_BYTES);
        Reuse {
            first_references_share: share(firsts, firsts + distances.total()),
            reuse_distance_bytes_p10: percentile(10),
            reuse_distance_bytes_p25: percentile(25),
            reuse_distance_bytes_p50: percentile(50),
            reuse_distance_bytes_p75: percentile(75),
            reuse_distance_bytes_p90: percentile(90),
            histogram: distances.buckets(BLOCK_BYTES),
        }
    }
}
