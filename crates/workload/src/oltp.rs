//! Common part of `financial1-like` and `financial2-like`: an open loop of small requests with two kinds of
//! locality.
//!
//! The volume is divided into areas of 10 MiB. Their popularity follows Zipf's law, with the exponent at
//! which the busiest fifth gets its published share. Within an area, the popularity of places (offsets at
//! which requests begin) follows Zipf's law again. This exponent is fitted to the number of different places
//! in the trace. The seed determines the popular areas and places. The resulting hit ratio of a cache of 100
//! MB to 1 GB was not fitted, but is close to the hit ratio measured with the trace. The files of the two
//! workloads give both numbers.
//!
//! Requests arrive as a Poisson process. Its rate rises and falls once within the trace's duration. Bursts
//! alternate with calm: calm for 9 s and a burst of 1 s on average, at `burst` times the rate [guessed].
//! Reads and writes have the same sizes and places [assumed]. There are no sequential runs.
//!
//! With `drift`, the popular areas change: each hour, `drift` areas in turn become the most popular area. An
//! area rises through all ranks to the first, and then falls to the last. The figures of the trace do not
//! cover drift [assumed].
//!
//! `volumes` puts several volumes side by side, each with its own popular areas and bursts, like a storage
//! system that serves a trace from each of its RAID groups.

use crate::catalogue::Setting;
use crate::draw::{Scatter, Sizes, Zipf};
use crate::pace::{DAY, Pace, take_requests};
use crate::side_by_side::SideBySide;
use crate::target::read_or_write;
use crate::times::{Bursts, Day, Times};
use crate::{About, Load, Workload};
use braid_base::{BadSetting, Bytes, MIB, Nanos, Request, Rng, SECTOR, Settings};
use std::sync::Arc;

/// Figures of one trace.
pub(crate) struct TraceFigures {
    pub requests: u64,
    pub duration: Nanos,
    /// Lowest rate within the duration, as a share of the highest rate.
    pub low: f64,
    /// Share of requests to the busiest fifth of the areas.
    pub hot20: f64,
    /// Exponent of Zipf's law within an area; requests begin at multiples of `grid`.
    pub exponent: f64,
    pub grid: Bytes,
    /// Figures of the public trace, and figures of Hayashi and Komoda.
    pub umass: AccountMix,
    pub hayashi: AccountMix,
}

/// Figures that differ between the accounts of a trace.
#[derive(Clone, Copy)]
pub(crate) struct AccountMix {
    /// Requests per second.
    pub rate: u64,
    pub read: f64,
    pub sizes: &'static [(Bytes, u64)],
}

/// Returns the settings, with defaults from the trace.
pub(crate) const fn settings(requests: &'static str, hot20: &'static str) -> [Setting; 13] {
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
        Setting {
            key: "within",
            default: "",
            meaning: "exponent of the popularity of places within an area, 0 (all alike) to 4",
        },
        Setting { key: "span", default: "8.4GB", meaning: "bytes that are addressed, of each volume" },
        Setting { key: "read", default: "", meaning: "share of reads, instead of the trace's" },
        Setting {
            key: "grid",
            default: "",
            meaning: "requests begin at its multiples; a power of two, 512 B to 64 KiB",
        },
        Setting { key: "day", default: "", meaning: "time in which the rate rises and falls once" },
        Setting {
            key: "drift",
            default: "0",
            meaning: "areas of 10 MiB that become the most popular one, in turn, in an hour, 0 to 1000000",
        },
        Setting {
            key: "volumes",
            default: "1",
            meaning: "volumes side by side, each with all of this load, 1 to 64",
        },
        Setting { key: "stripe", default: "10MiB", meaning: "bytes of one volume before those of the next" },
    ]
}

