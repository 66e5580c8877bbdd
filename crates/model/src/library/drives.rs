//! The solid-state drives. Each figure has its source and its reliability.
//!
//! If a sheet states external rates but not the internals, the internals are solved from the rates. `command`
//! follows from the request rate at depth 32, `latency` from the rate at depth one, `program` from the
//! sequential write rate, and the cost of a random write from the rates of random writes.
//!
//! Drives that map pages start in the steady state, as after long use: the lasting state, called sustained in
//! sheets. New drives are faster until they are overwritten at random once or twice.

use crate::library::Standing::{Assumed, Review, Sheet};
use crate::library::{Spec, Timing, figure};
use crate::measure::Measure::{RandomRead, RandomWrite, SequentialRead, SequentialWrite};
use crate::rate::Rate;
use crate::ssd::{Blocks, FlushCost, Mapping, Pages, Params, State};
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos};
use std::borrow::Cow;

const X25_M_PARAMS: Params = Params {
    // Ten channels [review] (b2) with four dies each [assumed].
    channels: 40,
    // [review] (b4)
    flash_page: Bytes(KIB.0 * 4),
    // 50 nm MLC [assumed].
    read: Nanos::from_micros(50),
    // The class has 600 to 900 [assumed]. Less than 70 MB/s would remain for the sheet's random writes,
    // because so little spare flash causes many copies: the flash must be faster than the drive's intake.
    program: Nanos::from_micros(780),
    // 128 pages [review] (b4).
    erase_block: Bytes(KIB.0 * 512),
    // [assumed]
    erase: Nanos::from_millis(2),
    suspend: None,
    // [assumed]
    channel: Rate::from_mb(100),
    // 250 read [sheet], 254 measured [review] (b1) with 128 KiB requests.
    read_rate: Rate::from_mb(262),
    write_rate: Rate::from_mb(262),
    half_duplex: true,
    // From 35,000 reads/s at depth 32 [assumed].
    command: Nanos(13_000),
    // From 6,000 reads/s at low depth [review] (b4). The sheet's 85 µs [assumed] leaves the host out.
    latency: Nanos::from_micros(47),
    // 70 MB/s [sheet] (b1). A sheet's sustained rate: data within the buffer's size is written at the
    // interface's rate.
    intake: Some(Rate::from_mb(70)),
    // SRAM in the controller [assumed].
    buffer: Bytes(KIB.0 * 256),
    // [assumed]
    flush: FlushCost::Drains(Nanos::from_micros(500)),
    // NCQ [review] (b2).
    queue_depth: 32,
    read_ahead: false,
    // [assumed]
    streams: 8,
    // The 50 nm generation never learned it [review] (b3).
    trim: false,
    mapping: Mapping::Pages(Pages {
        // 80 GiB of flash [assumed] for 80 GB.
        spare: 0.073,
        // From 10,000/s new over 8 GB, at depth 3 [review] (b3).
        update: Nanos::from_micros(100),
        // 16 MB of memory [review] (b2) for 4 bytes per page [assumed].
        map_held: 0.2,
        // From 3,300/s over the whole drive [assumed].
        map_miss: Nanos::from_micros(254),
    }),
    state: State::Steady,
};

/// The SSD of Wu and Reddy's paper.
pub(super) const X25_M: Spec = Spec {
    name: Cow::Borrowed("x25-m"),
    title: Cow::Borrowed("Intel X25-M SSDSA2MH080G1GC, 50 nm MLC, 80 GB"),
    class: DeviceClass::Ssd,
    // 156,301,488 sectors [assumed].
    capacity: Bytes(156_301_488 * 512),
    timing: Timing::Ssd(X25_M_PARAMS),
    figures: &[
        figure(SequentialRead { depth: 8, from: 0.0 }, 250.0, 0.10, Sheet, "(b1)"),
        figure(SequentialWrite { depth: 8 }, 70.0, 0.10, Sheet, "(b1)"),
        figure(RandomRead { depth: 1 }, 6_000.0, 0.10, Review, "low depth (b4)"),
        figure(RandomRead { depth: 32 }, 35_000.0, 0.10, Assumed, "sheet"),
        figure(
            RandomWrite { depth: 3, span: 0.1, state: State::Fresh },
            10_000.0,
            0.10,
            Review,
            "new, 8 GB, depth 3 (b3)",
        ),
        figure(
            RandomWrite { depth: 3, span: 0.1, state: State::Steady },
            6_400.0,
            0.10,
            Review,
            "used, 8 GB, depth 3 (b3)",
        ),
        figure(
            RandomWrite { depth: 32, span: 1.0, state: State::Steady },
            3_300.0,
            0.10,
            Assumed,
            "sheet; 2,800 at low depth [review] (b4)",
        ),
    ],
};

