//! Writes in a span with a durable intent.

use super::State;
use braid_format::SpanId;
use braid_runtime::Runtime;
use std::cell::RefCell;

/// A write in a span with a durable intent, which no copy misses. The write ends when the value is dropped.
#[must_use]
pub(crate) struct IntendedWrite<'a, R: Runtime> {
    pub rt: &'a R,
    pub state: &'a RefCell<State>,
    pub span: SpanId,
}

impl<R: Runtime> Drop for IntendedWrite<'_, R> {
    fn drop(&mut self) {
        self.state.borrow_mut().behind.end_write(self.span, None, self.rt.now());
    }
}
