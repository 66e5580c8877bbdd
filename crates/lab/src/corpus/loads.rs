//! Generated loads of the corpus with drawn settings, and loads that change at half of their time.
//!
//! A closed-loop load has clients with think times, so no device serves more than some thousand requests a
//! second. A cell then takes seconds instead of minutes if all data fits a fast SSD. The rate of an open-loop
//! load follows the number of disks: 0.3 to 2 times the disks' rate of random requests.

use super::Length;
use super::draw::Draw;
use crate::Part;
use braid_base::{GIB, Nanos};

/// Half of the time of a changing load: the change comes at its end.
pub const HALF: Nanos = Nanos::from_secs(120);
/// An event, such as a scan, lasts for half of the judged half.
const EVENT: Nanos = Nanos::from_secs(60);
/// Approximate random requests served by a disk per second.
const OF_A_DISK: u64 = 150;

/// Makes a load with its length, for a number of disks.
pub type Make = fn(&mut Draw, u64) -> (String, Length);

/// The generated loads: all of `braid-workload`.
pub const GENERATED: &[(&str, Make)] = &[
    ("random", |d, n| (format!("random,{}", simple(d, n)), USUAL)),
    ("sequential", |d, _| {
        let (clients, size) = (d.pick(&[1, 2, 4, 8]), d.pick(&[16, 64, 128, 256]));
        let (read, span) = (d.pick(&[0, 50, 90, 100]), d.pick(&SPANS));
        let text = format!(
            "sequential,clients={clients},think=1ms,size={size}KiB,read={read}%,span={span}GiB,requests=endless"
        );
        (text, SHORT)
    }),
    ("zipf", |d, n| (format!("zipf,{},{}", popularity(d), simple(d, n)), USUAL)),
    ("hot-cold", |d, n| {
        let (hot, every) = (d.pick(&[2, 5, 10, 20]), d.pick(&["never", "10K", "40K"]));
        let (shift, unit) = (d.pick(&[10, 50, 100]), d.pick(&["128KiB", "1MiB", "8MiB"]));
        let simple = simple(d, n);
        (format!("hot-cold,hot={hot}%,every={every},shift={shift}%,unit={unit},{simple}"), USUAL)
    }),
    ("diurnal", |d, n| {
        let (rate, low, theta) = (rate(d, n), d.pick(&[10, 20, 50]), theta(d));
        let (read, span) = (d.pick(&READS), d.pick(&SPANS));
        (
            format!(
                "diurnal,rate={rate},low={low}%,day=30s,theta={theta},size=4KiB,read={read}%,span={span}GiB,requests=endless"
            ),
            USUAL,
        )
    }),
    ("refill", |d, _| {
        let (unit, to_new) = (d.pick(&["1MiB", "4MiB", "16MiB"]), d.pick(&[50, 80, 95]));
        let (read, size, span) = (d.pick(&[30, 50, 80]), d.pick(&[16, 64]), d.pick(&SPANS));
        let clients = d.pick(&[2, 8]);
        (
            format!(
                "refill,unit={unit},to-new={to_new}%,clients={clients},think=4ms,size={size}KiB,read={read}%,span={span}GiB,requests=endless"
            ),
            USUAL,
        )
    }),
    ("iometer-like", |d, _| {
        let (spec, clients) =
            (d.pick(&["file-server", "web-server", "workstation", "database"]), d.pick(&[1, 4, 16]));
        (
            format!(
                "iometer-like,spec={spec},span={}GiB,clients={clients},think=4ms,requests=endless",
                d.pick(&SPANS)
            ),
            USUAL,
        )
    }),
    ("dbench-like", |d, _| {
        (format!("dbench-like,clients={},requests=endless", d.pick(&[1, 4, 10, 20])), SHORT)
    }),
    ("netapp-like", |d, _| {
        (format!("netapp-like,clients={},requests=endless", d.pick(&[1, 4, 10, 20])), SHORT)
    }),
    ("postmark-like", |d, _| {
        let (clients, files, high) =
            (d.pick(&[1, 2, 4]), d.pick(&[2000, 5000]), d.pick(&["64KB", "250KB", "500KB"]));
        (format!("postmark-like,clients={clients},files={files},high={high},transactions=100M"), SHORT)
    }),
    ("email-like", |d, _| {
        let (clients, mailboxes, read) =
            (d.pick(&[1, 2, 4, 8]), d.pick(&[200, 500, 1000]), d.pick(&[5, 14, 40]));
        (format!("email-like,clients={clients},mailboxes={mailboxes},read={read}%,transactions=100M"), SHORT)
    }),
    ("tpcc-like", |d, _| {
        let (warehouses, wait) = (d.pick(&[10, 20, 30]), d.pick(&["0.1", "0.2", "0.5"]));
        (format!("tpcc-like,warehouses={warehouses},wait={wait},transactions=100M"), USUAL)
    }),
    ("tpch-q1-like", |d, _| {
        let (scale, streams, cpu) = (d.pick(&[1, 2]), d.pick(&[1, 2, 4]), d.pick(&[60, 200, 400]));
        (format!("tpch-q1-like,scale={scale},streams={streams},cpu={cpu},scans=1000"), USUAL)
    }),
    ("ext3-file-like", |d, _| {
        let (file, read, clients) = (d.pick(&[2, 4]), d.pick(&[128, 256]), d.pick(&[1, 4]));
        (
            format!("ext3-file-like,file={file}GiB,read={read}MiB,clients={clients},runs=1"),
            Length::Requests(12_000),
        )
    }),
    ("financial1-like", |d, n| (financial("financial1-like", d, n), USUAL)),
    ("financial2-like", |d, n| (financial("financial2-like", d, n), USUAL)),
    ("websearch-like", |d, n| {
        let (rate, span) = (rate(d, n), d.pick(&SPANS));
        (format!("websearch-like,rate={rate},span={span}GiB,touched=100%,requests=endless"), USUAL)
    }),
    ("db2-like", |d, _| {
        let (span, clients, theta) = (d.pick(&SPANS), d.pick(&[2, 8, 16]), theta(d));
        (
            format!(
                "db2-like,span={span}GiB,clients={clients},theta={theta},lookups=1000,pause=2s,repeat=1000"
            ),
            SHORT,
        )
    }),
    ("webserver-like", |d, _| {
        let (span, clients, theta) = (d.pick(&SPANS), d.pick(&[2, 4, 8]), theta(d));
        let burst = d.pick(&["2K", "10K"]);
        (
            format!(
                "webserver-like,span={span}GiB,clients={clients},theta={theta},burst={burst},pause=2s,requests=endless"
            ),
            SHORT,
        )
    }),
    ("checkpoint", |d, _| {
        let (clients, state, reads) = (d.pick(&[4, 8, 16]), d.pick(&[32, 64]), d.pick(&[0, 1, 2]));
        (format!("checkpoint,clients={clients},state={state}MiB,rounds=1000,reads={reads},compute=2s"), USUAL)
    }),
];

