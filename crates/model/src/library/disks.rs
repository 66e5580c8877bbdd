//! The hard disks. Each figure has its source and its reliability.
//!
//! The write cache is on in all four, though disks for arrays usually ship with the cache off. The MBA3073
//! ships with the cache on by its manual. The Cheetah stands for a drive that a paper attached to a plain
//! host. The two SATA disks ship with the cache on. (a18) is the manual of the MBA3073NP and NC, Fujitsu
//! C141-E270, page 92, caching parameters (page code 8).

use crate::hdd::{Params, SEGMENTS, Seek};
use crate::library::Standing::{Assumed, Derived, Paper, Sheet};
use crate::library::{Spec, Timing, figure};
use crate::measure::Measure::{RandomRead, RandomWrite, SequentialRead, SequentialWrite};
use crate::rate::Rate;
use crate::ssd::State;
use braid_base::{Bytes, DeviceClass, KIB, MIB, Nanos};
use std::borrow::Cow;

/// The 15,000 rpm disk of Wu and Reddy's paper.
pub(super) const MBA3073: Spec = Spec {
    name: Cow::Borrowed("mba3073"),
    title: Cow::Borrowed("Fujitsu MBA3073, 15,000 rpm, 73 GB"),
    class: DeviceClass::Hdd,
    // 143,374,744 sectors [assumed].
    capacity: Bytes(143_374_744 * 512),
    timing: Timing::Hdd(Params {
        // 15,000 rpm [paper] (a1).
        revolution: Nanos::from_millis(4),
        // One platter [assumed].
        heads: 2,
        // About 125 to 75 MB/s [assumed].
        outer: Rate::from_mb(125),
        inner: Rate::from_mb(75),
        seek: Seek {
            // Track to track 0.2 / 0.4, average 3.4 / 3.9, full stroke 8 ms [assumed].
            track_read: Nanos::from_micros(200),
            track_write: Nanos::from_micros(400),
            // Between track to track and the Cheetah's 0.85 ms [assumed].
            settle: Nanos::from_micros(500),
            average: Nanos::from_micros(3_400),
            full: Nanos::from_millis(8),
            // Average write less average read seek [derived].
            write_settle: Nanos::from_micros(500),
        },
        // A little more than a read's track-to-track time [assumed].
        head_switch: Nanos::from_micros(300),
        // The SAS variant, RC: 3 Gb/s [assumed].
        interface: Rate::from_mb(300),
        // [assumed], from the Cheetah's 0.106 for a read that misses [paper] (a3).
        command: Nanos::from_micros(100),
        // What Linux gives a SCSI disk [assumed].
        queue_depth: 32,
        // [assumed], for about 400 reads/s.
        weighed: 20,
        // 16 MB [assumed], half of it for writes.
        buffer: Bytes(MIB.0 * 8),
        // On by default: caching parameters, WCE = 1 [sheet] (a18).
        write_cache: true,
        // [assumed]. The sheet's segments divide the memory. The sheet does not state the number of sorted
        // runs, but the number exceeds the eight segments. Here 8, 16, 32, 64, 128 and 256 runs make 284,
        // 334, 388, 445, 505 and 551 random writes/s at any depth, and the same disk without its cache 350 at
        // depth 32.
        buffered_runs: 128,
        // Number of cache segments, X'08' by default [sheet] (a18).
        segments: 8,
        // The other half of the buffer in these [derived].
        read_ahead: MIB,
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 125.0, 0.10, Assumed, "sustained, outer edge"),
        figure(SequentialRead { depth: 32, from: 0.96 }, 75.0, 0.10, Assumed, "sustained, inner edge"),
        figure(SequentialWrite { depth: 8 }, 125.0, 0.10, Assumed, "sustained, outer edge"),
        figure(RandomRead { depth: 1 }, 180.0, 0.10, Assumed, "3.4 ms seek, 2 ms for half a turn"),
        figure(RandomRead { depth: 32 }, 400.0, 0.20, Assumed, "usual for the class"),
    ],
};

