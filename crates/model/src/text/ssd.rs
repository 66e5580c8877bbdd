//! The fields of a solid-state drive.

use super::fields::Fields;
use crate::ssd::{Blocks, FlushCost, Mapping, Pages, Params, State};
use braid_base::{Bytes, GIB, KIB, MIB, Nanos, SECTOR};
use std::ops::RangeInclusive;

pub(super) fn fields(params: &mut Params, f: &mut impl Fields) {
    flash(params, f);
    interface(params, f);
    params.mapping = mapping(params.mapping, f);
    params.state = state(params.state, f);
}

const TIMES: RangeInclusive<Nanos> = Nanos::ZERO..=Nanos::from_secs(10);
const SOME_TIME: RangeInclusive<Nanos> = Nanos(1)..=Nanos::from_secs(10);

fn flash(params: &mut Params, f: &mut impl Fields) {
    params.channels = f.count(
        "channels",
        params.channels.into(),
        1..=1_024,
        "Units that read or program one flash page at a time: dies, or as many as the figures need",
    ) as u32;
    let pages = SECTOR..=MIB;
    params.flash_page = f.size("flash_page", params.flash_page, pages, "Unit of reads and programs");
    params.read = f.time("read", params.read, SOME_TIME, "From the cells of a flash page to its register");
    params.program = f.time("program", params.program, SOME_TIME, "From the register to the cells");
    params.erase_block = f.size("erase_block", params.erase_block, KIB * 4..=GIB, "Unit of erasure");
    params.erase = f.time("erase", params.erase, TIMES, "Time of an erasure");
    params.suspend = f.time_or_none(
        "suspend",
        params.suspend,
        TIMES,
        "Time until a program or an erasure makes way for a read",
    );
    params.channel = f.rate("channel_rate", params.channel, "Between a register and the controller");
}

fn interface(params: &mut Params, f: &mut impl Fields) {
    params.read_rate = f.rate("read_rate", params.read_rate, "Host interface: bytes read");
    params.write_rate = f.rate("write_rate", params.write_rate, "Host interface: bytes written");
    params.half_duplex = f.flag(
        "half_duplex",
        params.half_duplex,
        "Whether reads and writes share it in time (SATA) or not (PCIe)",
    );
    params.command = f.time(
        "command",
        params.command,
        SOME_TIME,
        "Busy time of interface and controller for each command: bounds the request rate",
    );
    params.latency = f.time("latency", params.latency, TIMES, "Additional time of each command");
    params.intake = f.rate_or_none(
        "intake",
        params.intake,
        "The rate at which the controller empties the write buffer, if the flash could take more",
    );
    params.buffer = f.size("buffer", params.buffer, Bytes::ZERO..=GIB * 16, "Memory for writes");
    params.flush = flush(params.flush, f);
    params.queue_depth = f.count(
        "queue_depth",
        params.queue_depth as u64,
        1..=65_536,
        "Number of requests in the drive; the others wait outside",
    ) as usize;
    params.read_ahead = f.flag(
        "read_ahead",
        params.read_ahead,
        "Whether the drive reads ahead of a sequential reader, whose requests then cost the interface only",
    );
    params.streams = f.count(
        "streams",
        params.streams as u64,
        1..=16,
        "Number of sequential writers that the drive distinguishes",
    ) as usize;
    params.trim = f.flag("trim", params.trim, "Whether discards free flash");
}

fn flush(flush: FlushCost, f: &mut impl Fields) -> FlushCost {
    let (word, time) = match flush {
        FlushCost::Drains(time) => ("drains", time),
        FlushCost::Protected(time) => ("protected", time),
    };
    let doc = "A flush waits until the buffer is drained, or the buffer survives a power cut";
    let word = f.word("flush", word, &["drains", "protected"], doc);
    let time = f.time("flush_time", time, TIMES, "Additional time of a flush");
    if word == "drains" { FlushCost::Drains(time) } else { FlushCost::Protected(time) }
}

fn mapping(mapping: Mapping, f: &mut impl Fields) -> Mapping {
    let word = match mapping {
        Mapping::Pages(_) => "pages",
        Mapping::Blocks(_) => "blocks",
    };
    let doc = "Placement of written bytes: page by page with collection, or by erase block with merges";
    if f.word("mapping", word, &["pages", "blocks"], doc) == "pages" {
        let usual = Pages { spare: 0.07, update: Nanos::ZERO, map_held: 1.0, map_miss: Nanos::ZERO };
        let pages = if let Mapping::Pages(pages) = mapping { pages } else { usual };
        return Mapping::Pages(Pages {
            spare: f.share("spare", pages.spare, 0.01..=10.0, "Flash beyond the capacity, as a share of it"),
            update: f.time(
                "map_update",
                pages.update,
                TIMES,
                "The controller's time for the map at each random write, which holds up other writes",
            ),
            map_held: f.share("map_held", pages.map_held, 0.0..=1.0, "The share of the map that is held in memory"),
            map_miss: f.time(
                "map_miss",
                pages.map_miss,
                TIMES,
                "The controller's additional time if the part of the map that a random write needs is not in memory",
            ),
        });
    }
    let usual = Blocks { merge: Bytes::ZERO, reach: 0.0 };
    let blocks = if let Mapping::Blocks(blocks) = mapping { blocks } else { usual };
    Mapping::Blocks(Blocks {
        merge: f.size(
            "merge",
            blocks.merge,
            Bytes::ZERO..=GIB,
            "Bytes programmed for each random write in addition to its own",
        ),
        reach: f.share(
            "reach",
            blocks.reach,
            0.0..=1.0,
            "The one area in which random writes are as cheap as sequential ones, as a share of the capacity",
        ),
    })
}

fn state(state: State, f: &mut impl Fields) -> State {
    const STATES: [(&str, State); 3] =
        [("fresh", State::Fresh), ("filled", State::Filled), ("steady", State::Steady)];
    let word = STATES.iter().find(|(_, known)| *known == state).map_or("steady", |(word, _)| word);
    let doc = "Content of the drive at the start: nothing, everything written once in order, or \
               everything\noverwritten at random until the copies for each write changed no more";
    let word = f.word("state", word, &STATES.map(|(word, _)| word), doc);
    STATES.iter().find(|(known, _)| *known == word).map_or(state, |(_, state)| *state)
}
