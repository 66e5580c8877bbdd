//! Certificates of NBD clients and servers.
//!
//! ```text
//! authority.rs   makes an authority, and certificates of servers and clients   files.rs   a server's files
//! ```

pub(crate) mod authority;
pub(crate) mod files;
