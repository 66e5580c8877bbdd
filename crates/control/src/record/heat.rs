//! Heat of the volume's parts: guests' reads and writes in a second, by cell, as a mean that forgets half of
//! the past in five minutes. For every policy alike, in constant memory.

use braid_base::{Bytes, Op, Request};
use std::cell::{Cell, RefCell};

/// Most cells of a volume: 32 KiB of memory.
pub(crate) const MOST_CELLS: u64 = 4096;
/// Time between two calls of [`Heat::cool`], in seconds.
pub(crate) const COOLING_SECONDS: u32 = 2;
/// Part of the mean that outlives one cooling: a half after 150.
const KEPT: f64 = 0.995_389_679;

/// Heat by cell.
pub(crate) struct Heat {
    /// Least size of a cell: an extent.
    least: Bytes,
    /// Bytes of a cell, as a power of two.
    shift: Cell<u32>,
    /// Requests since the last cooling.
    counts: RefCell<Vec<Cell<u32>>>,
    /// Weighted sums of the requests in a second, and the sum of the weights.
    sums: RefCell<Vec<f32>>,
    weight: Cell<f64>,
}

impl Heat {
    /// Makes cells of at least `least` bytes for a volume of this size.
    pub fn new(size: Bytes, least: Bytes) -> Heat {
        let (shift, cells) = shape(size, least);
        Heat {
            least,
            shift: Cell::new(shift),
            counts: RefCell::new(vec![Cell::new(0); cells]),
            sums: RefCell::new(vec![0.0; cells]),
            weight: Cell::new(0.0),
        }
    }

    /// Counts a request in each cell that the request touches.
    #[inline]
    pub fn note(&self, request: Request) {
        if !matches!(request.op, Op::Read | Op::Write) || request.len == Bytes::ZERO {
            return;
        }
        let (shift, counts) = (self.shift.get(), self.counts.borrow());
        let first = request.offset.0 >> shift;
        let last = request.offset.0.saturating_add(request.len.0 - 1) >> shift;
        // A request beyond the end of the volume fails, and counts as far as the volume reaches.
        for cell in first..=last.min(counts.len() as u64) {
            if let Some(count) = counts.get(cell as usize) {
                count.set(count.get().saturating_add(1));
            }
        }
    }

    /// Adds the requests of the last [`COOLING_SECONDS`] to the means. Begins anew after a change of the
    /// volume's size that changes the cells.
    pub fn cool(&self, size: Bytes) {
        let (shift, cells) = shape(size, self.least);
        let (mut counts, mut sums) = (self.counts.borrow_mut(), self.sums.borrow_mut());
        if self.shift.replace(shift) != shift {
            (*counts, *sums) = (Vec::new(), Vec::new());
            self.weight.set(0.0);
        }
        counts.resize(cells, Cell::new(0));
        sums.resize(cells, 0.0);
        for (count, sum) in counts.iter().zip(sums.iter_mut()) {
            let rate = count.replace(0) as f32 / COOLING_SECONDS as f32;
            *sum = *sum * KEPT as f32 + rate;
        }
        self.weight.set(self.weight.get() * KEPT + 1.0);
    }

    /// Returns the requests in a second of each cell. Empty until the first cooling.
    pub fn requests_per_second(&self) -> Vec<f32> {
        let weight = self.weight.get() as f32;
        let mean = |sum: &f32| sum / weight;
        if weight > 0.0 { self.sums.borrow().iter().map(mean).collect() } else { Vec::new() }
    }
}

/// Returns the size of a cell as a power of two, and the number of cells: at most [`MOST_CELLS`].
pub(crate) fn shape(size: Bytes, least: Bytes) -> (u32, usize) {
    let shift = least.0.max(size.0.div_ceil(MOST_CELLS)).next_power_of_two().trailing_zeros();
    (shift, size.0.div_ceil(1 << shift) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB};

    const SIZE: Bytes = Bytes(4096 << 20);

    fn request(op: Op, offset: Bytes, len: Bytes) -> Request {
        Request { op, offset, len }
    }

    #[test]
    fn cells_are_at_most_4096_and_cover_the_volume() {
        for size in [1, 4096, 5000, 1 << 20, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 256 << 40] {
            let (shift, cells) = shape(Bytes(size), KIB * 4);
            assert!(cells as u64 <= MOST_CELLS && (cells as u64) << shift >= size, "{size}: {cells}");
            assert!(shift == 12 || cells as u64 > MOST_CELLS / 2, "{size}: {cells}");
        }
    }

    #[test]
    fn requests_count_in_the_cells_that_they_touch() {
        let heat = Heat::new(SIZE, KIB * 128);
        assert!(heat.requests_per_second().is_empty());
        for _ in 0..2 {
            heat.note(request(Op::Read, MIB * 7 + KIB * 4, KIB * 4));
        }
        heat.note(request(Op::Write, MIB * 8 + KIB * 512, MIB * 2));
        heat.note(request(Op::Flush, Bytes::ZERO, Bytes::ZERO));
        heat.note(request(Op::Discard, Bytes::ZERO, SIZE));
        heat.note(request(Op::Read, Bytes(u64::MAX - 4096), Bytes(8192)));
        heat.note(request(Op::Read, SIZE - MIB, MIB * 5));
        heat.cool(SIZE);
        let rates = heat.requests_per_second();
        let warm: Vec<_> = rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0).collect();
        assert_eq!(warm, [(7, &1.0), (8, &0.5), (9, &0.5), (10, &0.5), (4095, &0.5)]);
    }

    #[test]
    fn steady_load_has_its_rate_at_once_and_half_is_forgotten_in_five_minutes() {
        let heat = Heat::new(SIZE, KIB * 128);
        let rate = || heat.requests_per_second()[0];
        for _ in 0..3000 {
            (0..10).for_each(|_| heat.note(request(Op::Read, Bytes::ZERO, KIB)));
            heat.cool(SIZE);
            assert!((rate() - 5.0).abs() < 0.01, "{}", rate());
        }
        (0..150).for_each(|_| heat.cool(SIZE));
        assert!((rate() - 2.5).abs() < 0.01, "{}", rate());
    }

    #[test]
    fn another_size_begins_anew_if_the_cells_change() {
        let heat = Heat::new(SIZE, KIB * 128);
        heat.note(request(Op::Read, Bytes::ZERO, KIB));
        heat.cool(SIZE);
        heat.cool(SIZE - MIB);
        assert_eq!(heat.requests_per_second().len(), 4095);
        assert!(heat.requests_per_second()[0] > 0.0);
        heat.cool(SIZE * 3);
        assert_eq!((heat.requests_per_second().len(), heat.requests_per_second()[0]), (3072, 0.0));
    }
}