/// A changing load: its parts and its name.
pub struct ChangingLoad {
    pub text: String,
    pub parts: Vec<Part>,
    /// Time from which on the return to a steady state is measured, from the beginning of the judged part.
    pub recovery_from: Nanos,
}

/// Makes a changing load for a number of disks, in open loop or in closed loop.
pub type Change = fn(&mut Draw, u64, bool) -> ChangingLoad;

/// The changes.
pub const PHASES: &[(&str, Change)] = &[
    ("load x10", |d, n, open| {
        let base = Base::draw(d, n, open);
        let parts = if open {
            // The tenfold rate is the usual rate of this corpus.
            let low = (base.rate / 10).max(5);
            let high = Part {
                from: HALF,
                skip: low * HALF.0 / 1_000_000_000,
                ..base.part(&format!("rate={}", low * 10))
            };
            vec![Part { until: HALF, ..base.part(&format!("rate={low}")) }, high]
        } else {
            let clients = d.pick(&[1, 2, 4]);
            let more = Part {
                from: HALF,
                skip: clients,
                ..base.part(&format!("clients={},think=4ms", clients * 10))
            };
            vec![base.part(&format!("clients={clients},think=4ms")), more]
        };
        base.phase(parts, "ten times as much", Nanos::ZERO)
    }),
    ("hot set moves", |d, n, open| {
        let base = Base::draw(d, n, open);
        let pace = base.pace(d);
        let after = Part { from: HALF, seed: base.seed + 1, ..base.part(&pace) };
        base.phase(vec![Part { until: HALF, ..base.part(&pace) }, after], "other places", Nanos::ZERO)
    }),
    ("scan passes", |d, n, open| {
        let base = Base::draw(d, n, open);
        let pace = base.pace(d);
        let (clients, size) = (d.pick(&[1, 2, 4]), d.pick(&[64, 256, 1024]));
        let scan = format!(
            "sequential,clients={clients},read=100%,size={size}KiB,span={}GiB,requests=endless",
            base.span
        );
        let parts =
            vec![base.part(&pace), Part { from: HALF, until: HALF + EVENT, ..Part::whole(scan, base.seed) }];
        base.phase(parts, &format!("{clients} read all by {size} KiB"), EVENT)
    }),
    ("backup at night", |d, n, open| {
        let base = Base::draw(d, n, open);
        // The night is calm: a fifth of the load continues.
        let (day, night) = if open {
            (format!("rate={}", base.rate), format!("rate={}", (base.rate / 5).max(1)))
        } else {
            ("clients=10,think=4ms".to_owned(), "clients=2,think=4ms".to_owned())
        };
        let backup = format!(
            "sequential,clients=1,read=100%,size=1MiB,span={}GiB,requests={}",
            base.span,
            base.span << 10
        );
        let parts = vec![
            Part { until: HALF, ..base.part(&day) },
            Part { from: HALF, until: HALF + EVENT, ..base.part(&night) },
            Part { from: HALF, until: HALF + EVENT, ..Part::whole(backup, base.seed) },
            Part { from: HALF + EVENT, ..base.part(&day) },
        ];
        base.phase(parts, "a fifth of it and a backup", EVENT)
    }),
    ("new program", |d, n, open| {
        let base = Base::draw(d, n, open);
        let pace = base.pace(d);
        let (size, clients) = (d.pick(&[16, 64, 256]), d.pick(&[1, 4]));
        let new = GIB.0 / 2;
        let (offset, end) = (GIB * base.span, HALF + EVENT);
        let writes = format!(
            "sequential,clients={clients},read=0%,size={size}KiB,span={new}B,requests={}",
            new / (size << 10)
        );
        let reads = format!(
            "zipf,theta=0.9,clients={clients},think=4ms,read=70%,size=16KiB,span={new}B,requests=endless"
        );
        let part =
            |text| Part { from: HALF, until: end, offset, is_filled: false, ..Part::whole(text, base.seed) };
        let parts =
            vec![base.part(&pace), part(writes), Part { from: end, until: Nanos::MAX, ..part(reads) }];
        base.phase(parts, &format!("{clients} write 512 MiB by {size} KiB"), EVENT)
    }),
];

