//! E-mail: small synchronous writes.

use super::{HDD, HYSTOR, NO_WRITE_BACK, PAPER, SIZES, SSD, all, devices, times_longer};
use crate::Prefill;
use crate::experiment::Bound::{AtMost, LessThan, Near};
use crate::experiment::Measure::{HitRatio, Time};
use crate::experiment::Published::{Number, Words};
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Bound, Claim, Experiment, Origin, Series, Times};

/// The workload.
pub const LOAD: &str = "email-like";

const SSD_16: &str = "SSD only, 16 processes";
const HDD_16: &str = "disk only, 16 processes";
/// The mailboxes and deliveries of one process, shared by sixteen.
const LOAD_16: &str = "email-like,clients=16,mailboxes=31,transactions=312";

/// The declaration.
pub const EXPERIMENT: Experiment = Experiment {
    id: "hystor/email",
    title: "E-mail: execution time and hit ratio",
    paper: &PAPER,
    place: "evaluation, Email",
    axis: SIZES,
    series: &{
        let [ssd, hdd, hystor, no_write_back] = all(LOAD);
        let ssd_16 = Series { load: LOAD_16, label: SSD_16, ..ssd };
        let hdd_16 = Series { load: LOAD_16, label: HDD_16, ..hdd };
        [ssd, hdd, hystor, no_write_back, ssd_16, hdd_16]
    },
    measures: &[Time, HitRatio],
    counting: None,
    prefill: Prefill::All,
    times: Times::WHOLE,
    jitter: &[],
    baselines: &devices(20, 18.8),
    claims: &[
        Claim {
            sentence: "The disk alone takes 18.8 times as long as the SSD alone.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HDD, &[SSD], 20, Number(18.8), Near(0.15))],
            why: "How many deliveries the authors' mail server had at the same time is not published. Instead: 16 processes, with the mailboxes and deliveries of one in all, for which the SSD \
                  works in parallel.",
            instead: &[Ratio { measure: Time, of: HDD_16, to: &[SSD_16], at: 20 }],
        },
        Claim {
            sentence: "Without a write-back area and with an SSD of 20 % it is slower than the disk alone, by 12.4 %.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(NO_WRITE_BACK, &[HDD], 20, Number(1.124), Bound::about(1.124))],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "With a small SSD it is no more than 5 % slower than the disk alone.",
            place: "ours",
            origin: Origin::Aim,
            tests: &[
                times_longer(HYSTOR, &[HDD], 20, Words, AtMost(1.05)),
                times_longer(NO_WRITE_BACK, &[HDD], 20, Words, AtMost(1.05)),
            ],
            why: "",
            instead: &[],
        },
        Claim {
            sentence: "A write-back area of 20 % behaves like a small cache, and is faster than none.",
            place: "execution time",
            origin: Origin::Paper,
            tests: &[times_longer(HYSTOR, &[NO_WRITE_BACK], 20, Words, LessThan(1.0))],
            why: "",
            instead: &[],
        },
    ],
    published: "18.8 times and 12.4 % are given as numbers; the curves are in plots.",
    calibrated: &[],
    contradictions: &[],
    differs: &[],
};
