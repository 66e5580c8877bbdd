//! Answers within a time: work with a limit, and requests to devices that may never answer.

use super::deadline::TICK;
use super::{Deadline, Member};
use crate::{Error, ErrorKind};
use braid_base::Nanos;
use braid_runtime::{Device, Event, Runtime};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Waits for `work` for at most `limit`; returns `None` after the limit. Only for work that may be dropped
/// half-way.
pub(crate) async fn within<R: Runtime, T>(rt: &R, limit: Nanos, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut alarm) = (pin!(work), pin!(rt.sleep(limit)));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => alarm.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Enforces the deadlines of requests to `members` during `work`: while a volume is opened or checked, before
/// the watchdog runs.
pub(crate) async fn watched<R: Runtime, D: Device, T>(
    rt: &R,
    members: &[Member<D>],
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        let output = within(rt, TICK, work.as_mut()).await;
        for member in members {
            member.requests.tick();
            member.requests.expire(false);
            finish_abandoned(rt, member);
        }
        if let Some(output) = output {
            return output;
        }
    }
}

/// Waits for an answer from a device that is not a member yet, with the longest deadline and the repair time
/// of the device. A task keeps waiting for a late answer.
///
/// # Errors
/// `Io` with a remedy after the deadline; else the errors of `question`.
pub(crate) async fn answered<R: Runtime, T: 'static>(
    rt: &R,
    name: &str,
    repair_time: Nanos,
    question: impl Future<Output = T> + 'static,
) -> crate::Result<T> {
    let (answer, arrived) = (Rc::new(Cell::new(None)), Event::default());
    let (place, told) = (answer.clone(), arrived.clone());
    rt.spawn(async move {
        place.set(Some(question.await));
        told.notify();
    });
    let limit = Deadline::LONGEST + repair_time;
    let in_time = within(rt, limit, arrived.wait_for(|| answer.take())).await;
    in_time.ok_or_else(|| {
        let text = format!(
            "{name} has not answered for {limit}: wait for an answer, or detach the device (with two copies of \
             everything the volume opens without the device)"
        );
        Error::new(ErrorKind::Io, text)
    })
}

/// Starts a task for each late request without a caller.
pub(crate) fn finish_abandoned<R: Runtime, D: Device>(rt: &R, member: &Member<D>) {
    for carrier in member.requests.take_abandoned() {
        let requests = member.requests.clone();
        rt.spawn(async move { requests.finish(carrier).await });
    }
}
