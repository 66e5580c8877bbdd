//! The power supply of a world: counts what its devices do, and cuts the power at a chosen point.
//!
//! Each start and each completion of a device operation is a *cut point*, numbered from 1. With the cut at
//! point `k`, points 1 to k − 1 happen and point `k` does not: an operation that would have started then
//! never starts, one that would have completed stays in flight for ever. Every state that the devices pass
//! through lies between two points.
//!
//! A store in memory that outlives the software ([`crate::LastingBytes`]) is a cut point, too, of a world
//! that has such memory.
//!
//! A watcher sees the same states without ending the run: it is called at a point just before that happens.

use std::cell::{Cell, RefCell};
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
    /// Whether stores pass unseen.
    is_held: Cell<bool>,
    /// The next point at which the watcher is called; 0 for none.
    watched: Cell<u64>,
    watcher: RefCell<Option<Watcher>>,
}

/// Called with a point; gives the next point at which it is called.
type Watcher = Box<dyn FnMut(u64) -> Option<u64>>;

impl Power {
    /// Cuts the power at `point`, counted from 1 since the world began.
    ///
    /// # Panics
    /// If that point has passed already.
    pub fn cut_at(&self, point: u64) {
        let passed = self.points();
        assert!(point > passed, "cut point {point} has passed: the world is at {passed}");
        self.inner.cut_at.set(Some(point));
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.inner.is_off.set(true);
    }

    /// Calls `watcher` when `point` is next, before it happens, and again at the later points that it asks
    /// for. It must not wait, nor use this world's devices.
    pub(crate) fn watch(&self, point: u64, watcher: impl FnMut(u64) -> Option<u64> + 'static) {
        self.inner.watched.set(point);
        *self.inner.watcher.borrow_mut() = Some(Box::new(watcher));
    }

    /// Forgets the watcher, and whatever it holds.
    pub(crate) fn unwatch(&self) {
        self.inner.watched.set(0);
        self.inner.watcher.take();
    }

    /// How many cut points have passed.
    pub fn points(&self) -> u64 {
        self.inner.points.get()
    }

    /// Whether the power is cut: no operation completes any more.
    pub fn is_off(&self) -> bool {
        self.inner.is_off.get()
    }

    /// Passes one cut point. Never returns after the cut: the operation never starts or never completes.
    pub(crate) async fn pass_point(&self) {
        let inner = &self.inner;
        inner.is_held.set(false);
        let point = inner.points.get() + 1;
        if inner.watched.get() == point && !inner.is_off.get() {
            self.call_watcher(point);
        }
        if inner.cut_at.get() == Some(point) {
            inner.is_off.set(true);
        }
        if inner.is_off.get() {
            std::future::pending::<()>().await;
        }
        inner.points.set(point);
    }

    /// Passes one cut point at which something is stored in memory that outlives the software. Whether it is
    /// stored: not after the cut. A cut waits for the next operation of a device, for the task that stores
    /// goes on until it waits.
    pub(crate) fn pass_store(&self) -> bool {
        let inner = &self.inner;
        if inner.is_off.get() {
            return false;
        }
        let point = inner.points.get() + 1;
        if inner.watched.get() == point {
            match inner.is_held.get() {
                true => inner.watched.set(point + 1),
                false => self.call_watcher(point),
            }
        }
        if inner.cut_at.get() == Some(point) {
            inner.cut_at.set(Some(point + 1));
        }
        inner.points.set(point);
        true
    }

    /// No watcher is called before the next operation of a device: until then stores pass unseen.
    pub(crate) fn hold_watch(&self) {
        self.inner.is_held.set(true);
    }

    #[cold]
    fn call_watcher(&self, point: u64) {
        let next = self.inner.watcher.borrow_mut().as_mut().and_then(|watcher| watcher(point));
        self.inner.watched.set(next.unwrap_or(0));
    }
}
