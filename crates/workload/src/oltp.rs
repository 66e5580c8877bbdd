//! What `financial1-like` and `financial2-like` share: an open loop of small requests with two kinds of locality.
//!
//! The volume is cut into areas of 10 MiB, whose popularity follows Zipf's law with the exponent at which the busiest fifth
//! gets its published share. Within an area, popularity of the places where requests begin follows Zipf's law again, with an
//! exponent that is fitted to the number of different places in the trace. The seed says which areas and places are popular. The
//! share of hits that this gives in a cache of 100 MB to 1 GB was not fitted, and comes close to what was measured with
//! the trace; the files of the two workloads say how close.
//!
//! Requests come as a Poisson process whose rate rises and falls once within the trace's duration, and in bursts: calm
//! for 9 s and a burst of 1 s on average, at `burst` times the rate [guessed]. Reads and writes have the same sizes and
//! places [assumed]; there is no sequence.

use crate::catalogue::Setting;
use crate::draw::{Scatter, Sizes, Zipf};
use crate::pace::{Pace, take_requests};
use crate::target::read_or_write;
use crate::times::{Bursts, Day, Times};
use crate::{About, Workload};
use braid_base::{BadSetting, Bytes, MIB, Nanos, Request, Rng, SECTOR, Settings};
use std::sync::Arc;

/// The figures of one trace.
pub(crate) struct Figures {
    pub requests: u64,
    pub duration: Nanos,
    /// The lowest rate of the duration, as a share of the highest.
    pub low: f64,
    /// Share of requests that the busiest fifth of the areas gets.
    pub hot20: f64,
    /// Within an area: the exponent, and where requests may begin.
    pub exponent: f64,
    pub grid: Bytes,
    /// As the public trace has them, and as Hayashi and Komoda give them.
    pub umass: Mix,
    pub hayashi: Mix,
}

/// What differs between the accounts of a trace.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    /// Requests per second.
    pub rate: u64,
    pub read: f64,
    pub sizes: &'static [(Bytes, u64)],
}

/// The settings; defaults are those of the trace.
pub(crate) const fn settings(requests: &'static str, hot20: &'static str) -> [Setting; 6] {
    [
        Setting {
            key: "figures",
            default: "umass",
            meaning: "rate, reads and sizes of the public trace, `umass`, or of Hayashi and Komoda, `hayashi`",
        },
        Setting { key: "requests", default: requests, meaning: "requests in all, or `endless`" },
        Setting {
            key: "rate",
            default: "",
            meaning: "requests per second on average, instead of the trace's",
        },
        Setting {
            key: "burst",
            default: "4",
            meaning: "rate of a burst as a multiple of the calm, 1 to 1000",
        },
        Setting {
            key: "hot20",
            default: hot20,
            meaning: "share of requests to the busiest fifth, 20% to 99.9%",
        },
        Setting { key: "span", default: "8.4GB", meaning: "bytes that are addressed" },
    ]
}

pub(crate) fn new(
    about: &About,
    figures: &Figures,
    settings: &mut Settings,
    seed: u64,
) -> Result<Workload, BadSetting> {
    let mix = match settings.take_text("figures").as_deref() {
        None | Some("umass") => figures.umass,
        Some("hayashi") => figures.hayashi,
        Some(other) => return Err(settings.bad("figures", other, "umass or hayashi")),
    };
    let requests = take_requests(settings, Some(figures.requests))?;
    let rate = settings.take_count("rate", mix.rate, 1..=1_000_000_000)?;
    let burst = settings.take_within("burst", 4.0, 1.0, 1000.0)?;
    let hot20 = settings.take_share("hot20")?.unwrap_or(figures.hot20);
    let span =
        settings.take_bytes("span", Bytes(8_400_000_000), AREA * 10..=MIB * (1 << 24))?.align_down(AREA);
    if !(0.2..=0.999).contains(&hot20) {
        return Err(settings.bad("hot20", &hot20.to_string(), "a share from 20% to 99.9%"));
    }
    let areas = span / AREA;
    let places = AREA / figures.grid;
    let bursts = Bursts { calm: 9e9, burst: 1e9, factor: burst };
    // Half-way between the lowest rate and the peak is the mean.
    let peak = rate as f64 * 2.0 / (1.0 + figures.low);
    let times = Times::new(peak).with_day(Day { length: figures.duration.0 as f64, low: figures.low });
    let pace = Pace::open(requests, times.with_bursts(bursts));
    let law = Arc::new(Law {
        span,
        grid: figures.grid,
        read: mix.read,
        sizes: Sizes::new(mix.sizes),
        areas: Zipf::new(areas, Zipf::exponent_for(areas, 0.2, hot20)),
        places: Zipf::new(places, figures.exponent),
        area_order: Scatter::new(areas, &mut Rng::new(!seed)),
        place_order: Scatter::new(places, &mut Rng::new(!seed ^ 1)),
        places_per_area: places,
    });
    Ok(Workload::new(about.name, span, requests, move || {
        pace.load(seed, |_, rng| Oltp { law: law.clone(), rng })
    }))
}

/// What is more or less popular as a whole: the smaller page of Hayashi and Komoda, to whole MiB.
const AREA: Bytes = Bytes(10 << 20);

struct Law {
    span: Bytes,
    grid: Bytes,
    read: f64,
    sizes: Sizes,
    areas: Zipf,
    places: Zipf,
    area_order: Scatter,
    place_order: Scatter,
    places_per_area: u64,
}

struct Oltp {
    law: Arc<Law>,
    rng: Rng,
}

impl Iterator for Oltp {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let (law, rng) = (&*self.law, &mut self.rng);
        let area = law.area_order.place(law.areas.draw(rng));
        // The same order in every area, begun at another place in each.
        let turned = law.place_order.place(law.places.draw(rng)) + area * TURN % law.places_per_area;
        let place = if turned < law.places_per_area { turned } else { turned - law.places_per_area };
        let len = law.sizes.draw(rng);
        let offset = (AREA * area + law.grid * place).min(law.span - len);
        Some(Request { op: read_or_write(law.read, rng), offset, len })
    }
}

/// A prime, so that areas begin at different places.
const TURN: u64 = 7919;

const _: () = assert!(AREA.0.is_multiple_of(SECTOR.0));
