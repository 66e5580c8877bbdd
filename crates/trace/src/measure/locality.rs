//! Locality: the share of references to the hottest blocks.
//!
//! Blocks of 4 KiB touched at least once are ranked by their number of references. A request is one reference
//! to each block that it touches. Each point of the curve gives a percentage of the blocks, hottest first
//! (rounded up, at least one block), and their percentage of all references. Hayashi and Komoda (2014, figure
//! 4) give 57 % for Financial1 and 84 % for Financial2 at 20 %. The paper does not state the unit of area, so
//! a comparison must state its own unit.

use super::blocks::BlockTable;

/// Share of references to the hottest blocks.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Locality {
    /// Share of references to the hottest fifth of touched blocks.
    pub hottest_20_percent_references_share: f64,
    /// Further points of the same curve.
    pub shares: Vec<Share>,
}

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Share {
    /// The hottest blocks, as a share of touched blocks.
    pub blocks_share: f64,
    /// References to the hottest blocks, as a share of all references.
    pub references_share: f64,
}

const PERCENT: [u64; 7] = [1, 5, 10, 20, 30, 50, 80];

impl Locality {
    pub(super) fn of(blocks: &BlockTable) -> Locality {
        let mut references = blocks.references_by_block();
        references.sort_unstable_by(|a, b| b.cmp(a));
        let total: u64 = references.iter().map(|&count| u64::from(count)).sum();
        let hottest = |percent: u64| {
            let count = (references.len() as u64 * percent).div_ceil(100) as usize;
            let part: u64 = references[..count].iter().map(|&count| u64::from(count)).sum();
            super::share(part, total)
        };
        let point =
            |percent: u64| Share { blocks_share: percent as f64 / 100.0, references_share: hottest(percent) };
        Locality {
            hottest_20_percent_references_share: hottest(20),
            shares: PERCENT.into_iter().map(point).collect(),
        }
    }
}
