//! The reactor: the ring's two queues, and the operations in flight.
//!
//! Operations are queued when started and submitted together: one system call for each turn of the loop
//! submits and waits. An operation is an entry of a slab. The entry owns the memory that the kernel works on
//! until the completion is reaped; its key is the `user_data` of the submission.
#![allow(unsafe_code)]

use crate::setup::{self, FILES, REGION};
use braid_base::Nanos;
use braid_runtime::{Arena, Buf};
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use slab::Slab;
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The queues, and the operations in flight.
pub(crate) struct Reactor {
    uring: IoUring,
    operations: Slab<Place>,
    /// Operations in flight on a device. They end by themselves.
    device_operations: usize,
    /// Free places in the table of registered files.
    free_files: Vec<u32>,
    /// Workers that the kernel may use for operations that block, beyond the kernel's own number.
    workers: u32,
    /// The kernel's own number of workers; none before the first call of [`Reactor::add_workers`].
    own_workers: Option<u32>,
    /// The reason if the arena is not registered.
    registered: Result<(), String>,
    fallbacks: Vec<String>,
    /// Keeps the registered memory. The last field, so that the ring is closed first.
    arena: Arena,
}

struct Place {
    progress: Progress,
    keep: Keep,
}

enum Progress {
    Waiting(Option<Waker>),
    Done(i32),
    /// The future was dropped: the result is discarded.
    Abandoned,
}

