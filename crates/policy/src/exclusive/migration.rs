//! Migration between tiers: pages that a ranking has moved from one tier to the other, extent by extent and
//! at a limited rate.
//!
//! The paper limits "the transfer rate of migration between tiers to the HDD maximum transfer rate to 10%"
//! (section 4.3) and does not say in which order pages migrate. Here the most asked for come first; what the
//! rate leaves over, and all of it if the SSD tier is full, is for those that leave, the least asked for
//! first. The rate is one in bytes for each disk, and not [`crate::Plan::limit`], which would hold back the
//! write-back of the cache as well.
//!
//! What does not come about, for a guest wrote to the extent meanwhile, is asked for again once the other
//! pages are through.

use super::ranking::{Changes, Ranking};
use super::split::Split;
use crate::{Move, View};
use braid_base::{Bytes, DeviceClass, ExtentId, Nanos};
use std::collections::{BTreeSet, VecDeque};

/// What is still to be moved.
pub(super) struct Migration {
    /// Bytes per second that leave or reach a disk.
    rate: Bytes,
    coming: Pages,
    leaving: Pages,
    /// By device: bytes that may move now. Below 0 after an extent that was larger than that.
    budgets: Vec<f64>,
    /// Up to when these are counted.
    counted: Nanos,
}

/// Pages that go to one tier.
struct Pages {
    to: DeviceClass,
    /// Each with its next extent.
    queue: VecDeque<(u32, u32)>,
    /// Those of which an extent did not move.
    again: BTreeSet<u32>,
}

/// What one plan may still ask for.
struct Rest<'a> {
    ranking: &'a Ranking,
    split: &'a Split,
    view: &'a View<'a>,
    /// By device: extent slots.
    room: Vec<i64>,
    /// By device: bytes.
    budgets: &'a mut [f64],
    moves: &'a mut Vec<Move>,
}

/// The time between two plans while pages migrate: so short that a disk gives its part of the time evenly.
pub(super) const TICK: Nanos = Nanos::from_millis(100);
/// A plan that also writes back takes longer; after that much is made up for.
const LONGEST: Nanos = Nanos::from_secs(1);
/// Pages of a tier that one plan looks at, to find work for each disk.
const LOOKED_AT: usize = 64;

impl Migration {
    pub fn new(rate: Bytes, devices: usize) -> Migration {
        let pages = |to| Pages { to, queue: VecDeque::new(), again: BTreeSet::new() };
        Migration {
            rate,
            coming: pages(DeviceClass::Ssd),
            leaving: pages(DeviceClass::Hdd),
            budgets: vec![0.0; devices],
            counted: Nanos::ZERO,
        }
    }

    /// A new ranking: what is left of the last one is forgotten.
    pub fn begin(&mut self, Changes { leaving, coming }: Changes) {
        for (pages, numbers) in [(&mut self.coming, coming), (&mut self.leaving, leaving)] {
            pages.queue = numbers.into_iter().map(|number| (number, 0)).collect();
            pages.again.clear();
        }
    }

    /// Pages that are not where they belong yet.
    pub fn pages(&self) -> usize {
        let left = |pages: &Pages| pages.queue.len() + pages.again.len();
        left(&self.coming) + left(&self.leaving)
    }

    /// Adds as many moves as the rate allows.
    pub fn plan(&mut self, ranking: &Ranking, split: &Split, view: &View, moves: &mut Vec<Move>) {
        self.earn(view.now);
        let room = view.devices.iter().map(|device| split.room(device, view)).collect();
        let mut rest = Rest { ranking, split, view, room, budgets: &mut self.budgets, moves };
        self.coming.plan(&mut rest);
        self.leaving.plan(&mut rest);
    }

    /// A move of an extent of this page did not come about.
    pub fn stopped(&mut self, page: u32, to: DeviceClass) {
        let pages = if to == DeviceClass::Ssd { &mut self.coming } else { &mut self.leaving };
        pages.again.insert(page);
    }

    /// What the rate has given since the last plan. Nothing is saved up.
    fn earn(&mut self, now: Nanos) {
        let time = now.saturating_sub(std::mem::replace(&mut self.counted, now)).min(LONGEST);
        let earned = self.rate.0 as f64 * time.as_secs_f64();
        self.budgets.iter_mut().for_each(|budget| *budget = (*budget + earned).min(earned));
    }
}

impl Pages {
    fn plan(&mut self, rest: &mut Rest) {
        if self.queue.is_empty() {
            self.queue.extend(std::mem::take(&mut self.again).into_iter().map(|page| (page, 0)));
        }
        let mut left = Vec::new();
        for _ in 0..LOOKED_AT {
            let Some((page, from)) = self.queue.pop_front() else { break };
            left.extend(rest.move_page(page, from, self.to).map(|next| (page, next)));
        }
        left.into_iter().rev().for_each(|page| self.queue.push_front(page));
    }
}

impl Rest<'_> {
    /// Moves what is not there yet of a page, from its extent number `from` on; where to go on, if there is
    /// no room or no budget for more.
    fn move_page(&mut self, page: u32, from: u32, to: DeviceClass) -> Option<u32> {
        let extents = self.ranking.extents_of(page, self.view);
        for number in from..extents.len() as u32 {
            let extent = ExtentId(extents.start + number);
            let home = self.view.homes.home(extent);
            let class = home.map(|home| self.view.devices[home.index()].class);
            let Some(home) = home.filter(|_| class != Some(to)) else { continue };
            let Some(target) = self.split.target(page, to, &self.room) else { return Some(number) };
            let disk = if to == DeviceClass::Ssd { home } else { target };
            if self.budgets[disk.index()] <= 0.0 {
                return Some(number);
            }
            self.budgets[disk.index()] -= self.view.extent_size.0 as f64;
            self.room[target.index()] -= 1;
            self.moves.push(Move::Migrate { extent, target });
        }
        None
    }
}
