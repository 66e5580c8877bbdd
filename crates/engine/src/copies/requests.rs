//! The requests that a device has not answered yet, and what becomes of one that is past its deadline.
//!
//! A device may answer late, or never. The task that waits is told so after the deadline, but the request
//! cannot be taken back: it may still change what lies there, so its buffer stays as it is, and the device
//! gets nothing else until it has answered. Each request is therefore carried out by a future that is kept
//! here and not by the caller's; these futures are used again and again, so that a request allocates nothing.
//!
//! A discard has no deadline: a device that works may take minutes to carry one out (SATA TRIM, thin pools,
//! sparse files), and answers other requests meanwhile. A discard becomes late only with its device, which
//! reads, writes and flushes show, or when the volume closes.
//!
//! Time is counted in ticks of the watchdog ([`super::watch`]), one a second, and not by a timer for each
//! request. If this whole machine stands still for a minute, that is one tick.

use crate::planted::{Bug, planted};
use braid_base::{Bytes, Nanos, NodeId};
use braid_runtime::{Buf, Device};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// When a request counts as late.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Deadline {
    /// After 5 s: another copy that is current has the bytes, too.
    Copied,
    /// After 5 s, whether other devices answer or not: nothing depends on it, and guests may wait for the
    /// task that asks.
    Brief,
    /// After 60 s: nothing else has them.
    #[default]
    Only,
}

impl Deadline {
    /// The longest one.
    pub const LONGEST: Nanos = Nanos::from_secs(60);
    /// The briefest one.
    pub const BRIEFEST: Nanos = Nanos::from_secs(5);
    /// For a lock that an extra copy needs: with the deadline of its write, guests wait about as long as for
    /// a device.
    pub const WARMTH: Nanos = Nanos::from_secs(1);

    /// Seconds, and up to one more.
    pub fn seconds(self) -> u32 {
        match self {
            Deadline::Copied | Deadline::Brief => 5,
            Deadline::Only => 60,
        }
    }

    /// A request that was begun just before a tick has an age of one then: so many ticks last at least the
    /// seconds.
    fn ticks(self) -> u32 {
        self.seconds() + 1
    }
}

/// A request that has waited for so many ticks may come to be late.
const CONSPICUOUS_TICKS: u32 = 3;

/// A device of which nothing was heard for so many ticks is asked whether it is there.
const QUIET_TICKS: u32 = 5;

/// What a device is asked to do.
pub(crate) enum Request {
    Read(Bytes, Buf),
    Write(Bytes, Buf),
    /// For a move: the bytes stay on the device's node.
    ReadToMove(Bytes, Buf),
    /// Of bytes that lie on a node.
    WriteMoved(Bytes, Buf, Option<NodeId>),
    Flush,
    Discard(Bytes, Bytes),
}

/// What a deadline depends on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// Another copy may answer instead.
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
    /// Those of the callers that wait, and idle ones.
    orders: RefCell<Vec<Rc<Order>>>,
    /// The carrier that was last used, and the other idle ones.
    spare: Cell<Option<Carrier>>,
    idle: RefCell<Vec<Carrier>>,
    /// Late ones that no task carries on with yet.
    abandoned: RefCell<Vec<Carrier>>,
    /// Requests that the device has, and whose callers were told that they are late.
    late: Cell<usize>,
    /// Since when there are some.
    late_since: Cell<u32>,
    newest: Cell<u64>,
    /// When the newest one was begun that the device has answered in time.
    answered: Cell<u32>,
    /// When the device last did what it was asked, or was asked whether it is there.
    heard: Cell<u32>,
    ticks: Cell<u32>,
    /// The oldest request at the last tick, and for how many ticks it has been that.
    oldest: Cell<(u64, u32)>,
    is_stuck: Cell<bool>,
}

