//! `webserver-like`: files that web servers read as a whole, some files far more often than others. After the
//! workload "Parallel Web Server" of the working-set paper.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | requests | about 1.5 million, by four clients to several servers | paper: Chen et al., "Using Working Set Reorganization…", section IV-A |
//! | what they return | 36 GB, so 24 KB each | same |
//! | size of a file | 8 to 32 KiB by steps of 8 KiB, 23.4 KiB in the mean of all files | the mean: as above; the shares are assumed |
//! | popularity | Zipf's law, exponent 0.8 | memory: Breslau et al., INFOCOM 1999, found 0.64 to 0.83 |
//! | files | in 4 GiB, a slot of 32 KiB for each, scattered | assumed |
//! | log | 4 KiB are appended for every 40 requests, and overwritten after 64 MiB | assumed: some 100 bytes a line |
//! | idle time | nobody asks for anything for 10 s after every 100,000 requests | assumed: in the paper the system is idle at times, and it does not say when |
//!
//! The trace comes from the Maryland applications (Uysal, Acharya, Saltz, 1998) and is not published in this
//! form. This workload is a substitute, not the trace. The page caches of the servers are not modelled.

use crate::draw::{Scatter, Sizes, Zipf};
use crate::pace::{DAY, MOST_CLIENTS, share, take_requests};
use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, GIB, MIB, Nanos, Op, Request, Rng, Settings};
use std::sync::Arc;

pub(crate) const ABOUT: About = About {
    name: "webserver-like",
    summary: "files of web servers, read whole, by Zipf's law; a log; pauses",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "requests", default: "1.5M", meaning: "requests of all clients together, or `endless`" },
    Setting { key: "clients", default: "4", meaning: "clients, each with one request at a time" },
    Setting { key: "span", default: "4GiB", meaning: "bytes of all files, 32 KiB for each" },
    Setting { key: "theta", default: "0.8", meaning: "exponent of Zipf's law, 0 to 4" },
    Setting { key: "burst", default: "100K", meaning: "requests of all clients before a pause" },
    Setting { key: "pause", default: "10s", meaning: "time between bursts without requests" },
];

/// Room for a file.
const SLOT: Bytes = Bytes(32 << 10);
const SIZES: &[(Bytes, u64)] =
    &[(Bytes(8 << 10), 10), (Bytes(16 << 10), 20), (Bytes(24 << 10), 37), (Bytes(32 << 10), 33)];
const LOG: Bytes = Bytes(64 << 20);
const LOG_WRITE: Bytes = Bytes(4 << 10);
/// Requests for each write of the log, the write included.
const LOGGED: u64 = 40;

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let requests = take_requests(settings, Some(1_500_000))?;
    let clients = settings.take_count("clients", 4, 1..=MOST_CLIENTS.min(LOG / LOG_WRITE))?;
    let span = settings.take_bytes("span", GIB * 4, MIB..=LARGEST_SPAN / 2)?.align_down(SLOT);
    let theta = settings.take_within("theta", 0.8, 0.0, 4.0)?;
    let burst = settings.take_count("burst", 100_000, 1..=u64::MAX / 2)?;
    let pause = settings.take_time("pause", Nanos::from_secs(10), Nanos::ZERO..=DAY)?;
    let (ranks, sizes) = (Arc::new(Zipf::new(span / SLOT, theta)), Arc::new(Sizes::new(SIZES)));
    let load = move || {
        let files = Arc::new(Scatter::new(span / SLOT, &mut Rng::new(!seed)));
        let mut rng = Rng::new(seed);
        let mut server = |client| Server {
            files: files.clone(),
            ranks: ranks.clone(),
            sizes: sizes.clone(),
            rng: rng.fork(),
            seed,
            burst: (burst / clients).max(1),
            pause,
            log: span + (LOG / clients).align_down(LOG_WRITE) * client,
            log_len: (LOG / clients).align_down(LOG_WRITE),
            made: 0,
            left: requests.map_or(u64::MAX, |all| share(all, client, clients)),
            rest: Rest::None,
        };
        Load::Closed((0..clients).map(|client| Box::new(server(client)) as Client).collect())
    };
    Ok(Workload::new(ABOUT.name, span + LOG, requests, load).with_filled([Bytes::ZERO..span].to_vec()))
}

struct Server {
    files: Arc<Scatter>,
    ranks: Arc<Zipf>,
    sizes: Arc<Sizes>,
    rng: Rng,
    seed: u64,
    /// Requests of this client before a pause.
    burst: u64,
    pause: Nanos,
    /// Start and length of this client's part of the log.
    log: Bytes,
    log_len: Bytes,
    made: u64,
    left: u64,
    rest: Rest,
}

/// State before the next request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    None,
    Meet,
    Pause,
}

impl Iterator for Server {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.left == 0 {
            return None;
        }
        match self.rest {
            Rest::None => {}
            Rest::Meet => {
                self.rest = Rest::Pause;
                return Some(Step::Meet);
            }
            Rest::Pause => {
                self.rest = Rest::None;
                return Some(Step::Pause(self.pause));
            }
        }
        let request = if self.made % LOGGED == LOGGED - 1 { self.append() } else { self.read() };
        (self.made, self.left) = (self.made + 1, self.left - 1);
        if self.made.is_multiple_of(self.burst) {
            self.rest = Rest::Meet;
        }
        Some(Step::Request { think: Nanos::ZERO, request })
    }
}

impl Server {
    /// Returns a read of a whole file. The size of a file is constant.
    fn read(&mut self) -> Request {
        let file = self.files.place(self.ranks.draw(&mut self.rng));
        let len = self.sizes.draw(&mut Rng::new(self.seed ^ file));
        Request { op: Op::Read, offset: SLOT * file, len }
    }

    fn append(&mut self) -> Request {
        let at = LOG_WRITE * (self.made / LOGGED);
        let offset = self.log + Bytes(at.0 % self.log_len.0);
        Request { op: Op::Write, offset, len: LOG_WRITE }
    }
}
