//! A solid-state drive from measurements.
//!
//! The flash is assumed to be parallel enough for the measured rates. The cost of a random write beyond a
//! sequential write is charged to the controller. The model therefore has the measured rates, collection
//! included, and no collection of its own (plenty of spare flash). Wear is not visible from outside within
//! minutes.

use super::{MANY, ONE, Observed, START, WRITE, WRITE_MANY, WRITE_ONE, adjusted, rate_of, slower, ssd};
use crate::library::{InvalidModel, Spec};
use crate::measure::Measure;
use crate::rate::Rate;
use crate::ssd::{FlushCost, Mapping, Pages, State};
use braid_base::{KIB, Nanos};

/// The measures of a solid-state drive.
pub(super) const WANTED: &[Measure] = &[ONE, MANY, START, WRITE, WRITE_ONE, WRITE_MANY];

const ASSUMED: &str = "channels, flash_page, program, erase, erase_block, channel_rate, buffer, spare (collection is part of \
                       the measured rates), queue_depth, trim; without writes also all parameters of writes";

/// Sequential reads in MB/s from which the interface counts as full duplex: beyond SATA.
const FULL_DUPLEX: f64 = 700.0;

pub(super) fn fit(spec: &mut Spec, seen: &Observed) -> Result<&'static str, InvalidModel> {
    let (one, many, stream) = (seen.need(ONE)?, seen.need(MANY)?, seen.need(START)?);
    let params = ssd(spec);
    params.half_duplex = stream < FULL_DUPLEX;
    params.channels = 128;
    params.flash_page = KIB * 16;
    params.channel = Rate::from_mb(2_000);
    params.suspend = None;
    params.intake = None;
    params.streams = 16;
    params.trim = true;
    params.state = State::Filled;
    params.read_rate = Rate((stream * 1.05e6).clamp(1e6, 1e12) as u64);
    params.write_rate = params.read_rate;
    // A drive that gains nothing from more requests has no queue. The busy time of a command is then unknown.
    let queue = many > 1.2 * one;
    params.queue_depth = if queue { 1_024 } else { 1 };
    let share = |of: f64, rate: f64| Nanos((of * 1e9 / rate).clamp(10.0, 1e9) as u64);
    params.command = if queue { share(1.0, many) } else { share(0.1, one) };
    params.latency = share(0.2, one);
    params.read = share(0.6, one).max(Nanos(1_000));
    params.program = Nanos::from_micros(100);
    params.erase = Nanos::ZERO;
    let update = seen.get(WRITE_MANY).map_or(Nanos::ZERO, |rate| share(1.0, rate));
    params.mapping = Mapping::Pages(no_collection(update));
    if let Some(flush) = seen.flush {
        params.flush = FlushCost::Drains(flush);
    }
    if let Some(stream) = seen.get(WRITE) {
        params.intake = Some(rate_of(WRITE.len(), 1e9 * WRITE.value(1.0) / stream));
        params.write_rate = params.write_rate.max(params.intake.unwrap_or(params.write_rate));
    }
    for _ in 0..8 {
        correct(spec, seen);
    }
    Ok(ASSUMED)
}

pub(super) fn no_collection(update: Nanos) -> Pages {
    Pages { spare: 4.0, update, map_held: 1.0, map_miss: Nanos::ZERO }
}

/// Adds the model's missing time to each parameter, by the measure that determines the parameter.
fn correct(spec: &mut Spec, seen: &Observed) {
    let second = Nanos::from_secs(1);
    let by = seen.lacks(spec, START);
    let params = ssd(spec);
    params.read_rate = slower(params.read_rate, START.len(), by);
    let by = if ssd(spec).queue_depth > 1 { seen.lacks(spec, MANY) } else { 0.0 };
    // Latency may bound reads at this depth: writes pass the same interface.
    let bytes = ssd(spec).write_rate.time_for(MANY.len());
    let most = seen.get(WRITE_MANY).map_or(second, |rate| Nanos((1e9 / rate) as u64).saturating_sub(bytes));
    let most = most.max(Nanos(10));
    ssd(spec).command = adjusted(ssd(spec).command, by, Nanos(10), most);
    if let Some(intake) = ssd(spec).intake {
        let by = seen.lacks(spec, WRITE);
        let params = ssd(spec);
        params.intake = Some(slower(intake, WRITE.len(), by));
        if by < 0.0 {
            // The interface may be the limit of writes.
            params.write_rate = slower(params.write_rate, WRITE.len(), by);
        }
    }
    let by = seen.lacks(spec, WRITE_MANY);
    if let Mapping::Pages(pages) = ssd(spec).mapping {
        let update = adjusted(pages.update, by, Nanos::ZERO, second);
        ssd(spec).mapping = Mapping::Pages(no_collection(update));
    }
    let by = seen.lacks(spec, WRITE_ONE);
    ssd(spec).latency = adjusted(ssd(spec).latency, by, Nanos::ZERO, second);
    let by = seen.lacks(spec, ONE);
    // Read time beyond the flash is the drive's latency.
    let read = ssd(spec).read;
    ssd(spec).read = adjusted(read, by, Nanos(1_000), second);
    let rest = read.0 as f64 + by - ssd(spec).read.0 as f64;
    if seen.get(WRITE_ONE).is_none() {
        ssd(spec).latency = adjusted(ssd(spec).latency, rest, Nanos::ZERO, second);
    }
}
