//! Every named model against its published figures, and against the promises of the `Model` trait.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod fits;
mod groups;
mod promises;
mod queues;
mod served;
mod sheets;
mod texts;
mod wear;
