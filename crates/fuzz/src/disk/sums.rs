//! Table of the fingerprint of an adopted disk: sums and marks.

use super::{VOLUME, padded, seal};
use braid_base::Bytes;
use braid_format::fingerprint::Mark;
use braid_format::sums::{self, HALF, MOST_MARKS, MOST_SAMPLES, Noted, SAMPLE, Sample, Sums};

/// An accepted table is bounded and in order, and equals itself after encoding.
pub fn table(bytes: &[u8]) {
    let mut half = padded(bytes, HALF);
    let _ = sums::decode(&half, VOLUME);
    seal::sums(&mut half);
    let Ok(found) = sums::decode(&half, VOLUME) else { return };
    assert!(found.samples.len() <= MOST_SAMPLES && found.marks.len() <= MOST_MARKS);
    assert!(found.samples.is_sorted_by(|a, b| a.at < b.at) && found.marks.is_sorted_by(|a, b| a.at < b.at));
    assert_eq!(sums::decode(&sums::encode(VOLUME, &found), VOLUME), Ok(found));
}

pub fn tables() -> Vec<Vec<u8>> {
    let table = |samples: u64, marks: u64| Sums {
        sequence: 7,
        samples: (0..samples)
            .map(|i| Sample { at: SAMPLE * i, sum: i as u32, is_written: i.is_multiple_of(3) })
            .collect(),
        marks: (0..marks)
            .map(|i| {
                let mark = Mark { identity: 5, change: i as u32 };
                Noted { at: Bytes(512 * i), mark, next: 9, is_unknown: i.is_multiple_of(2) }
            })
            .collect(),
    };
    [(0, 0), (3, 2), (256, 100)].map(|(samples, marks)| sums::encode(VOLUME, &table(samples, marks))).to_vec()
}
