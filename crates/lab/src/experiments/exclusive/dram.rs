//! The DRAM cache of sections 2.4 and 4.2, of unstated size in the paper: figures 5 and 7 at one split of the
//! SSDs, with caches from none to a twentieth of the data.

use super::{CLOSE, FromPlace, fig5, fig7, other_axis, pairs_at};
use crate::experiment::{Axis, Experiment};

/// The declaration. The data is 5,000 MiB.
pub const EXPERIMENT: Experiment = other_axis(
    "exclusive/dram",
    "A DRAM cache before both methods, with an SSD rate of 30 % and a cache rate of 80 %",
    "sections 2.4 and 4.2",
    Axis::Numbers { label: "DRAM, MiB", places: &[0, 25, 50, 100, 250] },
    &pairs_at([fig5::LOAD, fig7::LOAD], Some("{x}MiB")),
    &FromPlace::<25>::claims(
        "Behind any DRAM cache, the combination is faster with little locality (Financial 1).",
        "Behind any DRAM cache, the proposed method is faster with much locality (Financial 2).",
    ),
    CLOSE,
);
