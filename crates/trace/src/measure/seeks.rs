//! Seek distance: from the end of the last read or write on the same device to the start of a read or write.
//!
//! A request is *sequential* if its seek distance is zero. Several alternating sequential streams hide one
//! another from this measure. A second measure detects such streams: a request *continues a stream* if the
//! request begins at the end of any of the last 32 requests on its device.

use super::distribution::{Bucket, Distribution};
use super::share;

/// Distances between consecutive requests. The first request on each device has no distance.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Seeks {
    /// Requests that begin at the end of the last request on their device, as a share of all reads and
    /// writes.
    pub sequential_share: f64,
    /// Requests that begin at the end of any of the last 32 requests on their device, as a share of all reads
    /// and writes.
    pub stream_share: f64,
    /// Requests that begin before the end of the last request on their device, as a share of all reads and
    /// writes.
    pub backward_share: f64,
    /// Mean distance in either direction, sequential requests included.
    pub seek_bytes_mean: f64,
    /// Median distance.
    pub seek_bytes_p50: u64,
    /// 90th percentile.
    pub seek_bytes_p90: u64,
    /// 99th percentile.
    pub seek_bytes_p99: u64,
    /// The whole distribution, by powers of two.
    pub histogram: Vec<Bucket>,
}

#[derive(Default)]
pub(super) struct Counting {
    devices: Vec<Ends>,
    distances: Distribution,
    sum: u128,
    requests: u64,
    sequential: u64,
    stream: u64,
    backward: u64,
}

const STREAMS: usize = 32;

/// Ends of the last requests on a device.
struct Ends {
    ends: [u64; STREAMS],
    /// Number of requests so far. The last end is at index (`count` - 1) modulo `STREAMS`.
    count: usize,
}

impl Counting {
    pub(super) fn add(&mut self, device: u16, offset: u64, len: u64) {
        let device = usize::from(device);
        while self.devices.len() <= device {
            self.devices.push(Ends { ends: [u64::MAX; STREAMS], count: 0 });
        }
        let Ends { ends, count } = &mut self.devices[device];
        self.requests += 1;
        if *count > 0 {
            let before = ends[(*count - 1) % STREAMS];
            let distance = offset.abs_diff(before);
            self.distances.add(distance, 1);
            self.sum += u128::from(distance);
            self.sequential += u64::from(distance == 0);
            self.stream += u64::from(ends.contains(&offset));
            self.backward += u64::from(offset < before);
        }
        ends[*count % STREAMS] = offset + len;
        *count += 1;
    }

    pub(super) fn finish(self) -> Seeks {
        let Counting { distances, requests, .. } = &self;
        let total = distances.total();
        Seeks {
            sequential_share: share(self.sequential, *requests),
            stream_share: share(self.stream, *requests),
            backward_share: share(self.backward, *requests),
            seek_bytes_mean: if total == 0 { 0.0 } else { self.sum as f64 / total as f64 },
            seek_bytes_p50: distances.percentile(50),
            seek_bytes_p90: distances.percentile(90),
            seek_bytes_p99: distances.percentile(99),
            histogram: distances.buckets(1),
        }
    }
}
