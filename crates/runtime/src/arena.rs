//! Memory for I/O: one arena, allocated once, so that the kernel can register the arena and its size is the
//! bound.
//!
//! A buddy allocator hands out [`Buf`]s of 4 KiB to 1 MiB, aligned to 4 KiB. A `Buf` is a counted view:
//! clones and slices share the bytes. A task that does I/O keeps a clone until the kernel is done, so memory
//! that the kernel still writes to is never handed out again. If the arena is exhausted, [`Arena::alloc`]
//! waits its turn: a task that holds a buffer must not wait for a second buffer of the same arena, or all may
//! wait for each other.
#![allow(unsafe_code)]

use crate::Semaphore;
use braid_base::Bytes;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

/// Smallest buffer, and the alignment of all buffers: the largest alignment that direct I/O needs.
const PAGE: usize = 4096;
/// Orders of the buddy allocator: 4 KiB << 0 … 4 KiB << 8 = 1 MiB.
const ORDERS: usize = 9;
const LARGEST: usize = PAGE << (ORDERS - 1);

/// A fixed amount of memory for I/O. Cheap to clone: a handle.
#[derive(Clone)]
pub struct Arena {
    inner: Rc<Inner>,
}

struct Inner {
    start: NonNull<u8>,
    layout: Layout,
    /// Free runs by order, as page numbers.
    free: RefCell<[Vec<u32>; ORDERS]>,
    /// For each page: the order of the free run that starts at the page, or `NOT_FREE`.
    free_order: RefCell<Vec<u8>>,
    /// For each first page of an allocated run: the number of `Buf`s of the run.
    views: Vec<Cell<u32>>,
    /// For each first page of an allocated run: the order of the run.
    order: Vec<Cell<u8>>,
    /// Free bytes, in pages: an allocation waits here first.
    pages: Semaphore,
    /// For each page: true if ever handed out, and so with defined bytes.
    is_defined: Vec<Cell<bool>>,
    /// Number of pages never handed out.
    undefined: Cell<usize>,
    /// Closures with access to the bytes right now: the number of readers, or -1 for a writer.
    borrowed: Cell<i32>,
}

const NOT_FREE: u8 = u8::MAX;

impl Arena {
    /// Largest buffer of an arena.
    pub const LARGEST: Bytes = Bytes(LARGEST as u64);

    /// Makes an arena of at least `size` bytes, rounded up to whole MiB. The process ends if the machine
    /// lacks the memory. Pages are zeroed when handed out for the first time: a large arena with little use
    /// costs little.
    pub fn new(size: Bytes) -> Arena {
        Arena::try_new(size).unwrap_or_else(|| handle_alloc_error(layout(size)))
    }

    /// As [`Arena::new`]; none if the machine lacks the memory.
    pub fn try_new(size: Bytes) -> Option<Arena> {
        let layout = layout(size);
        let bytes = layout.size();
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        let pages = bytes / PAGE;
        let mut free: [Vec<u32>; ORDERS] = std::array::from_fn(|order| Vec::with_capacity(pages >> order));
        let mut free_order = vec![NOT_FREE; pages];
        for page in (0..pages).step_by(LARGEST / PAGE).rev() {
            free[ORDERS - 1].push(page as u32);
            free_order[page] = (ORDERS - 1) as u8;
        }
        let inner = Inner {
            start,
            layout,
            free: RefCell::new(free),
            free_order: RefCell::new(free_order),
            views: vec![Cell::new(0); pages],
            order: vec![Cell::new(0); pages],
            pages: Semaphore::new(pages),
            is_defined: vec![Cell::new(false); pages],
            undefined: Cell::new(pages),
            borrowed: Cell::new(0),
        };
        Some(Arena { inner: Rc::new(inner) })
    }

    /// Waits for a buffer of `len` bytes with undefined content; first come, first served.
    ///
    /// # Panics
    /// If `len` is zero or greater than [`Arena::LARGEST`].
    pub async fn alloc(&self, len: Bytes) -> Buf {
        let order = order_of(len.as_usize());
        let permit = self.inner.pages.acquire(1 << order).await;
        loop {
            if let Some(page) = self.inner.take(order) {
                permit.forget();
                return self.view(page, order, len);
            }
            // Enough pages are free, but not side by side: a later release will join them.
            self.inner.pages.released().await;
        }
    }

