//! Advice: forecasts for a recorded load under each policy and with other sizes of the SSD, with their
//! uncertainty, and whether to change anything.
//!
//! ```text
//! window.rs    simulated part of a recording
//! volume.rs    contents and layout of the volume before
//! interval.rs  means of batches with confidence
//! choice.rs    change, keep, or too little evidence
//! curve.rs     latency over the size of the SSD, its knee
//! ask.rs       runs the simulations
//! page.rs      page with pictures
//! draw.rs      pictures
//! plan.rs      cheapest devices for a target
//! prices.rs    prices of devices
//! slo.rs       targets
//! ```
//!
//! **Simulated part.** A limited number of the last requests of the recording, at their own times (open
//! loop). The first half is the warm-up; the second half is measured, in batches of equally many requests.
//! All rows get the same requests, so two rows are compared batch by batch: slowness of a batch under both
//! does not count as uncertainty. The present policy and the fastest other policies are run several times.
//! These runs begin at other requests on devices of another seed, because a learning policy may end in one of
//! several layouts.
//!
//! **Limits.** The recorded requests arrived as fast as the recorded volume answered. Programs that wait for
//! answers would ask a faster volume for more, and a slower volume for less. A forecast also assumes that the
//! load does not change.

mod ask;
mod choice;
mod curve;
mod draw;
mod interval;
mod page;
mod plan;
mod plan_page;
mod prices;
mod slo;
mod volume;
mod window;

pub use ask::{Advice, Forecast, Question, SizeCurve, SizePoint, Unfit, advise};
pub use choice::{Choice, ChoiceRuling};
pub use page::page;
pub use plan::{Dearer, Faster, Plan, PlanQuestion, Priced, plan};
pub use plan_page::plan_page;
pub use prices::{LONGEST_PRICES, Mix, Prices};
pub use slo::Slo;
pub use volume::InUse;
pub use window::Window;
