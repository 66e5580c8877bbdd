//! `websearch-like`: after the block trace WebSearch1 of a search engine (UMass Trace Repository, Storage
//! Performance Council). The workload is a substitute, not the trace.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | requests | 1,055,448 | published counts of the file: RelStorage, notes on cache simulations |
//! | reads | 1,055,236, 99.98 % | same |
//! | mean size | 15.05 KB | paper: Zhang et al., "Lazy-RTGC", ACM TODAES, table V |
//! | sizes | 8 to 32 KiB by steps of 8 KiB | memory; the shares here are guessed, their mean is the paper's |
//! | requests per second | 335 | memory |
//! | addressed space | 16.7 GB | memory |
//! | different places | 480,446 | published counts, as above |
//!
//! The start of a request is drawn uniformly from 569,000 places, scattered on a grid of 8 KiB. With 569,000
//! places, the number of different places is the trace's. LRU caches of 100 MB, 512 MB and 1 GiB then hit 1,
//! 6 and 12 %. Measured with the trace, the caches hit 0.7, 4 and 19 % (RelStorage's notes): the blocks of a
//! search engine hardly differ in popularity. Arrivals are a Poisson process [assumed].

use crate::draw::{Scatter, Sizes};
use crate::pace::{Pace, take_requests};
use crate::target::read_or_write;
use crate::times::Times;
use crate::{About, Setting, Workload};
use braid_base::{BadSetting, Bytes, GIB, Request, Rng, Settings};
use std::sync::Arc;

pub(crate) const ABOUT: About = About {
    name: "websearch-like",
    summary: "random reads of a search engine, with the published statistics of the trace WebSearch1",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "requests", default: "1055448", meaning: "requests in all, or `endless`" },
    Setting { key: "rate", default: "335", meaning: "requests per second, as a Poisson process" },
    Setting { key: "span", default: "16.7GB", meaning: "bytes that are addressed" },
    Setting {
        key: "touched",
        default: "27.9%",
        meaning: "share of the places, 8 KiB apart, that are ever read",
    },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let requests = take_requests(settings, Some(1_055_448))?;
    let rate = settings.take_count("rate", 335, 1..=1_000_000_000)?;
    let span =
        settings.take_bytes("span", Bytes(16_700_000_000), GRID * 16..=GIB * (1 << 14))?.align_down(GRID);
    let touched = settings.take_share("touched")?.unwrap_or(0.279);
    let places = span / GRID;
    let touched = ((places as f64 * touched).round() as u64).clamp(1, places);
    let pace = Pace::open(requests, Times::new(rate as f64));
    let sizes = Arc::new(Sizes::new(SIZES));
    let load = move || {
        let order = Scatter::new(places, &mut Rng::new(!seed));
        pace.load(seed, |_, rng| WebSearch { span, touched, order: order.clone(), sizes: sizes.clone(), rng })
    };
    Ok(Workload::new(ABOUT.name, span, requests, load))
}

/// Distance between the places at which requests begin.
const GRID: Bytes = Bytes(8 << 10);

/// 15.05 KiB on average.
const SIZES: &[(Bytes, u64)] =
    &[(Bytes(8 << 10), 4_500), (Bytes(16 << 10), 3_000), (Bytes(24 << 10), 1_688), (Bytes(32 << 10), 812)];

const READ: f64 = 1_055_236.0 / 1_055_448.0;

struct WebSearch {
    span: Bytes,
    touched: u64,
    order: Scatter,
    sizes: Arc<Sizes>,
    rng: Rng,
}

impl Iterator for WebSearch {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let len = self.sizes.draw(&mut self.rng);
        let place = self.order.place(self.rng.below(self.touched));
        let offset = (GRID * place).min(self.span - len);
        Some(Request { op: read_or_write(READ, &mut self.rng), offset, len })
    }
}