/// What a carrier is told, and what it tells.
#[derive(Default)]
struct Order {
    /// Counts the requests of the device; zero while idle.
    number: Cell<u64>,
    begun_at: Cell<u32>,
    kind: Cell<Kind>,
    deadline: Cell<Deadline>,
    /// What the carrier has not begun with.
    request: Cell<Option<Request>>,
    /// Whether the device has it.
    is_sent: Cell<bool>,
    result: Cell<Option<io::Result<()>>>,
    /// The deadline that has passed.
    passed: Cell<Option<Deadline>>,
    /// Of the last task that waited: mostly it is the next one, too.
    waker: Cell<Option<Waker>>,
}

/// Carries out one request after the other.
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

    /// The result, if the device has answered.
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<io::Result<()>> {
        let _never_ends = self.work.as_mut().poll(cx);
        self.order.result.take()
    }
}

impl Requests {
    /// Has a device do something.
    #[inline(always)]
    pub fn ask<D: Device>(&self, device: &Rc<D>, request: Request, deadline: Deadline) -> Answer<'_> {
        let carrier = self.spare.take().unwrap_or_else(|| self.another(device));
        self.begin(&carrier.order, request, deadline);
        Answer { requests: self, carrier: Some(carrier), refusal: None }
    }

    /// The device is not even asked.
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

    /// Whether requests wait until the device has answered the late ones.
    fn is_closed(&self) -> bool {
        self.late.get() > 0 && !planted(Bug::LateWriteForgotten)
    }

    /// Whether the device was late for so long that it gets no more requests until it answers: each that
    /// waited for it would wait for a minute, and those that wait for one another for many.
    pub fn is_silent(&self) -> bool {
        self.late.get() > 0 && self.has_been(self.late_since.get(), Deadline::Only)
    }

    /// The device has answered.
    #[inline]
    fn rest(&self, carrier: Carrier) {
        carrier.order.number.set(0);
        if !self.has_passed(&carrier.order, Deadline::Copied) {
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

    /// The caller goes. What the device has must be carried on with; the rest is forgotten.
    #[cold]
    fn leave(&self, carrier: Carrier, passed: Deadline) -> io::Error {
        self.orders.borrow_mut().retain(|order| !Rc::ptr_eq(order, &carrier.order));
        if carrier.order.is_sent.get() {
            self.abandoned.borrow_mut().push(carrier);
        }
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer for {} s", passed.seconds()))
    }

    /// Late requests that a task must [`Requests::finish`].
    pub fn take_abandoned(&self) -> Vec<Carrier> {
        self.abandoned.take()
    }

    /// Carries on with a late request until the device answers; after the last one, others go on.
    pub async fn finish(&self, mut carrier: Carrier) {
        let _too_late = poll_fn(|cx| carrier.poll(cx).map_or(Poll::Pending, Poll::Ready)).await;
        self.late.set(self.late.get() - 1);
        if self.late.get() == 0 {
            waiting(&self.orders.borrow()).for_each(Order::wake);
        }
    }

    /// How many requests the device has that are late.
    #[inline]
    pub fn late(&self) -> usize {
        self.late.get()
    }

    /// Whether the device was stuck at the last tick: it has late requests, or a request other than a discard
    /// has been the oldest for 5 s. So a queue that is merely long is no reason.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.get()
    }

    /// Since when the device has been late, if it is.
    pub fn late_since(&self) -> u32 {
        self.late_since.get()
    }

    /// When the oldest request with a deadline was begun that a caller waits for; now if there is none.
    pub fn waits_since(&self) -> u32 {
        let begun = timed(&self.orders.borrow()).map(|order| order.begun_at.get()).min();
        begun.unwrap_or(self.ticks.get())
    }

    /// Whether a request has waited long enough for others to be asked for a sign of life.
    pub fn is_conspicuous(&self) -> bool {
        self.ticks.get().wrapping_sub(self.waits_since()) >= CONSPICUOUS_TICKS
    }

    /// Whether the device owes no answer.
    pub fn is_idle(&self) -> bool {
        self.late.get() == 0 && waiting(&self.orders.borrow()).next().is_none()
    }

    /// Whether the device owes an answer that has a deadline, or is late with one.
    pub fn is_awaited(&self) -> bool {
        self.late.get() > 0 || timed(&self.orders.borrow()).next().is_some()
    }

    /// Whether the device is not awaited, and has done nothing for a while.
    pub fn is_quiet(&self) -> bool {
        self.ticks.get().wrapping_sub(self.heard.get()) >= QUIET_TICKS && !self.is_awaited()
    }

    /// The device has done something, or is asked whether it is there.
    #[inline]
    pub fn note_sign(&self) {
        self.heard.set(self.ticks.get());
    }

    /// The device comes beside another one: from now on both count the same ticks.
    pub fn count_with(&self, other: &Requests) {
        self.ticks.set(other.ticks.get());
        self.answered.set(other.ticks.get());
        self.note_sign();
    }

    /// Another device takes the place of one that owes no answer: what carried requests to that one goes.
    pub fn renew(&self) {
        self.orders.borrow_mut().clear();
        self.spare.set(None);
        self.idle.borrow_mut().clear();
        self.is_stuck.set(false);
        self.note_sign();
    }

    /// Whether the device has answered a request in time that was begun when one of another device, begun at
    /// `since`, was already conspicuous. What was begun with that says nothing: both may have fallen silent a
    /// moment later.
    pub fn has_answered_after(&self, since: u32) -> bool {
        !self.is_stuck() && self.answered.get() >= since.saturating_add(CONSPICUOUS_TICKS)
    }

    /// One more second has passed.
    pub fn tick(&self) {
        self.ticks.set(self.ticks.get().wrapping_add(1));
        let orders = self.orders.borrow();
        let oldest = timed(&orders).map(|order| order.number.get()).min().unwrap_or(0);
        let (before, ticks) = self.oldest.get();
        let ticks = if oldest == before { ticks.saturating_add(1) } else { 0 };
        self.oldest.set((oldest, ticks));
        self.is_stuck.set(self.late.get() > 0 || oldest > 0 && ticks >= Deadline::Copied.seconds());
    }

    /// Whether a write or a flush has waited for 5 s: another copy cannot answer instead.
    pub fn has_overdue_change(&self) -> bool {
        let is_overdue =
            |order: &Order| order.kind.get() == Kind::Change && self.has_passed(order, Deadline::Copied);
        timed(&self.orders.borrow()).any(is_overdue)
    }

    /// Ends the wait for requests whose deadline has passed, and for a device that is silent. Writes that
    /// something depends on have the longest deadline if the other copies' devices do not answer either.
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

    /// Ends the wait for discards that have taken a minute: the device is silent, or the volume closes.
    pub fn expire_discards(&self) {
        let orders = self.orders.borrow();
        let discards = waiting(&orders).filter(|order| order.kind.get() == Kind::Discard);
        let overdue = discards.filter(|order| self.has_passed(order, Deadline::Only));
        overdue.for_each(|order| self.expire_one(order, Deadline::Only));
    }

    /// Ends the wait for all requests: the device was given up.
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
        self.has_been(order.begun_at.get(), deadline)
    }

    fn has_been(&self, since: u32, deadline: Deadline) -> bool {
        self.ticks.get().wrapping_sub(since) >= deadline.ticks()
    }
}

/// The wait for an answer, or for the deadline.
///
/// # Errors
/// Those of the device; `TimedOut` after the deadline: then the device may still do it, and the buffer must
/// be left as it is.
#[must_use]
pub(crate) struct Answer<'a> {
    requests: &'a Requests,
    carrier: Option<Carrier>,
    /// Why there is no carrier.
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

/// Those whose callers wait.
fn waiting(orders: &[Rc<Order>]) -> impl Iterator<Item = &Order> {
    orders.iter().map(|order| &**order).filter(|order| order.number.get() > 0 && order.passed.get().is_none())
}

/// Those of them that have a deadline.
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
