//! Rules for the source itself, as tests: `cargo test -p braid-checks`.
//!
//! ```text
//! documents.rs  links of the documents, and how long these may be
//! language.rs   terms instead of pronouns in comments, and columns of their lines
//! layers.rs     imports allowed between crates: the table, and the comparison with the crate graph
//! licences.rs   allowed licences of linked crates
//! names.rs      a type's name once in a crate, a verb once among owners, few of Core; no tuple parameters
//! notices.rs    licence texts of linked crates, for a package: the program `notices` prints them
//! rooms.rs      imports allowed between the rooms of a crate, and no circles of files
//! style.rs      length of files, names of rooms, marks of open work
//! ```
#![forbid(unsafe_code)]

mod documents;
mod language;
mod layers;
mod licences;
mod names;
mod notices;
mod rooms;
mod style;
mod workspace;

pub use documents::documents;
pub use language::language;
pub use layers::layering;
pub use licences::licensing;
pub use names::{names, parameters, verbs};
pub use notices::{linked, notices};
pub use rooms::rooms;
pub use style::style;
pub use workspace::{metadata, root};