    /// Returns a buffer of `len` bytes with undefined content, or `None` if there is no room now.
    pub fn try_alloc(&self, len: Bytes) -> Option<Buf> {
        let order = order_of(len.as_usize());
        let permit = self.inner.pages.try_acquire(1 << order)?;
        let page = self.inner.take(order)?;
        permit.forget();
        Some(self.view(page, order, len))
    }

    /// Address and length of the arena's bytes, for registration with the kernel. The bytes stay in place
    /// until the last handle and buffer are gone.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.inner.start.as_ptr(), self.inner.layout.size())
    }

    /// Free bytes at this moment.
    pub fn available(&self) -> Bytes {
        Bytes((self.inner.pages.available() * PAGE) as u64)
    }

    fn view(&self, page: u32, order: usize, len: Bytes) -> Buf {
        if self.inner.undefined.get() > 0 {
            self.inner.define(page as usize..(page as usize + (1 << order)));
        }
        self.inner.views[page as usize].set(1);
        self.inner.order[page as usize].set(order as u8);
        Buf { arena: self.inner.clone(), page, start: page as usize * PAGE, len: len.as_usize() }
    }
}

/// Layout of an arena of `size` bytes.
fn layout(size: Bytes) -> Layout {
    let bytes = size.as_usize().max(1).next_multiple_of(LARGEST);
    Layout::from_size_align(bytes, LARGEST).expect("an arena's size fits the address space")
}

fn order_of(len: usize) -> usize {
    assert!((1..=LARGEST).contains(&len), "a buffer holds 1 B to {LARGEST} B, not {len}");
    len.div_ceil(PAGE).next_power_of_two().trailing_zeros() as usize
}

impl Inner {
    /// Takes a run of `order` from the free lists, splitting a larger run if needed.
    fn take(&self, order: usize) -> Option<u32> {
        let (mut free, mut free_order) = (self.free.borrow_mut(), self.free_order.borrow_mut());
        let mut found = (order..ORDERS).find(|&o| !free[o].is_empty())?;
        let page = free[found].pop()?;
        free_order[page as usize] = NOT_FREE;
        while found > order {
            found -= 1;
            let buddy = page + (1 << found);
            free[found].push(buddy);
            free_order[buddy as usize] = found as u8;
        }
        Some(page)
    }

    /// Zeroes pages that were never handed out: a buffer's bytes may be read before any write.
    #[cold]
    fn define(&self, pages: Range<usize>) {
        for page in pages.filter(|&page| !self.is_defined[page].replace(true)) {
            self.undefined.set(self.undefined.get() - 1);
            // SAFETY: the page lies in the arena, and no `Buf` shows it: it has just been taken out of the
            // free lists.
            unsafe { self.start.as_ptr().add(page * PAGE).write_bytes(0, PAGE) };
        }
    }