/// The disk of Hystor's measurements.
pub(super) const CHEETAH_15K5: Spec = Spec {
    name: Cow::Borrowed("cheetah-15k5"),
    title: Cow::Borrowed("Seagate Cheetah 15K.5 ST373455SS, 15,000 rpm, 73 GB"),
    class: DeviceClass::Hdd,
    // 143,374,744 sectors [assumed], half of the 146 GB model's [paper] (a3).
    capacity: Bytes(143_374_744 * 512),
    timing: Timing::Hdd(Params {
        // 15,020 rpm, measured on the 146 GB model [paper] (a3).
        revolution: Nanos(3_994_674),
        // Half of the 146 GB model's [assumed].
        heads: 2,
        // 125 MB/s as Hystor states [paper] (b7).
        outer: Rate::from_mb(125),
        // By the ratio of the innermost to the outermost zone, 0.60 [derived] (a3).
        inner: Rate::from_mb(75),
        seek: Seek {
            // The extracted curve: 0.552 to the next cylinder [paper]; settling, mean and full stroke of its
            // fit [derived] (a3). The sheet's averages are 3.5 and 4.0 [assumed].
            track_read: Nanos::from_micros(552),
            track_write: Nanos::from_micros(552),
            settle: Nanos::from_micros(850),
            average: Nanos::from_micros(3_790),
            full: Nanos::from_micros(6_950),
            // Extra write settling 0 [paper] (a3).
            write_settle: Nanos::ZERO,
        },
        // The skew from track to track, 0.1417 of a turn [derived] (a3).
        head_switch: Nanos::from_micros(566),
        // SAS 3 Gb/s.
        interface: Rate::from_mb(300),
        // A read that misses, 0.106 [paper] (a3).
        command: Nanos::from_micros(106),
        // [assumed]
        queue_depth: 32,
        // [assumed], as the MBA3073's.
        weighed: 20,
        // 16 MB [assumed], half of it for writes.
        buffer: Bytes(MIB.0 * 8),
        // On, as in Hystor's measurements [paper] (b7). DiskSim's model is validated with the cache off, and
        // arrays keep the cache off: `with_write_cache(false)` switches it off.
        write_cache: true,
        // [assumed]; the segments for writes, at most 11 [paper] (a3), bound the transferred data, not the
        // sorted runs.
        buffered_runs: 128,
        // Of 32, at most 11 are for writes [paper] (a3); fewer are enough [assumed].
        segments: SEGMENTS,
        // A segment: 1,200 sectors [paper] (a3).
        read_ahead: Bytes(1_200 * 512),
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 125.0, 0.10, Paper, "Hystor (b7)"),
        figure(SequentialRead { depth: 32, from: 0.96 }, 75.0, 0.10, Derived, "ratio of the zones (a3)"),
        figure(SequentialWrite { depth: 8 }, 125.0, 0.10, Paper, "Hystor (b7)"),
        figure(RandomRead { depth: 1 }, 170.0, 0.10, Derived, "3.8 + 2.0 + 0.2 ms (a3)"),
    ],
};

/// The disk of the PASS paper.
pub(super) const BARRACUDA_7200_12: Spec = Spec {
    name: Cow::Borrowed("barracuda-7200.12"),
    title: Cow::Borrowed("Seagate Barracuda 7200.12 ST3320418AS, 7,200 rpm, 320 GB"),
    class: DeviceClass::Hdd,
    // 625,142,448 sectors [assumed].
    capacity: Bytes(625_142_448 * 512),
    timing: Timing::Hdd(Params {
        // 7,200 rpm [paper] (a5).
        revolution: Nanos(8_333_333),
        // One platter [assumed].
        heads: 2,
        // 125 to about 60 MB/s [assumed].
        outer: Rate::from_mb(125),
        inner: Rate::from_mb(60),
        seek: Seek {
            // Track to track 1.0 / 1.2, average 8.5 / 9.5, full stroke about 18 ms [assumed].
            track_read: Nanos::from_micros(1_000),
            track_write: Nanos::from_micros(1_200),
            // A little above track to track [assumed].
            settle: Nanos::from_micros(1_500),
            average: Nanos::from_micros(8_500),
            full: Nanos::from_millis(18),
            // Average write less average read seek [derived].
            write_settle: Nanos::from_millis(1),
        },
        // A read's track-to-track time [assumed].
        head_switch: Nanos::from_millis(1),
        // SATA 3 Gb/s.
        interface: Rate::from_mb(300),
        // [assumed]
        command: Nanos::from_micros(100),
        // NCQ.
        queue_depth: 32,
        // [assumed], for about 130 reads/s.
        weighed: 9,
        // 16 MB [assumed], half of it for writes.
        buffer: Bytes(MIB.0 * 8),
        // On, as desktop SATA disks ship [assumed].
        write_cache: true,
        // [assumed], so that random writes run at about 150/s.
        buffered_runs: 64,
        // [assumed]
        segments: SEGMENTS,
        // The other half in these [assumed].
        read_ahead: Bytes(KIB.0 * 512),
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 125.0, 0.10, Assumed, "sustained, outer edge"),
        figure(SequentialRead { depth: 32, from: 0.96 }, 60.0, 0.10, Assumed, "sustained, inner edge"),
        figure(SequentialWrite { depth: 8 }, 125.0, 0.10, Assumed, "sustained, outer edge"),
        figure(RandomRead { depth: 1 }, 79.0, 0.10, Derived, "8.5 + 4.17 ms"),
        figure(RandomRead { depth: 32 }, 130.0, 0.30, Assumed, "NCQ"),
        figure(
            RandomWrite { depth: 32, span: 1.0, state: State::Filled },
            150.0,
            0.30,
            Assumed,
            "write cache on",
        ),
    ],
};

