//! A policy that does whatever a policy may do, at random: if nothing is lost under this one, the engine is safe
//! whatever the others decide.

use braid_base::{BlockId, DeviceId, ExtentId, Nanos, Rng};
use braid_policy::{Access, DeviceView, Move, Placement, Policy, View};

pub struct Chaos {
    rng: Rng,
    extras: Vec<(BlockId, DeviceId)>,
}

impl Chaos {
    pub fn new(rng: Rng) -> Chaos {
        Chaos { rng, extras: Vec::new() }
    }

    fn device(&mut self, view: &View) -> DeviceId {
        view.devices[self.rng.below(view.devices.len() as u64) as usize].id
    }

    fn extent(&mut self, view: &View) -> ExtentId {
        ExtentId(self.rng.below(u64::from(view.homes.extents())) as u32)
    }

    fn extra(&mut self) -> Option<BlockId> {
        let count = self.extras.len() as u64;
        (count > 0).then(|| self.extras[self.rng.below(count) as usize].0)
    }
}

impl Policy for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn settings(&self) -> String {
        String::new()
    }

    fn place_new(&mut self, _: ExtentId, view: &View) -> DeviceId {
        self.device(view)
    }

    fn place_write(&mut self, write: &Access, view: &View) -> Placement {
        let device = self.device(view);
        match self.rng.below(4) {
            0 => Placement::Extra(device),
            1 if write.cached => Placement::NewHome(device),
            _ => Placement::Home,
        }
    }

    fn admit(&mut self, _: &Access, view: &View) -> Option<DeviceId> {
        self.rng.chance(0.3).then(|| self.device(view))
    }

    fn extra_slots(&self, _: &DeviceView) -> u32 {
        3
    }

    fn evict(&mut self, device: DeviceId) -> Option<BlockId> {
        let here: Vec<BlockId> = self.extras.iter().filter(|(_, d)| *d == device).map(|(b, _)| *b).collect();
        (!here.is_empty()).then(|| here[self.rng.below(here.len() as u64) as usize])
    }

    fn extra_made(&mut self, block: BlockId, device: DeviceId) {
        self.extras.push((block, device));
    }

    fn extra_gone(&mut self, block: BlockId) {
        let before = self.extras.len();
        self.extras.retain(|(b, _)| *b != block);
        assert_eq!(self.extras.len() + 1, before, "{block:?} was made once and goes once");
    }

    fn plan(&mut self, view: &View, moves: &mut Vec<Move>) -> Nanos {
        for _ in 0..self.rng.below(4) {
            let (extent, target) = (self.extent(view), self.device(view));
            let block = self.extra();
            moves.push(match (self.rng.below(5), block) {
                (0, Some(block)) => Move::WriteBack { block },
                (1, Some(block)) => Move::Demote { block },
                (2, _) => Move::Mirror { extent, target },
                _ => Move::Migrate { extent, target },
            });
        }
        view.now + Nanos(self.rng.below(3_000_000))
    }

    fn explain(&self, _: ExtentId, _: &View) -> String {
        "chance".to_owned()
    }
}