/// Memory that the kernel works on, kept until the operation is done.
pub(crate) enum Keep {
    /// Nothing: the operation waits for an event outside.
    Nothing,
    /// No memory of this process, but a device is at work.
    Device,
    /// Buffer of a read or write.
    Buf(#[expect(dead_code, reason = "held, not looked at")] Buf),
    /// Memory of a command to a driver, which only the driver can end.
    Command(#[expect(dead_code, reason = "held, not looked at")] Option<Buf>),
    /// Counter for the read of an eventfd.
    Word(#[expect(dead_code, reason = "held, not looked at")] Rc<Cell<u64>>),
    /// Target for the attributes of a file.
    Status(#[expect(dead_code, reason = "held, not looked at")] Rc<Cell<libc::statx>>),
}

/// How long to wait for a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Submit only.
    None,
    /// Until a completion arrives, or until the time has passed.
    For(Nanos),
    /// Until a completion arrives.
    Endless,
}

/// `user_data` of cancellations: their results are discarded.
const CANCELLATION: u64 = u64::MAX;

impl Reactor {
    pub(crate) fn open(entries: u32, arena: &Arena) -> io::Result<Reactor> {
        let mut fallbacks = Vec::new();
        let uring = setup::open(entries, &mut fallbacks)?;
        let (start, len) = arena.region();
        let registered = setup::register_arena(&uring, start, len);
        let files = setup::register_files(&uring);
        let free_files = if files.is_ok() { (0..FILES).rev().collect() } else { Vec::new() };
        fallbacks.extend(registered.clone().err());
        fallbacks.extend(files.err());
        let operations = Slab::with_capacity(entries as usize);
        let arena = arena.clone();
        Ok(Reactor {
            uring,
            operations,
            device_operations: 0,
            free_files,
            workers: 0,
            own_workers: None,
            registered,
            fallbacks,
            arena,
        })
    }

    pub(crate) fn registered(&self) -> Result<(), String> {
        self.registered.clone()
    }

    pub(crate) fn fallbacks(&self) -> &[String] {
        &self.fallbacks
    }

    /// Queues an operation. Submitted at the end of this turn of the loop, or now if the queue is full.
    ///
    /// Every pointer in `entry` must lead into the memory that `keep` holds.
    pub(crate) fn start(&mut self, entry: squeue::Entry, keep: Keep) -> usize {
        self.device_operations += usize::from(keep.is_device());
        let key = self.operations.insert(Place { progress: Progress::Waiting(None), keep });
        self.push(entry.user_data(key as u64));
        key
    }

    /// Result of an operation, once available; else remembers the waker.
    pub(crate) fn poll(&mut self, key: usize, waker: &Waker) -> Poll<i32> {
        match &mut self.operations[key].progress {
            Progress::Done(result) => {
                let result = *result;
                self.operations.remove(key);
                Poll::Ready(result)
            }
            Progress::Waiting(Some(known)) => {
                known.clone_from(waker);
                Poll::Pending
            }
            Progress::Waiting(none) => {
                *none = Some(waker.clone());
                Poll::Pending
            }
            Progress::Abandoned => panic!("an operation was polled after it was dropped"),
        }
    }

    /// Abandons the result of an operation. The memory of the operation is kept until the kernel is done. A
    /// wait that may never end otherwise is cancelled.
    pub(crate) fn abandon(&mut self, key: usize, cancel: bool) {
        let place = &mut self.operations[key];
        if matches!(place.progress, Progress::Done(_)) {
            self.operations.remove(key);
            return;
        }
        place.progress = Progress::Abandoned;
        if cancel {
            self.push(opcode::AsyncCancel::new(key as u64).build().user_data(CANCELLATION));
        }
    }

    /// Number of the registered buffer that contains `buf`, if any.
    pub(crate) fn buffer_of(&self, buf: &Buf) -> Option<u16> {
        let (start, len) = self.arena.region();
        let at = buf.as_ptr().addr().wrapping_sub(start.addr());
        (self.registered.is_ok() && at < len).then_some((at / REGION) as u16)
    }

    /// Puts a file into the table of registered files. `None` if the table is full or missing.
    pub(crate) fn register_file(&mut self, fd: RawFd) -> Option<u32> {
        let place = self.free_files.pop()?;
        match self.uring.submitter().register_files_update(place, &[fd]) {
            Ok(_) => Some(place),
            Err(_) => {
                self.free_files.push(place);
                None
            }
        }
    }

    /// Takes a file out of the table. Operations in flight keep the file open until done.
    pub(crate) fn unregister_file(&mut self, place: u32) {
        // Queued operations name the file by its place, and must still find the file there.
        self.submit_queued();
        // If this fails, the place is lost, and the file stays open as long as the ring: no further harm.
        if self.uring.submitter().register_files_update(place, &[-1]).is_ok() {
            self.free_files.push(place);
        }
    }

    /// Adds workers of the kernel for a file: `count` operations at the same time.
    pub(crate) fn add_workers(&mut self, count: u32) {
        let mut limits = [0; 2];
        let known = self.uring.submitter().register_iowq_max_workers(&mut limits);
        self.own_workers = self.own_workers.or(known.ok().map(|()| limits[0]));
        self.workers += count;
        if self.set_workers().is_none() {
            // Before Linux 5.15. All works, but a file with a hanging server may hold up other files.
            self.fallbacks.push(
                "no additional io_uring workers for files that may hang: Linux 5.15 or newer is needed"
                    .to_owned(),
            );
        }
    }

    /// Removes the workers that [`Reactor::add_workers`] added for a file.
    pub(crate) fn remove_workers(&mut self, count: u32) {
        self.workers -= count;
        // If this fails, surplus workers remain idle.
        let _ = self.set_workers();
    }

    fn set_workers(&self) -> Option<()> {
        let mut limits = [self.own_workers? + self.workers, 0];
        self.uring.submitter().register_iowq_max_workers(&mut limits).ok()
    }

    /// Submits queued operations, waits as told, and reaps. Returns the number of completed operations.
    pub(crate) fn turn(&mut self, patience: Patience) -> usize {
        let reaped = self.reap();
        if reaped > 0 || patience == Patience::None {
            if self.has_kernel_work() {
                self.enter(Patience::None);
            }
        } else {
            self.enter(patience);
        }
        reaped + self.reap()
    }

    /// Submits all queued operations, without waiting.
    pub(crate) fn submit_queued(&mut self) {
        while !self.uring.submission().is_empty() {
            self.enter(Patience::None);
            self.reap();
        }
    }

    /// True if there is work for the kernel: queued operations, or completions to work off.
    fn has_kernel_work(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: what the entry points to is kept in its place until its completion is reaped; `open` and
        // `start` say so. A cancellation points to nothing.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.enter(Patience::None);
            self.reap();
        }
    }

    /// One io_uring_enter.
    ///
    /// # Panics
    /// If the kernel refuses for a reason that no retry mends: without its ring a shard can do nothing.
    fn enter(&mut self, patience: Patience) {
        let queued = self.uring.submission().len() as u32;
        let (want, flags) = match patience {
            Patience::None => (0, EnterFlags::GETEVENTS),
            // A thread that only waits for guests is idle, and must not look busy with I/O in the system's
            // statistics.
            _ if self.device_operations == 0 && self.uring.params().is_feature_no_iowait() => {
                (1, EnterFlags::GETEVENTS | EnterFlags::EXT_ARG | EnterFlags::NO_IOWAIT)
            }
            _ => (1, EnterFlags::GETEVENTS | EnterFlags::EXT_ARG),
        };
        let timeout = match patience {
            Patience::For(time) => {
                types::Timespec::new().sec(time.0 / 1_000_000_000).nsec((time.0 % 1_000_000_000) as u32)
            }
            _ => types::Timespec::new(),
        };
        let args = match patience {
            Patience::For(_) => types::SubmitArgs::new().timespec(&timeout),
            _ => types::SubmitArgs::new(),
        };
        let args = (want > 0).then_some(&args);
        // SAFETY: the argument is the structure that EXT_ARG announces, and lives until the call returns;
        // without EXT_ARG there is none.
        let entered = unsafe { self.uring.submitter().enter(queued, want, flags.bits(), args) };
        match entered.map_err(|error| error.raw_os_error()) {
            // Interrupted, timed out, or too many completions unreaped: the caller reaps and comes back.
            Ok(_) | Err(Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)) => {}
            Err(code) => panic!("io_uring_enter failed ({:?})", code.map(io::Error::from_raw_os_error)),
        }
    }

    /// Takes the available completions, and wakes the tasks that wait for them. Returns the number of
    /// completed operations.
    pub(crate) fn reap(&mut self) -> usize {
        let Reactor { uring, operations, device_operations, .. } = self;
        let mut reaped = 0;
        for completion in uring.completion() {
            if completion.user_data() == CANCELLATION {
                continue;
            }
            reaped += 1;
            let key = completion.user_data() as usize;
            let place = &mut operations[key];
            *device_operations -= usize::from(place.keep.is_device());
            match std::mem::replace(&mut place.progress, Progress::Done(completion.result())) {
                Progress::Waiting(waker) => {
                    place.keep = Keep::Nothing;
                    waker.into_iter().for_each(Waker::wake);
                }
                Progress::Abandoned => drop(operations.remove(key)),
                Progress::Done(_) => panic!("an operation completed twice"),
            }
        }
        reaped
    }

    /// Waits until the kernel works on no memory of this process, cancelling operations that would wait for
    /// ever. Returns false if commands of drivers are still in flight, which nothing here can end.
    fn drain(&mut self) -> bool {
        let is_waiting = |(key, place): (usize, &Place)| {
            (place.is_in_flight() && !place.keep.is_device() && !place.keep.is_command()).then_some(key)
        };
        let waiting: Vec<usize> = self.operations.iter().filter_map(is_waiting).collect();
        for key in waiting {
            self.push(opcode::AsyncCancel::new(key as u64).build().user_data(CANCELLATION));
        }
        let ends = |(_, place): (usize, &Place)| place.is_in_flight() && !place.keep.is_command();
        while self.operations.iter().any(ends) {
            self.turn(Patience::Endless);
        }
        !self.operations.iter().any(|(_, place)| place.is_in_flight())
    }
}

impl Drop for Reactor {
    /// Waits for the kernel, which may be writing to buffers that are about to be freed.
    fn drop(&mut self) {
        if !std::thread::panicking() && self.drain() {
            return;
        }
        // After a panic the ring may be unusable, and commands of drivers end after the ring: rather lose the
        // memory than let the kernel write to freed memory.
        std::mem::forget(std::mem::take(&mut self.operations));
        std::mem::forget(self.arena.clone());
    }
}

impl Place {
    fn is_in_flight(&self) -> bool {
        !matches!(self.progress, Progress::Done(_))
    }
}

impl Keep {
    fn is_command(&self) -> bool {
        matches!(self, Keep::Command(_))
    }

    fn is_device(&self) -> bool {
        matches!(self, Keep::Buf(_) | Keep::Device | Keep::Status(_))
    }
}