    /// Gives a run back, joining the run with its buddy as long as the buddy is free too.
    fn give_back(&self, mut page: u32, mut order: usize) {
        let (mut free, mut free_order) = (self.free.borrow_mut(), self.free_order.borrow_mut());
        while order < ORDERS - 1 {
            let buddy = page ^ (1 << order);
            if free_order[buddy as usize] != order as u8 {
                break;
            }
            let at = free[order].iter().rposition(|&p| p == buddy).expect("a free run is in its list");
            free[order].swap_remove(at);
            free_order[buddy as usize] = NOT_FREE;
            page = page.min(buddy);
            order += 1;
        }
        free[order].push(page);
        free_order[page as usize] = order as u8;
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: allocated in `Arena::new` with this layout; no `Buf` is left, for each holds this `Inner`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A counted view of bytes in an [`Arena`]. Clones and slices share the bytes, which become free when the
/// last view is dropped.
pub struct Buf {
    arena: Rc<Inner>,
    /// First page of the allocation under this view.
    page: u32,
    /// Offset of the first byte in the arena.
    start: usize,
    len: usize,
}

impl Buf {
    /// Alignment of the address of an arena's buffer. A slice may begin at any address.
    pub const ALIGNMENT: Bytes = Bytes(PAGE as u64);

    /// True if the first byte's address is a multiple of `alignment`, a power of two of at most
    /// [`Buf::ALIGNMENT`].
    #[inline]
    pub fn is_aligned(&self, alignment: Bytes) -> bool {
        // An arena begins at a multiple of its largest buffer.
        Bytes(self.start as u64).is_aligned(alignment)
    }

    /// Number of bytes in view.
    pub fn len(&self) -> Bytes {
        Bytes::of_len(self.len)
    }

    /// True if the allocation of these bytes has other views.
    pub fn is_shared(&self) -> bool {
        self.arena.views[self.page as usize].get() > 1
    }

    /// True if no byte is in view.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// View of a part: `range` counts from the start of this view.
    ///
    /// # Panics
    /// If the range exceeds this view.
    pub fn slice(&self, range: Range<Bytes>) -> Buf {
        let (start, end) = (range.start.as_usize(), range.end.as_usize());
        assert!(start <= end && end <= self.len, "{start}..{end} of a buffer of {} bytes", self.len);
        let views = &self.arena.views[self.page as usize];
        views.set(views.get() + 1);
        Buf { arena: self.arena.clone(), page: self.page, start: self.start + start, len: end - start }
    }

    /// Calls `look` with the bytes.
    ///
    /// # Panics
    /// If called inside [`Buf::with_bytes_mut`].
    pub fn with_bytes<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        let _borrow = Borrow::shared(&self.arena.borrowed);
        // SAFETY: the range lies in the arena, which lives as long as `self`; no `&mut` to any of it exists,
        // for `borrowed` says so. The kernel may write to it while a read is in flight; a reader then sees
        // old or new bytes, as with any shared mapping.
        look(unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) })
    }

    /// Calls `change` with the bytes, for changes.
    ///
    /// # Panics
    /// If called inside [`Buf::with_bytes`] or inside itself, of any buffer of the same arena.
    pub fn with_bytes_mut<T>(&self, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let _borrow = Borrow::exclusive(&self.arena.borrowed);
        // SAFETY: as above, and `borrowed` says that no other reference into the arena exists.
        change(unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) })
    }

    /// Copies all bytes of `source` to `at` within this view. The two may overlap.
    ///
    /// # Panics
    /// If the bytes do not fit.
    pub fn copy_from(&self, at: Bytes, source: &Buf) {
        assert!(at.as_usize() + source.len <= self.len, "{} bytes at {at} of {}", source.len, self.len);
        assert_eq!(self.arena.borrowed.get(), 0, "the bytes are being looked at");
        // SAFETY: both ranges were checked; `copy` allows overlap.
        unsafe { std::ptr::copy(source.as_ptr(), self.as_ptr().add(at.as_usize()), source.len) }
    }

    /// Copies a slice to `at` within this view.
    ///
    /// # Panics
    /// If the slice does not fit.
    pub fn copy_from_slice(&self, at: Bytes, source: &[u8]) {
        self.with_bytes_mut(|bytes| bytes[at.as_usize()..][..source.len()].copy_from_slice(source));
    }

    /// Copies bytes from `at` within this view until `target` is full.
    ///
    /// # Panics
    /// If the view ends first.
    pub fn copy_to_slice(&self, at: Bytes, target: &mut [u8]) {
        self.with_bytes(|bytes| target.copy_from_slice(&bytes[at.as_usize()..][..target.len()]));
    }

    /// Makes every byte zero.
    pub fn fill_zero(&self) {
        self.with_bytes_mut(|bytes| bytes.fill(0));
    }

    /// A copy of the bytes, on the heap: for tests and rare paths.
    pub fn to_vec(&self) -> Vec<u8> {
        self.with_bytes(<[u8]>::to_vec)
    }

    /// Address of the bytes, for the kernel. Valid while a clone of this buffer lives.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `start` lies in the arena.
        unsafe { self.arena.start.as_ptr().add(self.start) }
    }
}

impl Buf {
    /// Gives the memory back after the last view.
    #[inline(never)]
    fn give_back(&self) {
        let order = self.arena.order[self.page as usize].get() as usize;
        self.arena.give_back(self.page, order);
        self.arena.pages.release(1 << order);
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Buf {
        let views = &self.arena.views[self.page as usize];
        views.set(views.get() + 1);
        Buf { arena: self.arena.clone(), page: self.page, start: self.start, len: self.len }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        let views = &self.arena.views[self.page as usize];
        views.set(views.get() - 1);
        if views.get() == 0 {
            self.give_back();
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} B)", self.len)
    }
}