/// A current 7,200 rpm disk.
pub(super) const EXOS_X20: Spec = Spec {
    name: Cow::Borrowed("exos-x20"),
    title: Cow::Borrowed("Seagate Exos X20 ST20000NM007D, 7,200 rpm, 20 TB"),
    class: DeviceClass::Hdd,
    // 39,063,650,304 sectors [derived] (a7).
    capacity: Bytes(39_063_650_304 * 512),
    timing: Timing::Hdd(Params {
        // 7,200 rpm [review] (a6).
        revolution: Nanos(8_333_333),
        // 10 platters [review] (a6).
        heads: 20,
        // 285 MB/s [sheet] (a14); inner 45 to 50 % of it [assumed].
        outer: Rate::from_mb(285),
        inner: Rate::from_mb(135),
        seek: Seek {
            // Not published. Average about 8 ms, track to track 0.2 to 0.4 ms [assumed].
            track_read: Nanos::from_micros(300),
            track_write: Nanos::from_micros(400),
            // From the sheet's random writes, most of which are short seeks [derived].
            settle: Nanos::from_micros(600),
            average: Nanos::from_millis(8),
            // In proportion to the 7200.12 [assumed].
            full: Nanos::from_millis(16),
            // [assumed], less than the HC310's 8.2 less 7.4 [sheet] (a11), for the same reason.
            write_settle: Nanos::from_micros(200),
        },
        // [assumed]
        head_switch: Nanos::from_micros(400),
        // SATA 6 Gb/s, as much as gets through.
        interface: Rate::from_mb(560),
        // [assumed]
        command: Nanos::from_micros(50),
        // NCQ.
        queue_depth: 32,
        // All of them [assumed].
        weighed: 32,
        // 256 MB [review] (a6), half of it for writes.
        buffer: Bytes(MIB.0 * 128),
        // On, as enterprise SATA disks ship [assumed].
        write_cache: true,
        // [assumed], so that random writes run at the sheet's 550/s. The sheet says "write cache disabled",
        // but no arm reaches this rate at depth 16: a protected buffer takes the writes (a14), as the buffer
        // does here.
        buffered_runs: 4_096,
        // [assumed]
        segments: SEGMENTS,
        // [assumed]
        read_ahead: Bytes(MIB.0 * 8),
    }),
    figures: &[
        figure(SequentialRead { depth: 1, from: 0.0 }, 285.0, 0.10, Sheet, "sustained, outer edge (a14)"),
        figure(
            SequentialRead { depth: 32, from: 0.96 },
            135.0,
            0.10,
            Assumed,
            "45 to 50 % of the outer edge",
        ),
        figure(SequentialWrite { depth: 8 }, 285.0, 0.10, Sheet, "sustained, outer edge (a14)"),
        figure(RandomRead { depth: 1 }, 82.0, 0.10, Assumed, "8 + 4.16 ms"),
        figure(RandomRead { depth: 16 }, 168.0, 0.10, Sheet, "depth 16 (a14)"),
        figure(
            RandomWrite { depth: 16, span: 1.0, state: State::Filled },
            550.0,
            0.10,
            Sheet,
            "depth 16 (a14)",
        ),
    ],
};
