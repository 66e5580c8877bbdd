//! Requests in flight on a device, and the fate of a request past its deadline.
//!
//! A device may answer late, or never. After the deadline the waiting task gets an error, but the request
//! cannot be cancelled: the device may still change its data. So the request's buffer stays untouched, and
//! the device gets no other request before its answer. Therefore each request is carried by a future kept
//! here, not by the caller's future. Carriers are reused, so a request allocates nothing.
//!
//! A discard has no deadline: a healthy device may take minutes for a discard (SATA TRIM, thin pools, sparse
//! files), and answers other requests meanwhile. A discard becomes late only with its device, as reads,
//! writes and flushes show, or when the volume closes.
//!
//! A device that repairs itself may hang and then answer (`Device::repair_time`). Changes of such a device,
//! and requests without another copy, wait longer by this time. A read with another copy does not: the other
//! copy answers at once, with the same bytes, and guests need not wait for the repair. Neither does a request
//! on which nothing depends.
//!
//! Time is counted in ticks of the watchdog (`copies/watch.rs`), one per second, without a timer for each
//! request. If the whole host stands still for a minute, only one tick passes.

use super::{Deadline, TICK};
use crate::planted::{Bug, planted};
use braid_base::{Bytes, Nanos, NodeId};
use braid_runtime::{Buf, Device};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Ticks of waiting after which a request is conspicuous: likely to become late.
const CONSPICUOUS_TICKS: u32 = 3;

/// Ticks of silence after which a device is asked for a sign of life.
const QUIET_TICKS: u32 = 5;

/// A request to a device.
pub(crate) enum Request {
    Read(Bytes, Buf),
    Write(Bytes, Buf),
    /// Read for a move: the bytes stay on the device's node.
    ReadToMove(Bytes, Buf),
    /// Write of bytes that lie on a node.
    WriteMoved(Bytes, Buf, Option<NodeId>),
    Flush,
    Discard(Bytes, Bytes),
}

/// Class of a request, for deadlines.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// A read: another copy may answer instead.
    Read,
    /// A write or a flush.
    #[default]
    Change,
    Discard,
}

impl Kind {
    #[inline]
    fn of(request: &Request) -> Kind {
        match request {
            Request::Read(..) | Request::ReadToMove(..) => Kind::Read,
            Request::Write(..) | Request::WriteMoved(..) | Request::Flush => Kind::Change,
            Request::Discard(..) => Kind::Discard,
        }
    }
}

/// The requests of one device.
#[derive(Default)]
pub(crate) struct Requests {
    /// Orders of waiting callers, and idle orders.
    orders: RefCell<Vec<Rc<Order>>>,
    /// The carrier used last; `idle` holds the other idle carriers.
    spare: Cell<Option<Carrier>>,
    idle: RefCell<Vec<Carrier>>,
    /// Late carriers not yet taken over by a task.
    abandoned: RefCell<Vec<Carrier>>,
    /// Number of requests in flight whose callers were told of the delay.
    late: Cell<usize>,
    /// Tick of the first late request, while `late` is not zero.
    late_since: Cell<u32>,
    newest: Cell<u64>,
    /// Start of the newest request that the device has answered in time.
    answered: Cell<u32>,
    /// Tick of the device's last successful answer, or of the last probe for a sign of life.
    heard: Cell<u32>,
    ticks: Cell<u32>,
    /// Number of the oldest request at the last tick, and the ticks for which the request has been the
    /// oldest.
    oldest: Cell<(u64, u32)>,
    is_stuck: Cell<bool>,
    /// True if the device has been stuck for longer than it may take to repair itself.
    is_stuck_beyond_repair: Cell<bool>,
    /// Seconds for which the device may hang and then answer by itself.
    repair: Cell<u32>,
}

/// Exchange between a caller and its carrier.
#[derive(Default)]
struct Order {
    /// Number of the request on its device; zero while idle.
    number: Cell<u64>,
    begun_at: Cell<u32>,
    kind: Cell<Kind>,
    deadline: Cell<Deadline>,
    /// The request, until the carrier begins.
    request: Cell<Option<Request>>,
    /// Set once the device has the request.
    is_sent: Cell<bool>,
    result: Cell<Option<io::Result<()>>>,
    /// The deadline that has passed.
    passed: Cell<Option<Deadline>>,
    /// Waker of the last waiting task, usually the next task's, too.
    waker: Cell<Option<Waker>>,
}

