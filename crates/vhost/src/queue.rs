//! A virtqueue: takes chains from the guest, serves them as tasks, returns them and calls the guest.
//!
//! ```text
//! stopped ──[start]──► running: the runner takes chains, at most `limit` at a time
//!    ▲                    │
//!    └─ all returned ◄──[pause]
//! ```
//!
//! The state changes only while the queue is stopped. A second task, for the lifetime of the connection,
//! calls the guest for returned chains: a chain that returns meanwhile joins the next call.
//!
//! A queue without chains is looked at for [`SPIN`] before the runner sleeps, if the last waits were short.
//! Meanwhile the guest need not kick, which is dear for a virtual machine.

use crate::chain::{Chain, Table};
use crate::decode::{Decoded, decode};
use crate::inflight::Inflight;
use crate::request::{Guest, Service};
use crate::server::Counters;
use crate::wire::{BlkStatus, Facts};
use braid_base::Nanos;
use braid_engine::{Durability, Export};
use braid_runtime::{Event, Runtime, Signal, Tags, yield_now};
use braid_uring::{Doorbell, Ring};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

/// Largest number of descriptors of a queue.
pub const QUEUE_MAX: u16 = 1024;

/// Time that the runner looks at an empty queue before sleeping; see the NBD server's figure.
const SPIN: Nanos = Nanos::from_micros(80);
/// Chains taken in a row before the other tasks get their turn.
const TURN: u32 = 32;

/// One virtqueue.
pub struct BlkQueue {
    ring: Ring,
    counters: Rc<Cell<Counters>>,
    queue: RefCell<Queue>,
    /// State that the messages set, while the queue is stopped.
    pub setup: RefCell<Setup>,
    memory: RefCell<Rc<GuestMemoryMmap>>,
    /// Descriptors that a dead daemon had taken: served first.
    again: RefCell<VecDeque<u16>>,
    /// Chains that may be in service at the same time.
    limit: Cell<usize>,
    in_service: Cell<usize>,
    stage: Cell<Stage>,
    /// The runner's task has not ended.
    is_running: Cell<bool>,
    /// The guest has kicked.
    kicked: Cell<bool>,
    /// The runner waits for a kick, a pause, or fewer chains in service.
    runner: Signal,
    /// Chains have been returned since the last call.
    owed: Cell<Owed>,
    /// The queue has broken, and the other side was not told.
    is_error_owed: Cell<bool>,
    /// The caller waits for returned chains, an error, or the end.
    caller: Signal,
    /// The guest is gone, or its memory no longer ours to write: chains are not returned.
    abandoned: Cell<bool>,
    /// Notified when the queue has stopped.
    stopped: Event,
    expected_wait: Cell<Nanos>,
    /// Chains for reuse.
    chains: RefCell<Vec<Chain>>,
}

/// State of a queue that the messages set.
#[derive(Default)]
pub struct Setup {
    /// Rung by the guest for new chains. The queue does not run without.
    pub kick: Option<Rc<Doorbell>>,
    /// Rung for the guest, for returned chains.
    pub call: Option<Rc<Doorbell>>,
    /// Rung if the queue breaks.
    pub error: Option<Rc<Doorbell>>,
    /// The queue may run.
    pub enabled: bool,
    /// Memory of the requests in flight.
    pub inflight: Option<Inflight>,
    /// The queue begins anew: the index of the used ring is read from guest memory.
    pub fresh: bool,
}

/// What the guest and the connection have agreed on, for one run of a queue.
#[derive(Clone, Copy)]
pub struct Terms {
    /// The disk.
    pub facts: Facts,
    /// Durability of an answered write.
    pub durability: Durability,
    /// Chains that may be in service at the same time.
    pub limit: usize,
    /// Each side tells the index from which the other side notifies.
    pub event_idx: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Stopped,
    Running,
    Pausing,
    /// The guest broke the rules of the queue. A new setup begins anew.
    Broken,
}

/// Need to call the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owed {
    No,
    /// If the guest wants calls now.
    IfWanted,
    /// In any case: a call may have been lost with the daemon before.
    Always,
}

