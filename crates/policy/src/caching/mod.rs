//! Parts shared by all caching policies: admission, eviction, write-back, and the share of the SSDs. Each
//! part has one place here, with its settings. Policies therefore differ in their decisions, and not in the
//! quality of the parts.

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

/// Returns settings as text, without defaults.
fn written<const N: usize>(settings: [Option<String>; N]) -> Vec<String> {
    settings.into_iter().flatten().collect()
}
