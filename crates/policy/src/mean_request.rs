//! What guests ask for on average, so that a probe asks the same.

use crate::Direction;
use braid_base::Bytes;

/// What guests ask for on average.
#[derive(Clone, Copy, Debug)]
pub struct MeanRequest {
    len: f64,
    /// Share of reads among reads and writes.
    pub read_share: f64,
    /// Reads owed to probes.
    reads_due: f64,
}

/// No request is longer on average.
const LONGEST: f64 = (1 << 30) as f64;

impl Default for MeanRequest {
    fn default() -> MeanRequest {
        MeanRequest { len: 4096.0, read_share: 0.5, reads_due: 0.0 }
    }
}

impl MeanRequest {
    /// A request of a guest; flushes do not count.
    pub fn learn(&mut self, direction: Direction, len: Bytes) {
        const WEIGHT: f64 = 0.01;
        if direction == Direction::Flush {
            return;
        }
        self.len += WEIGHT * (len.0 as f64 - self.len);
        self.read_share += WEIGHT * (f64::from(direction == Direction::Read) - self.read_share);
    }

    /// What is kept when the volume is closed.
    pub fn saved(&self) -> [f64; 2] {
        [self.len, self.read_share]
    }

    /// Takes back what [`MeanRequest::saved`] returned, whatever it is: a number that cannot be is not taken.
    pub fn restore(&mut self, [len, read_share]: [f64; 2]) {
        if (0.0..=LONGEST).contains(&len) {
            self.len = len;
        }
        if (0.0..=1.0).contains(&read_share) {
            self.read_share = read_share;
        }
    }

    /// The next probe: reads are as frequent as with guests.
    pub fn next_probe(&mut self) -> (Direction, Bytes) {
        let len = Bytes(self.len as u64).align_up(Bytes(4096));
        self.reads_due += self.read_share;
        if self.reads_due < 1.0 {
            return (Direction::Write, len);
        }
        self.reads_due -= 1.0;
        (Direction::Read, len)
    }
}
