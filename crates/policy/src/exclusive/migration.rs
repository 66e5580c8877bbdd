//! Migration between tiers: pages with a new tier in the ranking move extent by extent, at a limited rate.
//!
//! The paper limits "the transfer rate of migration between tiers to the HDD maximum transfer rate to 10%"
//! (section 4.3) and gives no order of pages. Here pages for the SSD tier come first, the busiest page first.
//! The rest of the rate, or all of it if the SSD tier is full, is for pages that leave the tier, the least
//! busy page first. The rate is in bytes for each disk. [`crate::Plan::limit`] is not used: it would also
//! limit the write-back of the cache.
//!
//! A stopped move, for example after a guest's write to the extent, is requested again after the other pages.

use super::ranking::{Changes, Ranking};
use super::split::Split;
use crate::{Move, View};
use braid_base::{Bytes, DeviceClass, ExtentId, Nanos};
use std::collections::{BTreeSet, VecDeque};

/// Migrations still to be done.
pub(super) struct Migration {
    /// Bytes per second that leave or reach a disk.
    rate: Bytes,
    coming: Pages,
    leaving: Pages,
    /// By device: bytes that may move now. Below 0 after an extent larger than the budget.
    budgets: Vec<f64>,
    /// Time up to which `budgets` is counted.
    counted: Nanos,
}

/// Pages that migrate to one tier.
struct Pages {
    to: DeviceClass,
    /// Each page with the number of its next extent.
    queue: VecDeque<(u32, u32)>,
    /// Pages with an extent that did not move.
    again: BTreeSet<u32>,
}

/// Limits of one plan.
struct PlanLimits<'a> {
    ranking: &'a Ranking,
    split: &'a Split,
    view: &'a View<'a>,
    /// By device: free extent slots.
    room: Vec<i64>,
    /// By device: bytes.
    budgets: &'a mut [f64],
    moves: &'a mut Vec<Move>,
}

/// Time between two plans while pages migrate: short, so that migration loads a disk evenly.
pub(super) const TICK: Nanos = Nanos::from_millis(100);
/// Longest time credited between two plans. A plan that also writes back takes longer; the time is made up
/// for to this limit.
const LONGEST: Nanos = Nanos::from_secs(1);
/// Pages of a tier examined by one plan, to find work for each disk.
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

    /// Begins with the changes of a new ranking. Migrations left from the last ranking are dropped.
    pub fn begin(&mut self, Changes { leaving, coming }: Changes) {
        for (pages, numbers) in [(&mut self.coming, coming), (&mut self.leaving, leaving)] {
            pages.queue = numbers.into_iter().map(|number| (number, 0)).collect();
            pages.again.clear();
        }
    }

    /// Number of pages still to migrate.
    pub fn pages(&self) -> usize {
        let left = |pages: &Pages| pages.queue.len() + pages.again.len();
        left(&self.coming) + left(&self.leaving)
    }

    /// Adds as many moves as the rate allows.
    pub fn plan(&mut self, ranking: &Ranking, split: &Split, view: &View, moves: &mut Vec<Move>) {
        self.earn(view.now);
        let room = view.devices.iter().map(|device| split.room(device, view)).collect();
        let mut limits = PlanLimits { ranking, split, view, room, budgets: &mut self.budgets, moves };
        self.coming.plan(&mut limits);
        self.leaving.plan(&mut limits);
    }

    /// Records that an extent of a page did not move.
    pub fn stopped(&mut self, page: u32, to: DeviceClass) {
        let pages = if to == DeviceClass::Ssd { &mut self.coming } else { &mut self.leaving };
        pages.again.insert(page);
    }

    /// Adds the budget earned since the last plan. Unspent budget does not carry over.
    fn earn(&mut self, now: Nanos) {
        let time = now.saturating_sub(std::mem::replace(&mut self.counted, now)).min(LONGEST);
        let earned = self.rate.0 as f64 * time.as_secs_f64();
        self.budgets.iter_mut().for_each(|budget| *budget = (*budget + earned).min(earned));
    }
}

impl Pages {
    fn plan(&mut self, limits: &mut PlanLimits) {
        if self.queue.is_empty() {
            self.queue.extend(std::mem::take(&mut self.again).into_iter().map(|page| (page, 0)));
        }
        let mut left = Vec::new();
        for _ in 0..LOOKED_AT {
            let Some((page, from)) = self.queue.pop_front() else { break };
            left.extend(limits.move_page(page, from, self.to).map(|next| (page, next)));
        }
        left.into_iter().rev().for_each(|page| self.queue.push_front(page));
    }
}

impl PlanLimits<'_> {
    /// Plans moves of a page's extents to the tier, beginning at number `from`. Returns the number to
    /// continue at if room or budget is used up.
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
