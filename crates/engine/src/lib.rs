//! The volume: one block device out of several, whose copies a policy places.

mod error;
mod export;

pub use error::{Error, ErrorKind, Result};
pub use export::{Allocation, Durability, Export, Zeroing};