/// Carries requests to the device, one after another.
pub(crate) struct Carrier {
    order: Rc<Order>,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

impl Carrier {
    fn new<D: Device>(device: Rc<D>) -> Carrier {
        let order = Rc::new(Order::default());
        let mailbox = order.clone();
        let work = Box::pin(async move {
            loop {
                let next = poll_fn(|_| mailbox.request.take().map_or(Poll::Pending, Poll::Ready)).await;
                let result = match &next {
                    Request::Read(at, into) => device.read(*at, into).await,
                    Request::Write(at, from) => device.write(*at, from).await,
                    Request::ReadToMove(at, into) => device.read_to_move(*at, into).await,
                    Request::WriteMoved(at, from, node) => device.write_moved(*at, from, *node).await,
                    Request::Flush => device.flush().await,
                    Request::Discard(at, len) => device.discard(*at, *len).await,
                };
                mailbox.result.set(Some(result));
            }
        });
        Carrier { order, work }
    }

    /// Returns the result once the device has answered.
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<io::Result<()>> {
        let _never_ends = self.work.as_mut().poll(cx);
        self.order.result.take()
    }
}

impl Requests {
    /// Creates the requests of a device that may hang for `repair` and then answer by itself.
    pub fn new(repair: Nanos) -> Requests {
        let requests = Requests::default();
        requests.set_repair_time(repair);
        requests
    }

    fn set_repair_time(&self, repair: Nanos) {
        self.repair.set(repair.0.div_ceil(TICK.0) as u32);
    }

    /// Seconds for which the device may hang and then answer by itself.
    pub fn repair_seconds(&self) -> u32 {
        self.repair.get()
    }

    /// Begins a request to a device.
    #[inline(always)]
    pub fn ask<D: Device>(&self, device: &Rc<D>, request: Request, deadline: Deadline) -> Answer<'_> {
        let carrier = self.spare.take().unwrap_or_else(|| self.another(device));
        self.begin(&carrier.order, request, deadline);
        Answer { requests: self, carrier: Some(carrier), refusal: None }
    }

