//! Indicator metrics: the best predictor of a block's cost on the disk, by load.

use super::{HDD_ALONE, PAPER, email, postmark, series, test};
use crate::Prefill;
use crate::block_costs::Metric;
use crate::experiment::Bound::MoreThan;
use crate::experiment::Measure::Covered;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Series, Test, Times};

const LATENCY: &str = "latency itself";
const FREQUENCY_BY_SIZE: &str = "frequency / request size";
const OTHERS: &[&str] = &[
    "frequency",
    "request size",
    "seek distance",
    "reuse distance",
    "frequency x seek distance",
    "frequency / reuse distance",
    "seek distance / request size",
];

const fn by(label: &'static str, metric: Metric, load: &'static str) -> Series {
    Series { metric: Some(metric), ..series(label, HDD_ALONE, "hdd-only", load) }
}

const fn metrics(load: &'static str) -> [Series; 9] {
    [
        by(LATENCY, Metric::Latency, load),
        by(FREQUENCY_BY_SIZE, Metric::FrequencyBySize, load),
        by(OTHERS[0], Metric::Frequency, load),
        by(OTHERS[1], Metric::RequestSize, load),
        by(OTHERS[2], Metric::SeekDistance, load),
        by(OTHERS[3], Metric::ReuseDistance, load),
        by(OTHERS[4], Metric::FrequencyTimesSeek, load),
        by(OTHERS[5], Metric::FrequencyByReuse, load),
        by(OTHERS[6], Metric::SeekBySize, load),
    ]
}

/// At a place the metric covers more than the best of all other metrics.
const fn best(at: u32) -> Test {
    test(Ratio { measure: Covered, of: FREQUENCY_BY_SIZE, to: OTHERS, at }, Words, MoreThan(1.0))
}

const TESTS: &[Test] = &[best(10), best(20), best(40)];

const fn experiment(
    id: &'static str,
    title: &'static str,
    series: &'static [Series],
    times: Times,
    claims: &'static [Claim],
) -> Experiment {
    Experiment {
        id,
        title,
        paper: &PAPER,
        place: "indicator metrics",
        axis: Axis::Numbers { label: "blocks, % of those accessed", places: &[5, 10, 20, 40, 60, 80] },
        series,
        measures: &[Covered],
        counting: None,
        prefill: Prefill::All,
        times,
        jitter: &[],
        baselines: &[],
        claims,
        published: "Curves in a plot, of TPC-H alone; that the metric is consistently the best is said in words.",
        calibrated: &[],
        contradictions: &[],
        differs: &[
            "The whole of TPC-H, the load of the talk's plot, is not among Braid's; in its query 1 all requests are alike, and no metric can tell them apart.",
            "A request's latency is divided among its blocks of 4 KiB.",
        ],
    }
}

const fn claim(why: &'static str) -> Claim {
    Claim {
        sentence: "Frequency / request size tells best which blocks cost most, of all metrics and combinations.",
        place: "indicator metrics",
        origin: Origin::Paper,
        tests: TESTS,
        why,
        instead: &[],
    }
}

/// E-mail.
pub const EMAIL: Experiment = experiment(
    "hystor/metrics-email",
    "Indicator metrics: e-mail",
    &metrics(email::LOAD),
    Times::WHOLE,
    &[claim(
        "0.77 to 0.85 of what the best other metric covers, which is frequency alone for a tenth of the blocks, and from a fifth on reuse distance: nearly each write is followed by \
         a flush that waits for a turn of the disk, so that a long request costs no more than a short one.",
    )],
);

/// PostMark.
pub const POSTMARK: Experiment = experiment(
    "hystor/metrics-postmark",
    "Indicator metrics: PostMark",
    &metrics(postmark::LOAD),
    Times::WHOLE,
    &[claim("")],
);

/// TPC-C.
pub const TPCC: Experiment = experiment(
    "hystor/metrics-tpcc",
    "Indicator metrics: TPC-C with 10 warehouses",
    &metrics("tpcc-like,warehouses=10,transactions=endless"),
    Times { warm_up: 0, measured: 600 },
    &[claim("")],
);

/// The NetApp trace.
pub const NETAPP: Experiment = experiment(
    "hystor/metrics-netapp",
    "Indicator metrics: a file server",
    &metrics("netapp-like"),
    Times { warm_up: 0, measured: 300 },
    &[claim("")],
);

/// dbench.
pub const DBENCH: Experiment = experiment(
    "hystor/metrics-dbench",
    "Indicator metrics: dbench",
    &metrics("dbench-like"),
    Times { warm_up: 0, measured: 60 },
    &[claim("")],
);
