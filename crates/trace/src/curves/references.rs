//! References of a trace to blocks, in memory: four bytes each. Only a sample of the blocks if all references
//! do not fit.

use crate::measure::{BLOCK_BYTES, mix};
use crate::reader::Record;
use braid_base::Op;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Limit of kept references: 512 MiB. For a longer trace, only a sample of the blocks is kept. The sample is
/// halved until its references fit.
pub const MOST_REFERENCES: usize = 128 << 20;

/// Bits of a block number: addresses have at most 56 bits, and 12 bits are within a block.
const BLOCK_BITS: u32 = 44;

/// Collects the references of records.
pub struct Collector {
    /// Number of each block of the sample, in order of first reference.
    numbers: HashMap<u64, u32, FixedState>,
    /// Block of each number.
    keys: Vec<u64>,
    blocks: Vec<u32>,
    /// Share of all hashes: a block belongs to the sample if its hash is below.
    share: f64,
    most: usize,
    all: u64,
}

/// References to the blocks of a sample, in order.
#[derive(Debug)]
pub struct References {
    blocks: Vec<u32>,
    distinct: usize,
    share: f64,
    all: u64,
}

impl Collector {
    /// Creates a collector with a sample of the given share of all blocks, 1 for all blocks. Keeps at most
    /// `most` references.
    pub fn new(share: f64, most: usize) -> Collector {
        Collector {
            numbers: HashMap::default(),
            keys: Vec::new(),
            blocks: Vec::new(),
            share: share.clamp(0.0, 1.0),
            most: most.max(1),
            all: 0,
        }
    }

    /// Adds the references of a record. Flushes and discards have none.
    pub fn add(&mut self, record: &Record) {
        let request = record.arrival.request;
        if !matches!(request.op, Op::Read | Op::Write) {
            return;
        }
        let first = record.within.0 / BLOCK_BYTES;
        let last = (record.within.0 + request.len.0 - 1) / BLOCK_BYTES;
        for block in first..=last {
            self.reference(u64::from(record.device) << BLOCK_BITS | block);
        }
    }

    fn reference(&mut self, key: u64) {
        self.all += 1;
        if !is_sampled(key, self.share) {
            return;
        }
        let keys = &mut self.keys;
        let number = *self.numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            // Fits: there are no more blocks than references, and fewer than 2^32 references.
            (keys.len() - 1) as u32
        });
        self.blocks.push(number);
        while self.blocks.len() > self.most {
            self.halve();
        }
    }

    /// Halves the sample.
    fn halve(&mut self) {
        self.share /= 2.0;
        let old = std::mem::take(&mut self.keys);
        self.numbers.clear();
        let (share, numbers, keys) = (self.share, &mut self.numbers, &mut self.keys);
        self.blocks.retain_mut(|number| {
            let key = old[*number as usize];
            let stays = is_sampled(key, share);
            if stays {
                *number = *numbers.entry(key).or_insert_with(|| {
                    keys.push(key);
                    (keys.len() - 1) as u32
                });
            }
            stays
        });
    }

    /// Returns the collected references.
    pub fn finish(self) -> References {
        References { distinct: self.keys.len(), blocks: self.blocks, share: self.share, all: self.all }
    }
}

fn is_sampled(key: u64, share: f64) -> bool {
    // The highest 53 bits of a hash are a number from 0 to 1.
    share >= 1.0 || ((mix(key) >> 11) as f64) < share * (1u64 << 53) as f64
}

impl References {
    /// Returns the block number of each reference, in order.
    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Returns the number of blocks in the sample.
    pub fn distinct(&self) -> usize {
        self.distinct
    }

    /// Returns the number of kept references.
    pub fn kept(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Returns the number of all references, including references to blocks outside the sample.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Returns the sample's share of all blocks.
    pub fn sampled_share(&self) -> f64 {
        self.share
    }

    /// Returns the bytes of all blocks of the trace, estimated from the sample.
    pub fn footprint_bytes(&self) -> u64 {
        (self.distinct as f64 / self.share.max(f64::MIN_POSITIVE)).round() as u64 * BLOCK_BYTES
    }
}