    /// Returns an answer that fails at once, without a request to the device.
    #[cold]
    pub fn refuse(&self, refusal: io::Error) -> Answer<'_> {
        Answer { requests: self, carrier: None, refusal: Some(refusal) }
    }

    #[cold]
    fn another<D: Device>(&self, device: &Rc<D>) -> Carrier {
        if let Some(carrier) = self.idle.borrow_mut().pop() {
            return carrier;
        }
        let carrier = Carrier::new(device.clone());
        self.orders.borrow_mut().push(carrier.order.clone());
        carrier
    }

    #[inline(always)]
    fn begin(&self, order: &Order, request: Request, deadline: Deadline) {
        self.newest.set(self.newest.get() + 1);
        order.number.set(self.newest.get());
        order.begun_at.set(self.ticks.get());
        order.kind.set(Kind::of(&request));
        order.deadline.set(deadline);
        order.is_sent.set(false);
        order.request.set(Some(request));
    }

    /// True if new requests wait until the device has answered the late ones.
    fn is_closed(&self) -> bool {
        self.late.get() > 0 && !planted(Bug::LateWriteForgotten)
    }

    /// True if the device has been late for the longest deadline: new requests fail at once. Each request
    /// would otherwise wait for a minute, and dependent requests for many minutes.
    pub fn is_silent(&self) -> bool {
        let limit = self.limit(Deadline::Only, Kind::Change);
        self.late.get() > 0 && self.has_been(self.late_since.get(), limit)
    }

    /// Makes a carrier idle after the device's answer.
    #[inline]
    fn rest(&self, carrier: Carrier) {
        carrier.order.number.set(0);
        if !self.has_been(carrier.order.begun_at.get(), Deadline::Copied.seconds()) {
            self.answered.set(self.answered.get().max(carrier.order.begun_at.get()));
        }
        if let Some(other) = self.spare.replace(Some(carrier)) {
            self.rest_too(other);
        }
    }

    #[cold]
    fn rest_too(&self, carrier: Carrier) {
        self.idle.borrow_mut().push(carrier);
    }

    /// Abandons a request for its caller. A request in flight is kept for [`Requests::finish`]; an unsent
    /// request is dropped.
    #[cold]
    fn leave(&self, carrier: Carrier, passed: Deadline) -> io::Error {
        let seconds = self.limit(passed, carrier.order.kind.get());
        self.orders.borrow_mut().retain(|order| !Rc::ptr_eq(order, &carrier.order));
        if carrier.order.is_sent.get() {
            self.abandoned.borrow_mut().push(carrier);
        }
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer for {seconds} s"))
    }

    /// Takes the late requests; a task must [`Requests::finish`] each.
    pub fn take_abandoned(&self) -> Vec<Carrier> {
        self.abandoned.take()
    }

    /// Waits until the device answers a late request. After the last late answer, waiting requests are sent.
    pub async fn finish(&self, mut carrier: Carrier) {
        let _too_late = poll_fn(|cx| carrier.poll(cx).map_or(Poll::Pending, Poll::Ready)).await;
        self.late.set(self.late.get() - 1);
        if self.late.get() == 0 {
            waiting(&self.orders.borrow()).for_each(Order::wake);
        }
    }

    /// Number of late requests in flight.
    #[inline]
    pub fn late(&self) -> usize {
        self.late.get()
    }

    /// True if the device was stuck at the last tick: requests are late, or one request other than a discard
    /// has been the oldest for 5 s. A long queue alone does not count.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.get()
    }

    /// True if the device was stuck for longer than it may take to repair itself.
    pub fn is_stuck_beyond_repair(&self) -> bool {
        self.is_stuck_beyond_repair.get()
    }

    /// Tick of the first late request, if the device is late.
    pub fn late_since(&self) -> u32 {
        self.late_since.get()
    }

    /// Start of the oldest request with a deadline and a waiting caller; the current tick if there is none.
    pub fn waits_since(&self) -> u32 {
        let begun = timed(&self.orders.borrow()).map(|order| order.begun_at.get()).min();
        begun.unwrap_or(self.ticks.get())
    }

    /// True if a request has waited long enough to ask other devices for a sign of life.
    pub fn is_conspicuous(&self) -> bool {
        self.ticks.get().wrapping_sub(self.waits_since()) >= CONSPICUOUS_TICKS
    }

    /// True if no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.late.get() == 0 && waiting(&self.orders.borrow()).next().is_none()
    }

    /// True if a request with a deadline waits, or a late request is in flight.
    pub fn is_awaited(&self) -> bool {
        self.late.get() > 0 || timed(&self.orders.borrow()).next().is_some()
    }

    /// True if the device has been silent for a while without a request other than discards.
    pub fn is_quiet(&self) -> bool {
        self.ticks.get().wrapping_sub(self.heard.get()) >= QUIET_TICKS && !self.is_awaited()
    }

    /// Notes a sign of life, or a probe for one.
    #[inline]
    pub fn note_sign(&self) {
        self.heard.set(self.ticks.get());
    }

    /// Starts a new device's count at the ticks of another device.
    pub fn count_with(&self, other: &Requests) {
        self.ticks.set(other.ticks.get());
        self.answered.set(other.ticks.get());
        self.note_sign();
    }

    /// Drops all carriers: another device, with this repair time, takes the place of a device without
    /// requests in flight.
    pub fn renew(&self, repair: Nanos) {
        self.set_repair_time(repair);
        self.orders.borrow_mut().clear();
        self.spare.set(None);
        self.idle.borrow_mut().clear();
        self.is_stuck.set(false);
        self.is_stuck_beyond_repair.set(false);
        self.note_sign();
    }

    /// True if the device has answered, in time, a request begun after another device's request (begun at
    /// `since`) became conspicuous. An earlier request proves nothing: both devices may have fallen silent a
    /// moment later.
    pub fn has_answered_after(&self, since: u32) -> bool {
        !self.is_stuck() && self.answered.get() >= since.saturating_add(CONSPICUOUS_TICKS)
    }

    /// Counts one second.
    pub fn tick(&self) {
        self.ticks.set(self.ticks.get().wrapping_add(1));
        let orders = self.orders.borrow();
        let oldest = timed(&orders).map(|order| order.number.get()).min().unwrap_or(0);
        let (before, ticks) = self.oldest.get();
        let ticks = if oldest == before { ticks.saturating_add(1) } else { 0 };
        self.oldest.set((oldest, ticks));
        let (limit, repair, is_late) = (Deadline::Copied.seconds(), self.repair.get(), self.late.get() > 0);
        self.is_stuck.set(is_late || oldest > 0 && ticks >= limit);
        let is_long_late = is_late && self.age(self.late_since.get()) >= repair;
        self.is_stuck_beyond_repair.set(is_long_late || oldest > 0 && ticks >= limit + repair);
    }

    /// True if a write or flush has waited for 5 s and the repair time: no other copy can answer instead.
    pub fn has_overdue_change(&self) -> bool {
        let is_overdue =
            |order: &Order| order.kind.get() == Kind::Change && self.has_passed(order, Deadline::Copied);
        timed(&self.orders.borrow()).any(is_overdue)
    }

    /// Ends the wait for requests past their deadline, and for unsent requests to a silent device. Without
    /// answers from other devices, writes and flushes get the longest deadline unless nothing depends on the
    /// request ([`Deadline::Brief`]).
    pub fn expire(&self, others_answer: bool) {
        if self.is_silent() {
            self.expire_discards();
        }
        for order in timed(&self.orders.borrow()) {
            let deadline = order.deadline.get();
            let is_read = order.kind.get() == Kind::Read;
            let may_end_early = others_answer || is_read || deadline == Deadline::Brief;
            let deadline = if may_end_early { deadline } else { Deadline::Only };
            let is_in_vain = !order.is_sent.get() && self.is_silent();
            if is_in_vain || self.has_passed(order, deadline) {
                self.expire_one(order, deadline);
            }
        }
    }

    /// Ends the wait for discards older than a minute: the device is silent, or the volume closes.
    pub fn expire_discards(&self) {
        let orders = self.orders.borrow();
        let discards = waiting(&orders).filter(|order| order.kind.get() == Kind::Discard);
        let overdue = discards.filter(|order| self.has_passed(order, Deadline::Only));
        overdue.for_each(|order| self.expire_one(order, Deadline::Only));
    }

    /// Ends the wait for all requests: the device was excluded.
    pub fn expire_all(&self) {
        waiting(&self.orders.borrow()).for_each(|order| self.expire_one(order, Deadline::Copied));
    }

    fn expire_one(&self, order: &Order, passed: Deadline) {
        order.passed.set(Some(passed));
        if order.is_sent.get() {
            if self.late.get() == 0 {
                self.late_since.set(self.ticks.get());
            }
            self.late.set(self.late.get() + 1);
        }
        order.wake();
    }

    fn has_passed(&self, order: &Order, deadline: Deadline) -> bool {
        self.has_been(order.begun_at.get(), self.limit(deadline, order.kind.get()))
    }

    /// Seconds after which a request is late.
    fn limit(&self, deadline: Deadline, kind: Kind) -> u32 {
        match (deadline, kind) {
            (Deadline::Brief, _) | (Deadline::Copied, Kind::Read) => deadline.seconds(),
            _ => deadline.seconds() + self.repair.get(),
        }
    }

    /// True if these seconds have passed. A request begun just before a tick has an age of one tick at once,
    /// so one more tick guarantees the full seconds.
    fn has_been(&self, since: u32, seconds: u32) -> bool {
        self.age(since) > seconds
    }

    fn age(&self, since: u32) -> u32 {
        self.ticks.get().wrapping_sub(since)
    }
}

