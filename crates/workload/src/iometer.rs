//! `iometer-like`: access specifications of IOmeter, with `clients` outstanding requests.
//!
//! | specification | read | random | sizes | standing |
//! |---|---|---|---|---|
//! | `file-server` | 80 % | 100 % | 512 B 10 %, 1 K 5 %, 2 K 5 %, 4 K 60 %, 8 K 2 %, 16 K 4 %, 32 K 4 %, 64 K 10 % | paper: fio's `examples/iometer-file-access-server.fio` |
//! | `web-server` | 100 % | 100 % | 512 B 22 %, 1 K 15 %, 2 K 8 %, 4 K 23 %, 8 K 15 %, 16 K 2 %, 32 K 6 %, 64 K 7 %, 128 K 1 %, 512 K 1 % | memory |
//! | `workstation` | 80 % | 80 % | 8 K | memory |
//! | `database` | 67 % | 100 % | 8 K | memory |
//! | `pass-50`, `pass-90` | 50 %, 90 % | 50 % | 4 K | paper: Xiao et al., PASS, section V; 30 GB there |
//!
//! Load levels of the file server by outstanding requests: linear 1, very light 4, light 8, moderate 64,
//! heavy 256.
//!
//! Assumed: a sequential request begins at the end of the last request of its client. A random request begins
//! at a multiple of `align`, by default 512 B as IOmeter's default of sectors.

use crate::draw::Sizes;
use crate::pace::{self, Pace};
use crate::target::{LARGEST_SPAN, read_or_write};
use crate::{About, Setting, Workload};
use braid_base::{BadSetting, Bytes, GIB, MIB, Request, Rng, SECTOR, Settings};

pub(crate) const ABOUT: About = About {
    name: "iometer-like",
    summary: "access specifications of IOmeter: file server, web server, workstation, database, and PASS's two",
    groups: &[OWN, pace::SETTINGS],
};

const OWN: &[Setting] = &[
    Setting {
        key: "spec",
        default: "file-server",
        meaning: "`file-server`, `web-server`, `workstation`, `database`, `pass-50` or `pass-90`",
    },
    Setting { key: "span", default: "8GiB", meaning: "bytes that are used, from the start of the volume" },
    Setting { key: "align", default: "512B", meaning: "random requests begin at multiples of this" },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let name = settings.take_text("spec").unwrap_or_else(|| "file-server".to_owned());
    let span = settings.take_bytes("span", GIB * 8, MIB..=LARGEST_SPAN)?.align_down(SECTOR);
    let align = settings.take_bytes("align", SECTOR, SECTOR..=MIB)?;
    let pace = Pace::take(settings)?;
    let Some(&(_, read, random, sizes)) = SPECS.iter().find(|(known, ..)| *known == name) else {
        let names: Vec<&str> = SPECS.iter().map(|(known, ..)| *known).collect();
        return Err(settings.bad("spec", &name, &format!("one of {}", names.join(", "))));
    };
    if !align.is_aligned(SECTOR) {
        return Err(settings.bad("align", &align.to_string(), "a multiple of 512 B"));
    }
    let sizes = Sizes::new(sizes);
    let load = move || {
        let sizes = sizes.clone();
        pace.load(seed, move |_, rng| Access {
            span,
            align,
            read,
            random,
            sizes: sizes.clone(),
            end: span,
            rng,
        })
    };
    Ok(Workload::new(ABOUT.name, span, pace.requests, load))
}

/// Name, share of reads, share of random requests, sizes.
type Spec = (&'static str, f64, f64, &'static [(Bytes, u64)]);

const SPECS: &[Spec] = &[
    (
        "file-server",
        0.8,
        1.0,
        &[
            (Bytes(512), 10),
            (Bytes(1 << 10), 5),
            (Bytes(2 << 10), 5),
            (Bytes(4 << 10), 60),
            (Bytes(8 << 10), 2),
            (Bytes(16 << 10), 4),
            (Bytes(32 << 10), 4),
            (Bytes(64 << 10), 10),
        ],
    ),
    (
        "web-server",
        1.0,
        1.0,
        &[
            (Bytes(512), 22),
            (Bytes(1 << 10), 15),
            (Bytes(2 << 10), 8),
            (Bytes(4 << 10), 23),
            (Bytes(8 << 10), 15),
            (Bytes(16 << 10), 2),
            (Bytes(32 << 10), 6),
            (Bytes(64 << 10), 7),
            (Bytes(128 << 10), 1),
            (Bytes(512 << 10), 1),
        ],
    ),
    ("workstation", 0.8, 0.8, &[(Bytes(8 << 10), 1)]),
    ("database", 0.67, 1.0, &[(Bytes(8 << 10), 1)]),
    ("pass-50", 0.5, 0.5, &[(Bytes(4 << 10), 1)]),
    ("pass-90", 0.9, 0.5, &[(Bytes(4 << 10), 1)]),
];

struct Access {
    span: Bytes,
    align: Bytes,
    read: f64,
    random: f64,
    sizes: Sizes,
    /// End of the last request.
    end: Bytes,
    rng: Rng,
}

impl Iterator for Access {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let rng = &mut self.rng;
        let len = self.sizes.draw(rng);
        let is_random = rng.chance(self.random) || self.end + len > self.span;
        let offset = match is_random {
            true => self.align * rng.below((self.span - len) / self.align + 1),
            false => self.end,
        };
        self.end = offset + len;
        Some(Request { op: read_or_write(self.read, rng), offset, len })
    }
}
