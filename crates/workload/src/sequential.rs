//! `sequential`: each client goes through its own part of the span from start to end, and begins again, as
//! fio's `rw` with `offset_increment`.

use crate::target::{self, Target};
use crate::{About, Workload, pace};
use braid_base::{BadSetting, Request, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "sequential",
    summary: "reads and writes of one size, one after the other; each client in a part of its own",
    groups: &[target::SETTINGS, pace::SETTINGS],
};

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let target = Target::take(settings)?;
    let pace = pace::Pace::take(settings)?;
    let (pieces, clients) = (target.pieces(), pace.streams());
    if pieces < clients {
        return Err(settings.bad(
            "clients",
            &clients.to_string(),
            &format!("at most {pieces}, one for each piece of the span"),
        ));
    }
    let load = move || {
        pace.load(seed, |client, rng| {
            let first = pieces * client / clients;
            let end = pieces * (client + 1) / clients;
            Sequential { target, rng, first, end, next: first }
        })
    };
    Ok(Workload::new(ABOUT.name, target.span, pace.requests, load))
}

struct Sequential {
    target: Target,
    rng: Rng,
    first: u64,
    end: u64,
    next: u64,
}

impl Iterator for Sequential {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let piece = self.next;
        self.next = if piece + 1 == self.end { self.first } else { piece + 1 };
        Some(self.target.request(piece, &mut self.rng))
    }
}
