//! Hostile bytes for all readers of untrusted bytes: devices, network, command line, kernel.
//!
//! A [`Target`] is a function of bytes that must not panic on any bytes. Two drivers call targets:
//!
//! - `tests/mutations.rs`, on stable Rust, within `make test`: valid bytes, damaged at random by seed.
//! - `fuzz/`, with cargo-fuzz on nightly Rust, by `make fuzz`: guided by the coverage of the code.
//!
//! If a checksum guards a decoder, the target makes the checksum fit after the damage. Otherwise only the
//! checksum would ever be tested, and a checksum does not stop an attacker, since an attacker can compute
//! checksums.
#![forbid(unsafe_code)]

mod disk;
mod door;
mod file_systems;
mod mutate;
mod remote;
mod text;
mod tls;
mod trace;
mod vhost;
mod volume;
mod words;

pub use mutate::mutate;

use disk::{journal, page, pending_log, sums, superblock};

/// A reader of bytes.
pub struct Target {
    /// Name for commands.
    pub name: &'static str,
    /// Reads the bytes; panics on a fault.
    pub run: fn(&[u8]),
    /// Accepted bytes, as a start.
    pub valid: fn() -> Vec<Vec<u8>>,
    /// Inputs that `make test` tries: about a second's worth.
    pub tries: u64,
}

/// All readers.
pub const TARGETS: &[Target] = &[
    Target { name: "superblock", run: superblock::header, valid: superblock::headers, tries: 50_000 },
    Target {
        name: "device_table",
        run: superblock::device_table,
        valid: superblock::device_tables,
        tries: 50_000,
    },
    Target { name: "policy_state", run: superblock::policy, valid: superblock::policies, tries: 50_000 },
    Target { name: "journal", run: journal::batch, valid: journal::batches, tries: 50_000 },
    Target { name: "proof", run: journal::proof, valid: journal::proofs, tries: 50_000 },
    Target { name: "witness", run: journal::witness, valid: journal::witnesses, tries: 50_000 },
    Target {
        name: "recent_entries",
        run: journal::recent_entries,
        valid: journal::recent_lists,
        tries: 50_000,
    },
    Target { name: "epoch_journal", run: journal::epoch, valid: journal::epochs, tries: 50_000 },
    Target { name: "map_page", run: page::map_page, valid: page::map_pages, tries: 20_000 },
    Target { name: "map_summary", run: page::map_summary, valid: page::map_summaries, tries: 20_000 },
    Target { name: "intent_page", run: page::intent_page, valid: page::intent_pages, tries: 20_000 },
    Target { name: "cache_page", run: page::cache_page, valid: page::cache_pages, tries: 50_000 },
    Target { name: "dirty_spans", run: page::dirty_spans, valid: page::all_dirty_spans, tries: 20_000 },
    Target { name: "pending_log", run: pending_log::log, valid: pending_log::logs, tries: 20_000 },
    Target { name: "sums", run: sums::table, valid: sums::tables, tries: 20_000 },
    Target { name: "volume", run: volume::open, valid: volume::damages, tries: 300 },
    Target { name: "nbd_handshake", run: door::nbd_handshake, valid: door::handshakes, tries: 100_000 },
    Target { name: "nbd_request", run: door::nbd_request, valid: door::requests, tries: 200_000 },
    Target {
        name: "nbd_server_handshake",
        run: remote::nbd_server_handshake,
        valid: remote::server_handshakes,
        tries: 100_000,
    },
    Target { name: "nbd_reply", run: remote::nbd_reply, valid: remote::replies, tries: 100_000 },
    Target { name: "nbd_tls", run: tls::stranger, valid: tls::hellos, tries: 3_000 },
    Target { name: "fuse_request", run: door::fuse_request, valid: door::fuse_requests, tries: 200_000 },
    Target { name: "vhost_request", run: vhost::request, valid: vhost::requests, tries: 20_000 },
    Target { name: "ublk_request", run: door::ublk_request, valid: door::ublk_requests, tries: 200_000 },
    Target { name: "quantity", run: text::quantity, valid: text::quantities, tries: 200_000 },
    Target { name: "policy", run: text::policy, valid: text::policies, tries: 100_000 },
    Target { name: "file_systems", run: file_systems::scan, valid: file_systems::superblocks, tries: 3_000 },
    Target { name: "model", run: text::model, valid: text::models, tries: 100_000 },
    Target { name: "trace", run: trace::trace, valid: trace::traces, tries: 20_000 },
    Target { name: "command_line", run: words::command_line, valid: words::command_lines, tries: 200_000 },
    Target { name: "admin_request", run: words::admin_request, valid: words::admin_requests, tries: 200_000 },
];

/// Returns the target of a name.
///
/// # Panics
/// If no target has the name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target is in the table")
}
