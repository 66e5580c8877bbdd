//! Measurements of guests: response times by kind of request, with the wait for admission apart from the time
//! in the volume; and counts of the guests' programmes.

use crate::Result;
use crate::block_costs::{BlockCosts, CostCurves};
use crate::computing::Ended;
use crate::outcome::BatchSum;
use crate::request_log::RequestLog;
use braid_base::{Bytes, Nanos, Op};
use braid_engine::Latency;
use braid_trace::measure::{Burstiness, BurstinessCounting};

/// Measurements of guests from a moment on.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Completions before this time do not count.
    from: Nanos,
    kinds: [RequestStats; 4],
    programme: OperationStats,
    /// Bytes read and written before `from`: by requests, and by programmes.
    moved_before: [Bytes; 2],
    /// Arrival times of reads and writes, if measured.
    arrivals: Option<BurstinessCounting>,
    /// Cost of each block, if measured.
    costs: Option<BlockCosts>,
    /// Reads and writes by arrival time, if measured.
    batches: Option<Batches>,
    /// Log of every request, if wanted.
    log: Option<RequestLog>,
}

/// Reads and writes by arrival time.
struct Batches {
    /// Start of each batch, in rising order. Requests that arrive before the first start are in no batch.
    from: Vec<Nanos>,
    sums: Vec<BatchSum>,
}

/// Operations of the clients' programmes, including operations without a request.
#[derive(Default)]
pub(crate) struct OperationStats {
    pub bytes: Bytes,
    /// From the end of the preceding operation to the end of the operation.
    pub latency: Latency,
}

/// Requests of one kind.
#[derive(Default)]
pub(crate) struct RequestStats {
    pub requests: u64,
    pub bytes: Bytes,
    /// From arrival to completion, of requests admitted at once.
    direct: Latency,
    /// For delayed requests: the whole time, and its two parts.
    delayed: Latency,
    queued: Latency,
    served: Latency,
}

impl Recorder {
    /// An empty recorder that counts arrivals and costs of blocks, if wanted.
    pub fn new(arrivals: bool, costs: bool) -> Recorder {
        let (arrivals, costs) = (arrivals.then(BurstinessCounting::default), costs.then(BlockCosts::default));
        Recorder { arrivals, costs, ..Recorder::default() }
    }

    /// Adds sums for batches of requests; `from` is the start of each batch, in rising order.
    pub fn with_batches(self, from: Vec<Nanos>) -> Recorder {
        let sums = vec![BatchSum::default(); from.len()];
        Recorder { batches: (!from.is_empty()).then_some(Batches { from, sums }), ..self }
    }

    /// Also writes every measured request to a file.
    pub fn log_to(&mut self, log: RequestLog) {
        self.log = Some(log);
    }

    /// Writes the rest of the log.
    pub fn finish_log(&mut self) -> Result<()> {
        self.log.as_mut().map_or(Ok(()), RequestLog::finish)
    }

    /// Sums of the batches; empty if batches are not measured.
    pub fn batches(&self) -> Vec<BatchSum> {
        self.batches.as_ref().map(|batches| batches.sums.clone()).unwrap_or_default()
    }

    /// Drops everything except batches, the log and the total of bytes moved, and counts from `now` on.
    pub fn restart(&mut self, now: Nanos) {
        let moved_before = self.moved();
        let (batches, mut log) = (self.batches.take(), self.log.take());
        // Requests of the warm-up are not measured.
        log.iter_mut().for_each(RequestLog::begin);
        *self = Recorder {
            from: now,
            moved_before,
            batches,
            log,
            ..Recorder::new(self.arrivals.is_some(), self.costs.is_some())
        };
    }

    /// Bytes read and written since the load began: by requests, and by programmes.
    fn moved(&self) -> [Bytes; 2] {
        let [requests, programmes] = self.moved_before;
        [requests + self.totals().1, programmes + self.programme.bytes]
    }

    /// Bytes read and written since the load began, as counted by the clients' programmes, or by the volume
    /// if there are none.
    pub fn progress(&self) -> Bytes {
        let [requests, programmes] = self.moved();
        if programmes > Bytes::ZERO { programmes } else { requests }
    }

    /// Counts a completed operation of a client's programme.
    pub fn record_operation(&mut self, ended: Ended) {
        if ended.at >= self.from {
            self.programme.bytes += ended.bytes;
            self.programme.latency.record(ended.took);
        }
    }

    /// Operations of the clients' programmes; `None` if no operation was recorded.
    pub fn programme(&self) -> Option<&OperationStats> {
        (!self.programme.latency.is_empty()).then_some(&self.programme)
    }

    /// Counts the arrival of a request. Times do not run backwards.
    #[inline]
    pub fn arrive(&mut self, op: Op, at: Nanos) {
        if let Some(arrivals) = self.arrivals.as_mut().filter(|_| matches!(op, Op::Read | Op::Write)) {
            arrivals.add(at.saturating_sub(self.from));
        }
    }

    /// Counts the latency of a read or write for its blocks.
    #[inline]
    pub fn add_cost(&mut self, op: Op, offset: Bytes, len: Bytes, latency: Nanos) {
        if let Some(costs) = self.costs.as_mut().filter(|_| matches!(op, Op::Read | Op::Write)) {
            costs.add(offset, len, latency);
        }
    }