/// The X25-M of Wu and Reddy's table III. The rate at which flash takes writes follows from the table's row
/// of the SSD alone with ten processes. The paper does not explain the low rate: the drive may have been
/// fragmented, or worn.
pub(super) const X25_M_WORN: Spec = Spec {
    name: Cow::Borrowed("x25-m-worn"),
    title: Cow::Borrowed("Intel X25-M of 80 GB that writes as slowly as in Wu and Reddy's table III"),
    class: X25_M.class,
    capacity: X25_M.capacity,
    timing: Timing::Ssd(Params { intake: Some(Rate(6_500_000)), ..X25_M_PARAMS }),
    figures: &[],
};

/// The SSD of the PASS and Hystor papers. Controller and interface equal the X25-M's.
pub(super) const X25_E: Spec = Spec {
    name: Cow::Borrowed("x25-e"),
    title: Cow::Borrowed("Intel X25-E SSDSA2SH032G1GN, 50 nm SLC, 32 GB"),
    class: DeviceClass::Ssd,
    // 62,500,000 sectors [assumed].
    capacity: Bytes(62_500_000 * 512),
    timing: Timing::Ssd(Params {
        // Ten channels [review] (b6) with four dies each [assumed].
        channels: 40,
        // As the X25-M's [assumed].
        flash_page: Bytes(KIB.0 * 4),
        // 50 nm SLC [assumed].
        read: Nanos::from_micros(25),
        // The class has 200 to 250 [assumed].
        program: Nanos::from_micros(225),
        // 64 pages [assumed].
        erase_block: Bytes(KIB.0 * 256),
        // [assumed]
        erase: Nanos::from_micros(1_500),
        suspend: None,
        // [assumed]
        channel: Rate::from_mb(100),
        // 250 read [sheet] (b5).
        read_rate: Rate::from_mb(262),
        write_rate: Rate::from_mb(262),
        half_duplex: true,
        // From 35,000 reads/s [sheet] (b6).
        command: Nanos(13_000),
        // As the X25-M's [assumed].
        latency: Nanos::from_micros(47),
        // 170 MB/s [sheet] (b5).
        intake: Some(Rate::from_mb(170)),
        // [assumed]
        buffer: Bytes(KIB.0 * 256),
        // [assumed]
        flush: FlushCost::Drains(Nanos::from_micros(500)),
        // NCQ [assumed].
        queue_depth: 32,
        read_ahead: false,
        // [assumed]
        streams: 8,
        // As the X25-M's [assumed].
        trim: false,
        mapping: Mapping::Pages(Pages {
            // 40 GiB of flash [assumed] for 32 GB.
            spare: 0.34,
            // From a little below 9,000/s over 8 GB [review] (b3).
            update: Nanos::from_micros(113),
            // 16 MB of memory for 4 bytes per page [assumed].
            map_held: 0.5,
            // From 3,300/s over the whole drive [sheet] (b6).
            map_miss: Nanos::from_micros(380),
        }),
        state: State::Steady,
    }),
    figures: &[
        figure(SequentialRead { depth: 8, from: 0.0 }, 250.0, 0.10, Sheet, "(b5)"),
        figure(SequentialWrite { depth: 8 }, 170.0, 0.10, Sheet, "(b5); up to 194 [paper] (b7)"),
        figure(RandomRead { depth: 1 }, 7_000.0, 0.20, Assumed, "the X25-M's 6,000, less the faster flash"),
        figure(RandomRead { depth: 32 }, 35_000.0, 0.10, Sheet, "(b6)"),
        figure(
            RandomWrite { depth: 3, span: 0.25, state: State::Steady },
            8_800.0,
            0.10,
            Review,
            "used, 8 GB, depth 3: below 9,000 (b3)",
        ),
        figure(
            RandomWrite { depth: 32, span: 1.0, state: State::Steady },
            3_300.0,
            0.10,
            Sheet,
            "full span (b6)",
        ),
    ],
};

