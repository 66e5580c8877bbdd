//! Advice: what a recorded load would get from each policy and from other sizes of the SSD, with its
//! uncertainty, and whether to change anything.
//!
//! ```text
//! window.rs    the part of a recording that is simulated        volume.rs   what the volume holds, and where, before it begins
//! interval.rs  means of batches, and how sure they are          choice.rs   change, keep, or not enough to tell
//! curve.rs     latency over the size of the SSD, and its knee   ask.rs      runs the simulations
//! page.rs      the page with its pictures                       draw.rs     these
//! plan.rs      the cheapest devices that hold a target          prices.rs   what devices cost      slo.rs   the target
//! plan_page.rs its page
//! ```
//!
//! **What is simulated.** At most the last so many requests of the recording, at their own times (open loop).
//! The first half of them warms up; the second half is measured, in batches of equally many requests. All
//! rows get the same requests, so two rows are compared batch by batch: what makes a batch slow under both
//! does not count as uncertainty. The present policy and the fastest others are run several times, which
//! begin at other requests on devices of another seed: a policy that learns may end in one of several
//! layouts.
//!
//! **What it does not know.** Requests came as fast as the volume answered when it was recorded. Programs
//! that wait for answers would ask for more of a faster volume, and for less of a slower one. A forecast also
//! takes for granted that the load stays as it was.

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

pub use ask::{Advice, Question, Row, SizeCurve, SizePoint, Unfit, advise};
pub use choice::{Choice, Ruling};
pub use page::page;
pub use plan::{Dearer, Faster, Plan, PlanQuestion, Priced, plan};
pub use plan_page::plan_page;
pub use prices::{LONGEST_PRICES, Mix, Prices};
pub use slo::Slo;
pub use volume::InUse;
pub use window::Window;
