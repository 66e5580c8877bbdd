//! The life of a guest's request, a verb in each file.

mod read;
mod write;
mod zero;
