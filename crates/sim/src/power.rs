//! The power supply of a world: counts what its devices do, and cuts the power at a chosen point.
//!
//! Each start and each completion of a device operation is a *cut point*, numbered from 1. With the cut at point `k`,
//! points 1 to k − 1 happen and point `k` does not: an operation that would have started then never starts, one that
//! would have completed stays in flight for ever. Every state that the devices pass through lies between two points.

use std::cell::Cell;
use std::rc::Rc;

/// The power of all disks of one world. Cheap to clone: a handle.
#[derive(Clone, Default)]
pub struct Power {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    points: Cell<u64>,
    cut_at: Cell<Option<u64>>,
    is_off: Cell<bool>,
}

impl Power {
    /// Cuts the power at `point`, counted from 1 since the world began.
    ///
    /// # Panics
    /// Where that point has passed already.
    pub fn cut_at(&self, point: u64) {
        let passed = self.points();
        assert!(point > passed, "cut point {point} has passed: the world is at {passed}");
        self.inner.cut_at.set(Some(point));
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.inner.is_off.set(true);
    }

    /// How many cut points have passed.
    pub fn points(&self) -> u64 {
        self.inner.points.get()
    }

    /// Whether the power is cut: no operation completes any more.
    pub fn is_off(&self) -> bool {
        self.inner.is_off.get()
    }

    /// Passes one cut point. Does not return to whoever asks after the cut: their operation never starts or never
    /// completes.
    pub(crate) async fn pass_point(&self) {
        let inner = &self.inner;
        let point = inner.points.get() + 1;
        if inner.cut_at.get() == Some(point) {
            inner.is_off.set(true);
        }
        if inner.is_off.get() {
            std::future::pending::<()>().await;
        }
        inner.points.set(point);
    }
}
