//! Every named model against its published figures, and against the promises of the `Model` trait.
#![forbid(unsafe_code)]

mod driver;
mod promises;
mod queues;
mod sheets;
mod wear;
