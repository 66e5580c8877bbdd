//! Traces as users meet them: every format, bad lines, torn files, hostile bytes, conversions, and real
//! traces where they are.

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
