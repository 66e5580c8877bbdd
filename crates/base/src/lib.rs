//! Types shared by all layers: units, ids, requests, settings and seeded random numbers.
//!
//! Nothing here does I/O, allocates on a request's path or knows another crate. A quantity carries its unit
//! in its type, so an offset in bytes cannot be mistaken for a slot number or a duration.
#![forbid(unsafe_code)]

mod bytes;
mod ids;
mod nanos;
mod quantity;
mod request;
mod rng;
mod settings;

pub use bytes::{Bytes, GIB, KIB, MIB, SECTOR, TIB};
pub use ids::{BlockId, DeviceClass, DeviceId, ExtentId, NodeId, Slot};
pub use nanos::Nanos;
pub use quantity::{ParseQuantityError, written};
pub use request::{Arrival, Op, Request};
pub use rng::Rng;
pub use settings::{BadSetting, Settings};
