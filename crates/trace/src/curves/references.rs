//! The references of a trace to blocks, in memory: four bytes each. A sample of the blocks if there are more
//! than fit.

use crate::measure::{BLOCK_BYTES, mix};
use crate::reader::Record;
use braid_base::Op;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// References that are kept: 512 MiB. Of a trace with more, a sample of the blocks is kept, and the sample is
/// halved until its references fit.
pub const MOST_REFERENCES: usize = 128 << 20;

/// Addresses have 56 bits at most, so that of their blocks 44 are left.
const BLOCK_BITS: u32 = 44;

/// Takes the references of records as they come.
pub struct Collector {
    /// The number of each block of the sample, in order of first reference.
    numbers: HashMap<u64, u32, FixedState>,
    /// The block of each number.
    keys: Vec<u64>,
    blocks: Vec<u32>,
    /// A block belongs to the sample if its hash is below this share of all hashes.
    share: f64,
    most: usize,
    all: u64,
}

/// The references to the blocks of a sample, in order.
#[derive(Debug)]
pub struct References {
    blocks: Vec<u32>,
    distinct: usize,
    share: f64,
    all: u64,
}

impl Collector {
    /// A sample of this share of all blocks, 1 for all of them; at most `most` references are kept.
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

    /// Takes a record. Flushes and discards are none.
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
            // There are no more blocks than references, of which there are fewer than 2^32.
            (keys.len() - 1) as u32
        });
        self.blocks.push(number);
        while self.blocks.len() > self.most {
            self.halve();
        }
    }

    /// Keeps half of the sample.
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

    /// All that was taken.
    pub fn finish(self) -> References {
        References { distinct: self.keys.len(), blocks: self.blocks, share: self.share, all: self.all }
    }
}

fn is_sampled(key: u64, share: f64) -> bool {
    // The highest 53 bits of a hash are a number from 0 to 1.
    share >= 1.0 || ((mix(key) >> 11) as f64) < share * (1u64 << 53) as f64
}

impl References {
    /// By number of the block, in order.
    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// How many blocks of the sample there are.
    pub fn distinct(&self) -> usize {
        self.distinct
    }

    /// How many references are kept.
    pub fn kept(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// How many there were, also to blocks that are not in the sample.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// The share of blocks that the sample is.
    pub fn sampled_share(&self) -> f64 {
        self.share
    }

    /// Bytes of all blocks of the trace; as far as the sample tells.
    pub fn footprint_bytes(&self) -> u64 {
        (self.distinct as f64 / self.share.max(f64::MIN_POSITIVE)).round() as u64 * BLOCK_BYTES
    }
}