/// The second SSD of Wu and Reddy's paper; a good writer for 2008. All figures are remembered from uFLIP
/// (b9).
pub(super) const MEMORIGHT_GT: Spec = Spec {
    name: Cow::Borrowed("memoright-gt"),
    title: Cow::Borrowed("MemoRight GT MR25.2-032S, SLC, 32 GB"),
    class: DeviceClass::Ssd,
    // [assumed]
    capacity: Bytes(62_500_000 * 512),
    timing: Timing::Ssd(Params {
        // [assumed], enough for 120 MB/s.
        channels: 10,
        // [assumed]
        flash_page: Bytes(KIB.0 * 4),
        // SLC [assumed].
        read: Nanos::from_micros(25),
        program: Nanos::from_micros(200),
        // [assumed]
        erase_block: Bytes(KIB.0 * 256),
        erase: Nanos::from_micros(1_500),
        suspend: None,
        // [assumed]
        channel: Rate::from_mb(50),
        // SATA 1.5 Gb/s [assumed].
        read_rate: Rate::from_mb(150),
        write_rate: Rate::from_mb(150),
        half_duplex: true,
        // The two together from 120 MB/s at depth one with 128 KiB requests, hence 0.3 to 0.4 ms per 32 KB
        // [assumed].
        command: Nanos::from_micros(100),
        latency: Nanos::from_micros(118),
        intake: None,
        // [assumed]; a larger one would hide random writes for longer than uFLIP's start-up phase.
        buffer: Bytes(KIB.0 * 512),
        // DRAM with a power-loss capacitor [assumed].
        flush: FlushCost::Protected(Nanos::from_micros(100)),
        // No NCQ [assumed].
        queue_depth: 1,
        // Sequential reads are a little faster than random ones [assumed].
        read_ahead: true,
        // About eight sequential writers stay cheap [assumed].
        streams: 8,
        // Of 2008 [assumed].
        trim: false,
        mapping: Mapping::Blocks(Blocks {
            // From 5 ms per random write [assumed].
            merge: Bytes(KIB.0 * 640),
            // Random writes inside one area of 8 MB of 32 GB cost no more than sequential ones [assumed].
            reach: 1.0 / 4_096.0,
        }),
        state: State::Filled,
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 120.0, 0.10, Assumed, "maker's figure"),
        figure(SequentialWrite { depth: 1 }, 120.0, 0.10, Assumed, "maker's figure"),
        figure(RandomRead { depth: 1 }, 2_500.0, 0.20, Assumed, "uFLIP: 0.4 ms, for 32 KB"),
        figure(
            RandomWrite { depth: 1, span: 1.0, state: State::Steady },
            200.0,
            0.20,
            Assumed,
            "uFLIP: 5 ms, for 32 KB",
        ),
    ],
};

