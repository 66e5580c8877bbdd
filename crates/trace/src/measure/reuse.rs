//! Reuse distance: how many other distinct blocks of 4 KiB were touched between two references to the same
//! block. It is the distance on an LRU stack: a cache of more blocks than that has the block still.

use super::blocks::Touch;
use super::distribution::{Bucket, Distribution};
use super::{BLOCK_BYTES, share};

/// How much lies between two references to a block, as bytes of the blocks in between.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Reuse {
    /// References to blocks never touched before, as a share of all.
    pub first_references_share: f64,
    /// 10th percentile of the others.
    pub reuse_distance_bytes_p10: u64,
    /// 25th percentile.
    pub reuse_distance_bytes_p25: u64,
    /// Median.
    pub reuse_distance_bytes_p50: u64,
    /// 75th percentile.
    pub reuse_distance_bytes_p75: u64,
    /// 90th percentile.
    pub reuse_distance_bytes_p90: u64,
    /// The whole distribution, by powers of two; the first bucket is reuse with nothing in between.
    pub histogram: Vec<Bucket>,
}

#[derive(Default)]
pub(super) struct Counting {
    pub distances: Distribution,
    /// The weight of first references.
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
