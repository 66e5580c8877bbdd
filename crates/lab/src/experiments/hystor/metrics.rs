//! Indicator metrics: the best predictor of a block's cost on the disk, by load.

use super::{HDD_ALONE, HDD_THROUGH, PAPER, email, postmark, series, test};
use crate::Prefill;
use crate::block_costs::Metric;
use crate::experiment::Bound::MoreThan;
use crate::experiment::Measure::Covered;
use crate::experiment::Published::Words;
use crate::experiment::Quantity::Ratio;
use crate::experiment::{Axis, Claim, Experiment, Origin, Series, Test, Times};
use crate::experiments::with;
use braid_base::DeviceClass;

/// Latency itself, the paper's metric, and the others.
const METRICS: [Metric; 9] = [
    Metric::Latency,
    Metric::FrequencyBySize,
    Metric::Frequency,
    Metric::RequestSize,
    Metric::SeekDistance,
    Metric::ReuseDistance,
    Metric::FrequencyTimesSeek,
    Metric::FrequencyByReuse,
    Metric::SeekBySize,
];
const FREQUENCY_BY_SIZE: &str = "frequency / request size";
const OTHERS: [&str; 7] = [
    "frequency",
    "request size",
    "seek distance",
    "reuse distance",
    "frequency x seek distance",
    "frequency / reuse distance",
    "seek distance / request size",
];

/// The same on a disk without a write cache.
const FREQUENCY_BY_SIZE_THROUGH: &str = "frequency / request size, no write cache";
const OTHERS_THROUGH: [&str; 7] = [
    "frequency, no write cache",
    "request size, no write cache",
    "seek distance, no write cache",
    "reuse distance, no write cache",
    "frequency x seek distance, no write cache",
    "frequency / reuse distance, no write cache",
    "seek distance / request size, no write cache",
];

/// Each metric under a load; `own` is the paper's metric.
const fn metrics_as(
    devices: &'static [(DeviceClass, &'static str)],
    latency: &'static str,
    own: &'static str,
    others: [&'static str; 7],
    load: &'static str,
) -> [Series; 9] {
    let mut all = [series(latency, devices, "hdd-only", load); 9];
    let mut place = 0;
    while place < all.len() {
        all[place].metric = Some(METRICS[place]);
        all[place].label = match place {
            0 => latency,
            1 => own,
            _ => others[place - 2],
        };
        place += 1;
    }
    all
}

const fn metrics(load: &'static str) -> [Series; 9] {
    metrics_as(HDD_ALONE, "latency itself", FREQUENCY_BY_SIZE, OTHERS, load)
}

const WITHOUT_CACHE: [Series; 9] = metrics_as(
    HDD_THROUGH,
    "latency itself, no write cache",
    FREQUENCY_BY_SIZE_THROUGH,
    OTHERS_THROUGH,
    email::LOAD,
);

/// At a place the metric covers more than the best of all other metrics.
const fn best(at: u32) -> Test {
    test(Ratio { measure: Covered, of: FREQUENCY_BY_SIZE, to: &OTHERS, at }, Words, MoreThan(1.0))
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

const CLAIM: Claim = Claim {
    sentence: "Frequency / request size tells best which blocks cost most, of all metrics and combinations.",
    place: "indicator metrics",
    origin: Origin::Paper,
    tests: TESTS,
    why: "",
    instead: &[],
};

/// E-mail.
pub const EMAIL: Experiment = experiment(
    "hystor/metrics-email",
    "Indicator metrics: e-mail",
    &with::<18>(&metrics(email::LOAD), &WITHOUT_CACHE),
    Times::WHOLE,
    &[Claim {
        why: "A write ends in the disk's buffer, while a read waits for the arm: cost follows the kind of a request more than its size. Instead: the disk's write cache is off. The talk, \
              however, had the caches of all devices on.",
        instead: &[
            Ratio { measure: Covered, of: FREQUENCY_BY_SIZE_THROUGH, to: &OTHERS_THROUGH, at: 10 },
            Ratio { measure: Covered, of: FREQUENCY_BY_SIZE_THROUGH, to: &OTHERS_THROUGH, at: 20 },
            Ratio { measure: Covered, of: FREQUENCY_BY_SIZE_THROUGH, to: &OTHERS_THROUGH, at: 40 },
        ],
        ..CLAIM
    }],
);

/// PostMark.
pub const POSTMARK: Experiment = experiment(
    "hystor/metrics-postmark",
    "Indicator metrics: PostMark",
    &metrics(postmark::LOAD),
    Times::WHOLE,
    &[CLAIM],
);

/// TPC-C.
pub const TPCC: Experiment = experiment(
    "hystor/metrics-tpcc",
    "Indicator metrics: TPC-C with 10 warehouses",
    &metrics("tpcc-like,warehouses=10,transactions=endless"),
    Times { warm_up: 0, measured: 600 },
    &[CLAIM],
);

/// The NetApp trace.
pub const NETAPP: Experiment = experiment(
    "hystor/metrics-netapp",
    "Indicator metrics: a file server",
    &metrics("netapp-like"),
    Times { warm_up: 0, measured: 300 },
    &[CLAIM],
);

/// dbench.
pub const DBENCH: Experiment = experiment(
    "hystor/metrics-dbench",
    "Indicator metrics: dbench",
    &metrics("dbench-like"),
    Times { warm_up: 0, measured: 60 },
    &[CLAIM],
);