/// The third SSD of Wu and Reddy's paper; a poor random writer.
pub(super) const TRANSCEND_16G: Spec = Spec {
    name: Cow::Borrowed("transcend-16g"),
    title: Cow::Borrowed("Transcend TS16GSSD25S-S, SLC, 16 GB"),
    class: DeviceClass::Ssd,
    // [sheet] (b10)
    capacity: Bytes(31_277_056 * 512),
    timing: Timing::Ssd(Params {
        // Four channels with two chips each [assumed].
        channels: 8,
        // [assumed]
        flash_page: Bytes(KIB.0 * 4),
        // SLC [assumed].
        read: Nanos::from_micros(25),
        // From 100 MB/s over eight [derived].
        program: Nanos::from_micros(225),
        // [assumed]
        erase_block: Bytes(KIB.0 * 256),
        erase: Nanos::from_micros(1_500),
        suspend: None,
        // [assumed]
        channel: Rate::from_mb(40),
        // SATA 3 Gb/s [sheet] (b10), as much as gets through.
        read_rate: Rate::from_mb(250),
        write_rate: Rate::from_mb(250),
        half_duplex: true,
        // The two together from 150 MB/s at depth one with 128 KiB requests, and about 2,000 reads/s
        // [assumed].
        command: Nanos::from_micros(100),
        latency: Nanos::from_micros(250),
        intake: None,
        // None for data, or very small [assumed]; enough for one request to follow another without a gap.
        buffer: Bytes(KIB.0 * 256),
        // [assumed]
        flush: FlushCost::Drains(Nanos::from_millis(1)),
        // Not found: none [assumed].
        queue_depth: 1,
        // [assumed]
        read_ahead: true,
        // [assumed]
        streams: 4,
        // Of 2008 [assumed].
        trim: false,
        // From about 18 ms and worse per random write, tens per second [assumed].
        mapping: Mapping::Blocks(Blocks { merge: Bytes(MIB.0 * 2), reach: 0.0 }),
        state: State::Filled,
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 150.0, 0.10, Sheet, "maximum (b10)"),
        figure(SequentialWrite { depth: 1 }, 100.0, 0.10, Sheet, "maximum (b10)"),
        figure(RandomRead { depth: 1 }, 2_000.0, 0.20, Assumed, "controllers of the class"),
        figure(
            RandomWrite { depth: 1, span: 1.0, state: State::Steady },
            40.0,
            0.50,
            Assumed,
            "order of 20 to 60",
        ),
    ],
};

/// A current SATA SSD: the Samsung 870 EVO, the best measured of the available drives.
///
/// Its SLC cache is left out: at 1 TB the drive still writes near the interface's limit after the cache is
/// full [assumed].
pub(super) const SATA_SSD: Spec = Spec {
    name: Cow::Borrowed("sata-ssd"),
    title: Cow::Borrowed("Samsung 870 EVO, TLC, SATA, 1 TB"),
    class: DeviceClass::Ssd,
    // As the makers agreed for 1,000 GB.
    capacity: Bytes(1_000_204_886_016),
    timing: Timing::Ssd(Params {
        // Eight channels [review] (c1) with four dies each [assumed].
        channels: 32,
        // V-NAND of 128 layers: page, read and program time [assumed].
        flash_page: Bytes(KIB.0 * 16),
        read: Nanos::from_micros(45),
        program: Nanos::from_micros(450),
        // Three pages for each of 4 strings in 128 layers, of 16 KiB [assumed].
        erase_block: Bytes(MIB.0 * 24),
        erase: Nanos::from_micros(3_500),
        // [assumed]
        suspend: Some(Nanos::from_micros(30)),
        // [assumed]
        channel: Rate::from_mb(800),
        // From 560 and 530 MB/s [sheet] with 128 KiB requests, 561 and 531 measured [review] (c1).
        read_rate: Rate::from_mb(567),
        write_rate: Rate::from_mb(538),
        half_duplex: true,
        // From 98,000 reads/s and 88,000 writes/s at depth 32 [sheet] (c1).
        command: Nanos(3_300),
        // From 13,000 reads/s and 36,000 writes/s at depth one [sheet] (c1).
        latency: Nanos(16_500),
        intake: None,
        // [assumed]
        buffer: Bytes(MIB.0 * 32),
        // [assumed]
        flush: FlushCost::Drains(Nanos::from_millis(1)),
        // NCQ.
        queue_depth: 32,
        read_ahead: false,
        // [assumed]
        streams: 16,
        trim: true,
        // 1 TiB of flash for 1 TB is 10 %, less what the SLC cache and bad blocks take [assumed].
        mapping: Pages::spare(0.07),
        state: State::Steady,
    }),
    figures: &[
        figure(SequentialRead { depth: 8, from: 0.0 }, 560.0, 0.10, Sheet, "(c1)"),
        figure(SequentialWrite { depth: 8 }, 530.0, 0.10, Sheet, "(c1)"),
        figure(RandomRead { depth: 1 }, 13_000.0, 0.10, Sheet, "(c1)"),
        figure(RandomRead { depth: 32 }, 98_000.0, 0.10, Sheet, "(c1); 94,003 measured"),
        figure(
            RandomWrite { depth: 1, span: 0.01, state: State::Filled },
            36_000.0,
            0.10,
            Sheet,
            "(c1), a small span",
        ),
        figure(
            RandomWrite { depth: 32, span: 0.01, state: State::Filled },
            88_000.0,
            0.10,
            Sheet,
            "(c1), a small span; 84,058 measured",
        ),
        figure(
            RandomWrite { depth: 32, span: 1.0, state: State::Steady },
            30_000.0,
            0.20,
            Assumed,
            "as the PM893, sustained (c2)",
        ),
    ],
};

