//! The DRAM cache of sections 2.4 and 4.2, of unstated size in the paper: figures 5 and 7 at one split of the
//! SSDs, with caches from none to a twentieth of the data.

use super::{CLOSE, F1, F2, fig5, fig7, other_axis, pairs_at};
use crate::experiment::Bound::LessThan;
use crate::experiment::Measure::VolumeLatency;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::WorstRatio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Test};

/// The declaration. The data is 5,000 MiB.
pub const EXPERIMENT: Experiment = other_axis(
    "exclusive/dram",
    "A DRAM cache before both methods, with an SSD rate of 30 % and a cache rate of 80 %",
    "sections 2.4 and 4.2",
    Axis::Numbers { label: "DRAM, MiB", places: &[0, 25, 50, 100, 250] },
    &pairs_at([fig5::LOAD, fig7::LOAD], Some("{x}MiB")),
    &[
        Claim {
            sentence: "Behind any DRAM cache, the combination is faster with little locality (Financial 1).",
            place: "section 5.1",
            origin: Origin::Repeat,
            tests: &[Test {
                quantity: WorstRatio {
                    measure: VolumeLatency,
                    of: F1.existing[2],
                    to: &[F1.proposed[2]],
                    from: 25,
                },
                published: Words,
                bound: LessThan(1.0),
            }],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "Behind any DRAM cache, the proposed method is faster with much locality (Financial 2).",
            place: "section 5.1",
            origin: Origin::Repeat,
            tests: &[Test {
                quantity: WorstRatio {
                    measure: VolumeLatency,
                    of: F2.proposed[2],
                    to: &[F2.existing[2]],
                    from: 25,
                },
                published: Words,
                bound: LessThan(1.0),
            }],
            why: "",
            instead: &[],
        },
    ],
    CLOSE,
);
