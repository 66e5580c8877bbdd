//! `random`: requests of a fixed size, with every place equally likely, as fio's `randrw` with `norandommap`.

use crate::target::{self, Target};
use crate::{About, Workload, pace};
use braid_base::{BadSetting, Request, Rng, Settings};

pub(crate) const ABOUT: About = About {
    name: "random",
    summary: "reads and writes of one size, anywhere with equal probability",
    groups: &[target::SETTINGS, pace::SETTINGS],
};

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let target = Target::take(settings)?;
    let pace = pace::Pace::take(settings)?;
    let load = move || pace.load(seed, |_, rng| Random { target, rng });
    Ok(Workload::new(ABOUT.name, target.span, pace.requests, load))
}

struct Random {
    target: Target,
    rng: Rng,
}

impl Iterator for Random {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        let piece = self.rng.below(self.target.pieces());
        Some(self.target.request(piece, &mut self.rng))
    }
}