pub(crate) fn new(
    about: &About,
    figures: &TraceFigures,
    settings: &mut Settings,
    seed: u64,
) -> Result<Workload, BadSetting> {
    let mix = match settings.take_text("figures").as_deref() {
        None | Some("umass") => figures.umass,
        Some("hayashi") => figures.hayashi,
        Some(other) => return Err(settings.bad("figures", other, "umass or hayashi")),
    };
    let requests = take_requests(settings, Some(figures.requests))?;
    let read = settings.take_share("read")?.unwrap_or(mix.read);
    let grid = settings.take_bytes("grid", figures.grid, SECTOR..=LARGEST_GRID)?;
    let day = settings.take_time("day", figures.duration, Nanos::from_secs(1)..=DAY)?;
    let drift = settings.take_within("drift", 0.0, 0.0, 1e6)?;
    let volumes = settings.take_count("volumes", 1, 1..=64)?;
    let stripe = settings.take_bytes("stripe", AREA, AREA..=AREA * 1024)?;
    let rate = settings.take_count("rate", mix.rate, 1..=1_000_000_000)?;
    let burst = settings.take_within("burst", 4.0, 1.0, 1000.0)?;
    let hot20 = settings.take_share("hot20")?.unwrap_or(figures.hot20);
    let within = settings.take_within("within", figures.exponent, 0.0, 4.0)?;
    let span =
        settings.take_bytes("span", Bytes(8_400_000_000), AREA * 10..=MIB * (1 << 24))?.align_down(AREA);
    if !(0.2..=0.999).contains(&hot20) {
        return Err(settings.bad("hot20", &hot20.to_string(), "a share from 20% to 99.9%"));
    }
    if !grid.0.is_power_of_two() {
        return Err(settings.bad("grid", &grid.to_string(), "a power of two"));
    }
    if volumes > 1 && !span.is_aligned(stripe) {
        return Err(settings.bad("span", &span.to_string(), &format!("a multiple of the stripe, {stripe}")));
    }
    let areas = span / AREA;
    let places = AREA / grid;
    let bursts = Bursts { calm: 9e9, burst: 1e9, factor: burst };
    // The mean rate is half-way between the lowest rate and the peak.
    let peak = rate as f64 * 2.0 / (1.0 + figures.low);
    let times = Times::new(peak).with_day(Day { length: day.0 as f64, low: figures.low });
    let pace = Pace::open(requests, times.with_bursts(bursts));
    let law = Arc::new(Law {
        span,
        grid,
        read,
        sizes: Sizes::new(mix.sizes),
        areas: Zipf::new(areas, Zipf::exponent_for(areas, 0.2, hot20)),
        places: Zipf::new(places, within),
        places_per_area: places,
        drift: drift / 3600.0 / rate as f64,
    });
    let all = requests.map(|requests| requests * volumes);
    Ok(Workload::new(about.name, span * volumes, all, move || {
        let load = |volume: u64| {
            let seed = seed.wrapping_add(volume << 32);
            pace.load(seed, |_, rng| Oltp::new(law.clone(), areas, seed, rng))
        };
        let open = |load| match load {
            Load::Open(arrivals) => arrivals,
            Load::Closed(_) => unreachable!("the pace is that of an open loop"),
        };
        match volumes {
            1 => load(0),
            _ => Load::Open(Box::new(SideBySide::new((0..volumes).map(load).map(open).collect(), stripe))),
        }
    }))
}

/// Unit of popularity: the smaller page of Hayashi and Komoda, in whole MiB.
const AREA: Bytes = Bytes(10 << 20);
/// Limit of `grid`, the distance between places.
const LARGEST_GRID: Bytes = Bytes(64 << 10);

struct Law {
    span: Bytes,
    grid: Bytes,
    read: f64,
    sizes: Sizes,
    areas: Zipf,
    places: Zipf,
    places_per_area: u64,
    /// Ranks that areas rise with each request.
    drift: f64,
}

struct Oltp {
    law: Arc<Law>,
    area_order: Scatter,
    place_order: Scatter,
    /// Requests so far.
    count: u64,
    rng: Rng,
}

impl Oltp {
    /// Creates the stream of one volume. The seed determines the popular areas and places.
    fn new(law: Arc<Law>, areas: u64, seed: u64, rng: Rng) -> Oltp {
        let area_order = Scatter::new(areas, &mut Rng::new(!seed));
        let place_order = Scatter::new(law.places_per_area, &mut Rng::new(!seed ^ 1));
        Oltp { law, area_order, place_order, count: 0, rng }
    }
}

impl Iterator for Oltp {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let (law, rng) = (&*self.law, &mut self.rng);
        let risen = (self.count as f64 * law.drift) as u64;
        self.count += 1;
        let area = self.area_order.place((law.areas.draw(rng) + risen) % self.area_order.len());
        // The order of places is the same in every area, with a different start in each area.
        let turned = self.place_order.place(law.places.draw(rng)) + area * TURN % law.places_per_area;
        let place = if turned < law.places_per_area { turned } else { turned - law.places_per_area };
        let len = law.sizes.draw(rng);
        let offset = (AREA * area + law.grid * place).min(law.span - len);
        Some(Request { op: read_or_write(law.read, rng), offset, len })
    }
}

/// A prime, so that areas start at different places.
const TURN: u64 = 7919;

const _: () = assert!(AREA.0.is_multiple_of(SECTOR.0));
