//! `braid web`: dashboard, API and metrics of all volumes of this machine, over HTTP.
//!
//! A process apart from the daemons. The process asks each daemon through its admin socket, at most once in
//! a second for all readers together. A slow browser or a crash here never reaches a volume, and a silent
//! daemon delays only the report of its own volume.
//!
//! ```text
//! server    accepted connections, limits, signals
//! api       addresses: JSON, health, metrics, changes
//! events    a report each second for each open page
//! dashboard the state shared by all requests
//! readers   open pages that wait for events
//! page      the files of the dashboard
//! access    host, token, origin, headers of all answers
//! metrics   OpenMetrics, made at the scrape
//! verdict   a report as a sentence: is the data safe
//! history   the last hour and day of the devices
//! alerts    what needs the owner, with its beginning and end
//! advice    what other policies would give: runs `braid advise`
//! survey    reports of all volumes, shared by all readers
//! daemons   the trait over the admin client, with a fake in the tests
//! ```
#![forbid(unsafe_code)]

mod access;
mod advice;
mod alerts;
mod api;
mod daemons;
mod dashboard;
mod events;
mod history;
mod metrics;
mod page;
mod readers;
mod server;
mod survey;
mod verdict;

pub use access::{Access, Token};
pub use api::router;
pub use daemons::Daemons;
pub use server::serve;
