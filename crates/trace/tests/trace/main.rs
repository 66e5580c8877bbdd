//! Traces as met by users: every format, bad lines, torn files, hostile bytes, conversions, and real traces
//! if present.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod compact;
mod convert;
mod devices;
mod foreign;
mod formats;
mod hostile;
mod measures;
mod parts;
mod real;
mod srt;
mod texts;