/// Marks the arena as in access, until dropped.
struct Borrow<'a> {
    borrowed: &'a Cell<i32>,
    before: i32,
}

impl<'a> Borrow<'a> {
    fn shared(borrowed: &'a Cell<i32>) -> Borrow<'a> {
        let before = borrowed.get();
        assert!(before >= 0, "the bytes are being changed");
        borrowed.set(before + 1);
        Borrow { borrowed, before }
    }

    fn exclusive(borrowed: &'a Cell<i32>) -> Borrow<'a> {
        assert_eq!(borrowed.replace(-1), 0, "the bytes are being looked at");
        Borrow { borrowed, before: 0 }
    }
}

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        self.borrowed.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::{KIB, MIB, Rng};

    #[test]
    fn views_share_bytes_and_last_drop_frees_memory() {
        let arena = Arena::new(MIB);
        let whole = arena.try_alloc(KIB * 8).unwrap();
        let tail = whole.slice(KIB * 4..KIB * 8);
        tail.copy_from_slice(Bytes(1), b"braid");
        drop(tail);
        let mut seen = [0; 5];
        whole.copy_to_slice(Bytes(4097), &mut seen);
        assert_eq!(&seen, b"braid");
        assert_eq!(arena.available(), MIB - KIB * 8);
        drop(whole);
        assert_eq!(arena.available(), MIB);
    }

    #[test]
    fn view_has_alignment_of_own_address() {
        let arena = Arena::new(MIB);
        let whole = arena.try_alloc(KIB * 8).unwrap();
        for start in [0, 1, 4, 511, 512, 1536, 4096, 4608] {
            let view = whole.slice(Bytes(start)..KIB * 8);
            for alignment in [1, 4, 512, 4096].map(Bytes) {
                assert_eq!(
                    view.is_aligned(alignment),
                    Bytes(view.as_ptr().addr() as u64).is_aligned(alignment)
                );
            }
        }
    }

    #[test]
    fn runs_join_again_whatever_the_order_of_release() {
        let mut rng = Rng::new(7);
        let arena = Arena::new(MIB * 2);
        for _ in 0..50 {
            let mut held = Vec::new();
            while let Some(buf) = arena.try_alloc(Bytes(rng.between(1, 70_000))) {
                held.push(buf);
            }
            rng.shuffle(&mut held);
            drop(held);
            assert_eq!(arena.available(), MIB * 2);
            assert!(arena.try_alloc(Arena::LARGEST).is_some());
        }
    }

    #[test]
    fn allocations_never_overlap() {
        let mut rng = Rng::new(8);
        let arena = Arena::new(MIB);
        let mut held: Vec<(Buf, u8)> = Vec::new();
        for round in 0..2_000u32 {
            if held.len() > 20 || rng.chance(0.4) {
                if held.is_empty() {
                    continue;
                }
                let (buf, mark) = held.swap_remove(rng.below(held.len() as u64) as usize);
                assert!(buf.with_bytes(|b| b.iter().all(|&x| x == mark)), "round {round}");
            } else if let Some(buf) = arena.try_alloc(Bytes(rng.between(1, 60_000))) {
                buf.with_bytes_mut(|b| b.fill(round as u8));
                held.push((buf, round as u8));
            }
        }
    }

    #[test]
    fn never_used_memory_is_zero() {
        let arena = Arena::new(MIB);
        let first = arena.try_alloc(KIB * 4).unwrap();
        first.with_bytes_mut(|bytes| bytes.fill(7));
        drop(first);
        let all = arena.try_alloc(MIB).unwrap();
        all.with_bytes(|bytes| assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 4096));
    }

    #[test]
    #[should_panic(expected = "being looked at")]
    fn writing_bytes_while_borrowed_panics() {
        let arena = Arena::new(MIB);
        let buf = arena.try_alloc(KIB).unwrap();
        buf.with_bytes(|_| buf.fill_zero());
    }
}