/// A load that continues while something else changes.
struct Base {
    text: String,
    open: bool,
    rate: u64,
    span: u64,
    seed: u64,
}

impl Base {
    fn draw(d: &mut Draw, disks: u64, open: bool) -> Base {
        let (span, read) = (d.pick(&[1, 2]), d.pick(&READS));
        let (size, popularity) = (d.pick(&[4, 8, 16]), popularity(d));
        let text = format!("zipf,{popularity},size={size}KiB,read={read}%,span={span}GiB,requests=endless");
        Base { text, open, rate: rate(d, disks), span, seed: 1 + d.below(1 << 32) }
    }

    fn pace(&self, d: &mut Draw) -> String {
        match self.open {
            true => format!("rate={}", self.rate),
            false => format!("clients={},think=4ms", d.pick(&[2, 8, 16])),
        }
    }

    fn part(&self, pace: &str) -> Part {
        Part::whole(format!("{},{pace}", self.text), self.seed)
    }

    /// The load, named by its first part and the change.
    fn phase(&self, parts: Vec<Part>, then: &str, recovery_from: Nanos) -> ChangingLoad {
        ChangingLoad { text: format!("{}, then {then}", parts[0].workload), parts, recovery_from }
    }
}

/// Sizes of the used data, in GiB.
const SPANS: [u64; 3] = [1, 2, 3];
/// Shares of reads, in per cent.
const READS: [u32; 6] = [0, 30, 50, 70, 90, 100];
const USUAL: Length = Length::Times { warm_up: HALF, measured: HALF };
/// Length of loads whose clients do not think.
const SHORT: Length = Length::Times { warm_up: EVENT, measured: EVENT };
const _: () = assert!(EVENT.0 * 2 == HALF.0);

fn rate(d: &mut Draw, disks: u64) -> u64 {
    disks * OF_A_DISK * d.pick(&[3, 5, 7, 10, 14, 20]) / 10
}

fn theta(d: &mut Draw) -> &'static str {
    d.pick(&["0.6", "0.8", "0.9", "1.0", "1.1", "1.2"])
}

fn popularity(d: &mut Draw) -> String {
    format!("theta={},unit={}", theta(d), d.pick(&["16KiB", "64KiB", "128KiB", "1MiB"]))
}

/// Pace and target of a simple load.
fn simple(d: &mut Draw, disks: u64) -> String {
    let pace = match d.below(2) {
        0 => format!("rate={}", rate(d, disks)),
        _ => format!("clients={},think={}", d.pick(&[1, 4, 8, 16, 32]), d.pick(&["4ms", "8ms"])),
    };
    let (size, read, span) = (d.pick(&[4, 8, 16]), d.pick(&READS), d.pick(&SPANS));
    format!("{pace},size={size}KiB,read={read}%,span={span}GiB,requests=endless")
}

fn financial(name: &str, d: &mut Draw, disks: u64) -> String {
    format!("{name},rate={},span={}GiB,requests=endless", rate(d, disks), d.pick(&SPANS))
}
