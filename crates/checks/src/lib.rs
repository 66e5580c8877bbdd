//! Rules for the source itself, as tests: `cargo test -p braid-checks`.
//!
//! ```text
//! documents.rs  links of the documents, and how long these may be
//! layers.rs     which crate may import which: the table, and the comparison with the crate graph
//! licences.rs   under which licences everything that is linked may stand
//! names.rs      one definition of a type's name in a crate; no tuple parameters
//! rooms.rs      which room of a crate may import which, and no circles of files
//! style.rs      length of files, names of rooms, what is left to do
//! ```
#![forbid(unsafe_code)]

mod documents;
mod layers;
mod licences;
mod names;
mod rooms;
mod style;
mod workspace;

pub use documents::documents;
pub use layers::layering;
pub use licences::licensing;
pub use names::{names, parameters};
pub use rooms::rooms;
pub use style::style;
pub use workspace::{metadata, root};