    /// Cost of blocks, if measured.
    pub fn costs(&self) -> Option<CostCurves> {
        self.costs.as_ref().map(BlockCosts::finish)
    }

    /// Burstiness of arrivals, if measured.
    pub fn burstiness(&self) -> Option<Burstiness> {
        self.arrivals.as_ref().map(BurstinessCounting::finish)
    }

    /// Counts a completed request by its times of arrival, admission and completion.
    #[inline]
    pub fn record(
        &mut self,
        op: Op,
        offset: Bytes,
        len: Bytes,
        arrived: Nanos,
        admitted: Nanos,
        done: Nanos,
    ) {
        if let Some(batches) = self.batches.as_mut().filter(|_| matches!(op, Op::Read | Op::Write)) {
            batches.add(arrived, done - arrived);
        }
        if done < self.from {
            return;
        }
        if let Some(log) = &mut self.log {
            log.add(op, offset, len, arrived, admitted, done);
        }
        let kind = &mut self.kinds[place(op)];
        kind.requests += 1;
        kind.bytes += len;
        if arrived >= admitted {
            kind.direct.record(done - admitted);
        } else {
            kind.delayed.record(done - arrived);
            kind.queued.record(admitted - arrived);
            kind.served.record(done - admitted);
        }
    }

    /// Requests of one kind.
    pub fn kind(&self, op: Op) -> &RequestStats {
        &self.kinds[place(op)]
    }

    /// Requests, bytes and the sum of response times of all reads and writes.
    pub fn totals(&self) -> (u64, Bytes, Nanos) {
        let mut totals = (0, Bytes::ZERO, Nanos::ZERO);
        for kind in [self.kind(Op::Read), self.kind(Op::Write)] {
            totals.0 += kind.requests;
            totals.1 += kind.bytes;
            totals.2 += kind.direct.sum() + kind.delayed.sum();
        }
        totals
    }
}

impl Batches {
    fn add(&mut self, arrived: Nanos, latency: Nanos) {
        let after = self.from.partition_point(|&from| from <= arrived);
        if let Some(batch) = after.checked_sub(1).and_then(|place| self.sums.get_mut(place)) {
            batch.requests += 1;
            batch.latency_ns_sum += latency.0;
        }
    }
}

fn place(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2,
        Op::Discard => 3,
    }
}

impl RequestStats {
    /// From arrival to completion.
    pub fn latency(&self) -> Latency {
        both(&self.direct, &self.delayed)
    }

    /// From arrival until the volume took the request.
    pub fn queue(&self) -> Latency {
        let mut times = self.queued.clone();
        times.record_zeros(self.direct.len());
        times
    }

    /// In the volume.
    pub fn service(&self) -> Latency {
        both(&self.direct, &self.served)
    }
}

fn both(one: &Latency, other: &Latency) -> Latency {
    let mut sum = one.clone();
    sum.add(other);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_and_service_add_up_to_latency() {
        let mut recorder = Recorder::default();
        for (arrived, admitted, done) in [(0, 0, 100), (0, 50, 200), (10, 10, 20)] {
            recorder.record(Op::Read, Bytes::ZERO, Bytes(512), Nanos(arrived), Nanos(admitted), Nanos(done));
        }
        let read = recorder.kind(Op::Read);
        let sums = [read.latency(), read.queue(), read.service()].map(|times| (times.len(), times.sum().0));
        assert_eq!(sums, [(3, 310), (3, 50), (3, 260)]);
        assert_eq!(read.queue().quantile(0.5), Nanos::ZERO);
        recorder.restart(Nanos(500));
        recorder.record(Op::Read, Bytes::ZERO, Bytes(512), Nanos(0), Nanos(0), Nanos(499));
        assert_eq!(recorder.totals().0, 0, "what completed before does not count");
        assert_eq!(recorder.progress(), Bytes(1536), "but for progress");
    }

    #[test]
    fn request_belongs_to_the_batch_at_arrival_time() {
        let mut recorder = Recorder::default().with_batches(vec![Nanos(100), Nanos(200)]);
        for (op, arrived, done) in
            [(Op::Read, 99, 150), (Op::Read, 100, 350), (Op::Write, 199, 200), (Op::Write, 250, 260)]
        {
            recorder.record(op, Bytes::ZERO, Bytes(512), Nanos(arrived), Nanos(arrived), Nanos(done));
        }
        recorder.restart(Nanos(300));
        recorder.record(Op::Flush, Bytes::ZERO, Bytes::ZERO, Nanos(300), Nanos(300), Nanos(400));
        let sums: Vec<(u64, u64)> =
            recorder.batches().iter().map(|batch| (batch.requests, batch.latency_ns_sum)).collect();
        assert_eq!(sums, [(2, 251), (1, 10)]);
    }

    #[test]
    fn operations_count_from_the_restart_on_and_progress_from_the_beginning() {
        let mut recorder = Recorder::default();
        let operation = |took, at| Ended { bytes: Bytes(1000), took: Nanos(took), at: Nanos(at) };
        recorder.record_operation(operation(70, 499));
        recorder.restart(Nanos(500));
        recorder.record_operation(operation(71, 499));
        assert!(recorder.programme().is_none(), "it was complete before");
        recorder.record_operation(operation(72, 501));
        assert_eq!(recorder.programme().map(|of| of.latency.sum()), Some(Nanos(72)));
        assert_eq!(recorder.progress(), Bytes(2000));
    }
}
