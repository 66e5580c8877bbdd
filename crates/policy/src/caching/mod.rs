//! What all policies that cache share: which blocks get an extra copy, which copy goes when room is needed,
//! when dirty ones are written back, and which part of the SSDs it has. Each has one place here, its settings
//! included, so that policies differ in what they decide and not in how well they do it.

mod admission;
mod eviction;
mod filter;
mod ghosts;
mod larc;
mod room;
mod s3_fifo;
mod sieve_store;
mod write_back;

pub use admission::Admission;
pub use eviction::{Eviction, LOOKED_AT};
pub use room::Room;
pub use write_back::WriteBack;

/// Settings as text, but for those that have their default value.
fn written<const N: usize>(settings: [Option<String>; N]) -> Vec<String> {
    settings.into_iter().flatten().collect()
}