impl BlkQueue {
    /// A stopped queue. Its caller's task lives until [`BlkQueue::abandon`].
    pub fn new(ring: &Ring, counters: &Rc<Cell<Counters>>, stopped: &Event) -> Rc<BlkQueue> {
        let queue = Rc::new(BlkQueue {
            ring: ring.clone(),
            counters: counters.clone(),
            queue: RefCell::new(Queue::new(QUEUE_MAX).expect("a power of two")),
            setup: RefCell::default(),
            memory: RefCell::default(),
            again: RefCell::default(),
            limit: Cell::new(1),
            in_service: Cell::new(0),
            stage: Cell::new(Stage::Stopped),
            is_running: Cell::new(false),
            kicked: Cell::new(false),
            runner: Signal::default(),
            owed: Cell::new(Owed::No),
            is_error_owed: Cell::new(false),
            caller: Signal::default(),
            abandoned: Cell::new(false),
            stopped: stopped.clone(),
            expected_wait: Cell::new(Nanos::ZERO),
            chains: RefCell::default(),
        });
        let caller = queue.clone();
        ring.spawn(async move { caller.run_caller().await });
        queue
    }

    /// Changes the registers of the stopped queue.
    pub fn with_registers<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(&mut self.queue.borrow_mut())
    }

    /// True if the messages have set up the queue to run.
    pub fn may_run(&self) -> bool {
        let setup = self.setup.borrow();
        setup.enabled && setup.kick.is_some() && (setup.fresh || self.stage.get() != Stage::Broken)
    }

    /// True if the runner runs.
    pub fn is_running(&self) -> bool {
        self.is_running.get()
    }

    /// Begins to serve chains of the stopped queue.
    pub fn start<E: Export>(
        self: &Rc<Self>,
        service: &Rc<Service<E>>,
        memory: &Rc<GuestMemoryMmap>,
        terms: Terms,
    ) {
        *self.memory.borrow_mut() = memory.clone();
        self.limit.set(terms.limit);
        self.queue.borrow_mut().set_event_idx(terms.event_idx);
        self.stage.set(Stage::Running);
        if let Err(problem) = self.begin(memory) {
            return self.break_down(problem);
        }
        self.is_running.set(true);
        let (queue, service) = (self.clone(), service.clone());
        self.ring.spawn(async move { queue.run(service, terms).await });
    }

    /// Begins to stop: takes no more chains. [`BlkQueue::is_running`] tells when all are returned.
    pub fn pause(&self) {
        if self.stage.get() == Stage::Running {
            self.stage.set(Stage::Pausing);
            self.runner.notify();
        }
    }

    /// Touches the guest's memory no more: chains in service stay in flight for the next daemon or
    /// connection. Ends the caller's task.
    pub fn abandon(&self) {
        self.abandoned.set(true);
        self.caller.notify();
    }

    /// Calls the guest soon, in any case.
    pub fn call(&self) {
        self.owed.set(Owed::Always);
        self.caller.notify();
    }

    /// Checks the registers, and learns which chains a former daemon has left.
    fn begin(&self, memory: &GuestMemoryMmap) -> Result<(), &'static str> {
        let (mut queue, mut setup) = (self.queue.borrow_mut(), self.setup.borrow_mut());
        queue.set_ready(true);
        if !queue.is_valid(memory) {
            return Err("its rings lie outside of the guest's memory");
        }
        if !std::mem::take(&mut setup.fresh) {
            return Ok(());
        }
        let used = queue.used_idx(memory, std::sync::atomic::Ordering::Acquire);
        let used = used.map_err(|_| "its used ring is not aligned")?.0;
        queue.set_next_used(used);
        if let Some(inflight) = &setup.inflight {
            if inflight.len() < queue.size() {
                return Err("its memory for requests in flight is too short");
            }
            if let Some(again) = inflight.recover(used) {
                let again: VecDeque<u16> = again.into_iter().filter(|&head| head < queue.size()).collect();
                queue.set_next_avail(used.wrapping_add(again.len() as u16));
                *self.again.borrow_mut() = again;
            }
        }
        drop((queue, setup));
        self.call();
        Ok(())
    }

    /// The runner's task: takes chains until the queue is paused or broken, then waits for their return.
    async fn run<E: Export>(self: Rc<Self>, service: Rc<Service<E>>, terms: Terms) {
        let memory = self.memory.borrow().clone();
        let kick = self.setup.borrow().kick.clone().expect("a queue runs with a kick");
        let tags = Tags::new(self.ring.clone(), Rc::new(|| {}));
        {
            let mut kicks = pin!(self.watch(&kick));
            let mut turn = 0;
            while self.stage.get() == Stage::Running {
                match self.take(&memory) {
                    Ok(Some(head)) => {
                        let taken = self.read(&memory, head, &terms.facts);
                        let (queue, service, memory) = (self.clone(), service.clone(), memory.clone());
                        let durability = terms.durability;
                        tags.start(async move { queue.serve(&service, &memory, taken, durability).await });
                        turn += 1;
                        if turn % TURN == 0 {
                            yield_now().await;
                        }
                    }
                    Ok(None) => self.wait(&memory, kicks.as_mut()).await,
                    Err(problem) => self.break_down(problem),
                }
            }
        }
        self.runner.wait_until(|| self.in_service.get() == 0).await;
        tags.close();
        if self.stage.get() == Stage::Pausing {
            self.stage.set(Stage::Stopped);
        }
        self.is_running.set(false);
        self.stopped.notify();
    }

    /// The next chain's first descriptor. `None` if there is none, or if enough chains are in service.
    fn take(&self, memory: &GuestMemoryMmap) -> Result<Option<u16>, &'static str> {
        if self.in_service.get() >= self.limit.get() {
            return Ok(None);
        }
        let setup = self.setup.borrow();
        let again = self.again.borrow_mut().pop_front();
        if again.is_some() {
            return Ok(again);
        }
        let mut queue = self.queue.borrow_mut();
        let mut waiting = queue.iter(memory).map_err(|_| "it has more chains than descriptors")?;
        let Some(head) = waiting.next().map(|chain| chain.head_index()) else { return Ok(None) };
        if head >= queue.size() {
            return Err("a chain begins beyond the descriptors");
        }
        if let Some(inflight) = &setup.inflight {
            inflight.take(head);
        }
        Ok(Some(head))
    }

    /// Reads a taken chain.
    fn read(&self, memory: &GuestMemoryMmap, head: u16, facts: &Facts) -> Taken {
        self.in_service.set(self.in_service.get() + 1);
        self.count(|counters| counters.requests += 1);
        let mut chain = self.chains.borrow_mut().pop().unwrap_or_default();
        let table = {
            let queue = self.queue.borrow();
            Table { start: GuestAddress(queue.desc_table()), len: queue.size() }
        };
        let decoded = match chain.read(memory, table, head) {
            Ok(()) => decode(memory, &chain, facts),
            Err(_) => None,
        };
        Taken { head, chain, decoded }
    }

    /// Serves a chain and returns the chain to the guest.
    async fn serve<E: Export>(
        &self,
        service: &Service<E>,
        memory: &GuestMemoryMmap,
        taken: Taken,
        durability: Durability,
    ) {
        let Taken { head, chain, decoded } = taken;
        // A chain without a place for a status is returned as it is: the guest finds no answer in it.
        let (mut written, mut is_served) = (0, false);
        if let Some(Decoded { order, status, written: all }) = decoded {
            let answer = match order {
                Ok(order) => {
                    let guest = Guest { memory, chain: &chain, is_gone: &self.abandoned };
                    service.serve(&guest, order, durability).await
                }
                Err(refusal) => refusal,
            };
            let is_told = !self.abandoned.get() && memory.write_obj(answer as u8, status).is_ok();
            written = if is_told { all } else { 0 };
            is_served = is_told && answer == BlkStatus::Ok;
        }
        if !is_served {
            self.count(|counters| counters.errors += 1);
        }
        self.chains.borrow_mut().push(chain);
        self.give_back(memory, head, written);
        self.in_service.set(self.in_service.get() - 1);
        self.runner.notify();
    }

    /// Returns a chain to the guest.
    fn give_back(&self, memory: &GuestMemoryMmap, head: u16, written: u32) {
        if self.abandoned.get() {
            return;
        }
        let setup = self.setup.borrow();
        if let Some(inflight) = &setup.inflight {
            inflight.begin_return(head);
        }
        let mut queue = self.queue.borrow_mut();
        let returned = queue.add_used(memory, head, written);
        if let Some(inflight) = &setup.inflight {
            inflight.end_return(head, queue.next_used());
        }
        drop((queue, setup));
        if returned.is_err() {
            return self.break_down("its used ring cannot be written");
        }
        if self.owed.get() == Owed::No {
            self.owed.set(Owed::IfWanted);
            self.caller.notify();
        }
    }

    /// Waits for more chains, for fewer chains in service, or for a pause.
    async fn wait(&self, memory: &GuestMemoryMmap, mut kicks: Pin<&mut impl Future<Output = ()>>) {
        let pausing = || self.stage.get() != Stage::Running;
        if self.in_service.get() >= self.limit.get() {
            return self.runner.wait_until(|| pausing() || self.in_service.get() < self.limit.get()).await;
        }
        let start = self.ring.now();
        let mut waited = Nanos::ZERO;
        while self.expected_wait.get() < SPIN && waited < SPIN {
            yield_now().await;
            waited = self.ring.now().saturating_sub(start);
            if pausing() || self.has_chains(memory) {
                return self.learn(waited);
            }
        }
        match self.queue.borrow_mut().enable_notification(memory) {
            Ok(false) => {}
            Ok(true) => return self.learn(waited),
            Err(_) => return self.break_down("its rings cannot be read"),
        }
        let mut woken = pin!(self.runner.wait_until(|| pausing() || self.kicked.get()));
        poll_fn(|cx| {
            // Never completes: notes kicks.
            let _ = kicks.as_mut().poll(cx);
            woken.as_mut().poll(cx)
        })
        .await;
        self.kicked.set(false);
        if self.queue.borrow_mut().disable_notification(memory).is_err() {
            self.break_down("its rings cannot be written");
        }
        self.learn(self.ring.now().saturating_sub(start));
    }

    fn has_chains(&self, memory: &GuestMemoryMmap) -> bool {
        let queue = self.queue.borrow();
        let index = queue.avail_idx(memory, std::sync::atomic::Ordering::Acquire);
        // An error is found when a chain is taken.
        index.map_or(true, |index| index.0 != queue.next_avail())
    }

    /// Two long waits in a row end the spinning, some short waits resume it: an idle guest costs nothing.
    fn learn(&self, waited: Nanos) {
        self.expected_wait.set((self.expected_wait.get() * 7 + waited.min(SPIN * 5)) / 8);
    }

    /// Notes kicks for ever.
    async fn watch(&self, kick: &Doorbell) {
        while kick.rung().await.is_ok() {
            self.kicked.set(true);
            self.runner.notify();
        }
        self.break_down("its kick is no eventfd");
        std::future::pending().await
    }

    /// The caller's task.
    async fn run_caller(self: Rc<Self>) {
        let abandoned = || self.abandoned.get();
        loop {
            let is_owed = || self.owed.get() != Owed::No || self.is_error_owed.get();
            self.caller.wait_until(|| abandoned() || is_owed()).await;
            if abandoned() {
                return;
            }
            let bell = match self.is_error_owed.take() {
                true => self.setup.borrow().error.clone(),
                false => self.setup.borrow().call.clone().filter(|_| self.is_call_needed()),
            };
            let Some(bell) = bell else { continue };
            let (mut ring, mut ended) = (pin!(bell.ring()), pin!(self.caller.wait_until(abandoned)));
            poll_fn(|cx| match ring.as_mut().poll(cx) {
                // An error means that the other process passed no eventfd: nobody can be called.
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => ended.as_mut().poll(cx),
            })
            .await;
        }
    }

    /// True if the guest wants to be called for the chains that were returned.
    fn is_call_needed(&self) -> bool {
        let (owed, memory) = (self.owed.replace(Owed::No), self.memory.borrow().clone());
        let mut queue = self.queue.borrow_mut();
        // Also a barrier: the guest sees the returned chains, or its wish is seen here.
        let crossed = queue.needs_notification(&*memory).unwrap_or(true);
        let is_wanted = queue.event_idx_enabled() || {
            let flags = memory.read_obj::<u16>(GuestAddress(queue.avail_ring()));
            flags.map_or(true, |flags| u16::from_le(flags) & VIRTQ_AVAIL_F_NO_INTERRUPT == 0)
        };
        owed == Owed::Always || crossed && is_wanted
    }

    /// Ends the queue, because the guest broke its rules, and tells the virtual machine's process.
    fn break_down(&self, problem: &'static str) {
        tracing::warn!("a guest's queue has stopped: {problem}");
        self.count(|counters| counters.broken += 1);
        self.stage.set(Stage::Broken);
        self.is_error_owed.set(true);
        self.runner.notify();
        self.caller.notify();
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

const VIRTQ_AVAIL_F_NO_INTERRUPT: u16 = 1;

/// A chain taken from the guest.
struct Taken {
    head: u16,
    chain: Chain,
    decoded: Option<Decoded>,
}