/// A current NVMe SSD: the Solidigm D7-P5520, a drive for servers.
///
/// Chosen before the 990 PRO because its sheet states sustained rates: a consumer drive's figures hold until
/// its SLC cache is full, and a volume that moves data in the background fills any cache. The D7-P5520 is
/// also the drive with a measured flush. Its latencies are assumed, while the 990 PRO's have been measured.
pub(super) const NVME_SSD: Spec = Spec {
    name: Cow::Borrowed("nvme-ssd"),
    title: Cow::Borrowed("Solidigm D7-P5520, TLC, PCIe 4.0 x4, 7.68 TB"),
    class: DeviceClass::Ssd,
    // As the makers agreed for 7,680 GB.
    capacity: Bytes(7_681_501_126_656),
    timing: Timing::Ssd(Params {
        // Dies and planes that work at once [assumed].
        channels: 128,
        // TLC of 144 layers: page and read time [assumed].
        flash_page: Bytes(KIB.0 * 16),
        read: Nanos::from_micros(55),
        // From 4,200 MB/s [derived]; the class has 350 to 500 [assumed].
        program: Nanos::from_micros(480),
        // Three pages for each of 4 strings in 144 layers, of 16 KiB [assumed].
        erase_block: Bytes(MIB.0 * 27),
        erase: Nanos::from_micros(3_500),
        // [assumed]
        suspend: Some(Nanos::from_micros(30)),
        // [assumed]
        channel: Rate::from_mb(1_200),
        // 7,100 MB/s [sheet] (c2) with 128 KiB requests.
        read_rate: Rate::from_mb(7_235),
        write_rate: Rate::from_mb(7_235),
        half_duplex: false,
        // From 1,100,000 reads/s [sheet] (c2).
        command: Nanos(343),
        // From 75 µs per read and 15 to 20 per write [assumed].
        latency: Nanos(15_500),
        intake: None,
        // [assumed]
        buffer: Bytes(MIB.0 * 64),
        // Power-loss protection; 12 µs [review] (d5).
        flush: FlushCost::Protected(Nanos::from_micros(12)),
        // One queue of the usual size; the interface would allow 65,536 [assumed].
        queue_depth: 1_024,
        read_ahead: false,
        // [assumed]
        streams: 16,
        trim: true,
        // 8 TiB of flash for 7.68 TB is 14.5 % [assumed], less the bad blocks; from 200,000 writes/s over the
        // whole drive [sheet] (c2).
        mapping: Pages::spare(0.13),
        state: State::Steady,
    }),
    figures: &[
        figure(SequentialRead { depth: 32, from: 0.0 }, 7_100.0, 0.10, Sheet, "(c2)"),
        figure(SequentialWrite { depth: 32 }, 4_200.0, 0.10, Sheet, "(c2)"),
        figure(RandomRead { depth: 1 }, 13_300.0, 0.10, Assumed, "75 µs"),
        figure(RandomRead { depth: 256 }, 1_100_000.0, 0.10, Sheet, "(c2)"),
        figure(
            RandomWrite { depth: 1, span: 0.01, state: State::Filled },
            60_000.0,
            0.20,
            Assumed,
            "15 to 20 µs",
        ),
        figure(RandomWrite { depth: 256, span: 1.0, state: State::Steady }, 200_000.0, 0.10, Sheet, "(c2)"),
    ],
};