/// The wait for an answer or for the deadline.
///
/// # Errors
/// Errors of the device. `TimedOut` after the deadline: the device may still carry out the request, so the
/// buffer must not be touched.
#[must_use]
pub(crate) struct Answer<'a> {
    requests: &'a Requests,
    carrier: Option<Carrier>,
    /// The error to return if there is no carrier.
    refusal: Option<io::Error>,
}

impl Future for Answer<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let requests = self.requests;
        let Some(mut carrier) = self.carrier.take() else {
            return Poll::Ready(Err(self.refusal.take().expect("an answer comes once")));
        };
        if let Some(passed) = carrier.order.passed.get() {
            return Poll::Ready(Err(requests.leave(carrier, passed)));
        }
        if carrier.order.is_sent.get() || !requests.is_closed() {
            carrier.order.is_sent.set(true);
            if let Some(result) = carrier.poll(cx) {
                requests.rest(carrier);
                if result.is_ok() {
                    requests.note_sign();
                }
                return Poll::Ready(result);
            }
        }
        carrier.order.keep(cx.waker());
        self.carrier = Some(carrier);
        Poll::Pending
    }
}

/// Orders with a waiting caller.
fn waiting(orders: &[Rc<Order>]) -> impl Iterator<Item = &Order> {
    orders.iter().map(|order| &**order).filter(|order| order.number.get() > 0 && order.passed.get().is_none())
}

/// Orders with a waiting caller and a deadline.
fn timed(orders: &[Rc<Order>]) -> impl Iterator<Item = &Order> {
    waiting(orders).filter(|order| order.kind.get() != Kind::Discard)
}

impl Order {
    fn keep(&self, waker: &Waker) {
        let kept = self.waker.take().filter(|kept| kept.will_wake(waker));
        self.waker.set(Some(kept.unwrap_or_else(|| waker.clone())));
    }

    fn wake(&self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}
