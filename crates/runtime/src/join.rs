//! Several futures at the same time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

enum Joined<F: Future> {
    Running(Pin<Box<F>>),
    Done(F::Output),
}

/// Runs futures side by side and returns their results in order. Allocates once for each future.
pub async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<Joined<F>> = futures.map(|f| Joined::Running(Box::pin(f))).collect();
    poll_fn(|cx| {
        let mut running = false;
        for one in &mut all {
            if let Joined::Running(future) = one {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *one = Joined::Done(output),
                    Poll::Pending => running = true,
                }
            }
        }
        if running { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let outputs = all.into_iter().map(|one| match one {
        Joined::Done(output) => output,
        Joined::Running(_) => unreachable!("all futures have ended"),
    });
    outputs.collect()
}
