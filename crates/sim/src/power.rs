//! The power supply of a world: counts device operations, and cuts the power at a chosen point.
//!
//! Each start and each completion of a device operation is a *cut point*, numbered from 1. With the cut at
//! point `k`, points 1 to k − 1 happen and point `k` does not. An operation that would have started then
//! never starts; an operation that would have completed stays in flight for ever. Every state of the devices
//! lies between two points.
//!
//! In a world with memory that outlives the software ([`crate::LastingBytes`]), each store to the memory is
//! a cut point, too.
//!
//! A watcher sees the same states without ending the run: the world calls the watcher just before a point
//! happens.

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
    /// True if stores do not call the watcher.
    is_held: Cell<bool>,
    /// The next point at which the watcher is called; 0 for none.
    watched: Cell<u64>,
    watcher: RefCell<Option<Watcher>>,
}

/// Called with a point; returns the next point at which to be called.
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

    /// Calls `watcher` just before `point` happens, and again before each later point that the watcher
    /// returns. The watcher must not wait, nor use devices of this world.
    pub(crate) fn watch(&self, point: u64, watcher: impl FnMut(u64) -> Option<u64> + 'static) {
        self.inner.watched.set(point);
        *self.inner.watcher.borrow_mut() = Some(Box::new(watcher));
    }

    /// Drops the watcher and its captures.
    pub(crate) fn unwatch(&self) {
        self.inner.watched.set(0);
        self.inner.watcher.take();
    }

    /// How many cut points have passed.
    pub fn points(&self) -> u64 {
        self.inner.points.get()
    }

    /// True if the power is cut: no operation completes any more.
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

    /// Passes one cut point: a store to memory that outlives the software. True if the store happens; after
    /// the cut none does. A cut at a store is put off to the next operation of a device, because the storing
    /// task runs on until it waits.
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

    /// Suppresses the watcher until the next operation of a device; stores until then do not call the
    /// watcher.
    pub(crate) fn hold_watch(&self) {
        self.inner.is_held.set(true);
    }

    #[cold]
    fn call_watcher(&self, point: u64) {
        let next = self.inner.watcher.borrow_mut().as_mut().and_then(|watcher| watcher(point));
        self.inner.watched.set(next.unwrap_or(0));
    }
}
