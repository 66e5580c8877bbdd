//! Start of a reorganization (section III-C): the system is idle, and since the last reorganization either
//! enough new data was written or the working set has changed enough. A decision is made only after a new
//! guest request, so the same state never starts two reorganizations.
//!
//! The working set has changed enough if a measure differs by more than the share `change`. The measures are
//! the numbers of extents, hot extents and cold extents in each table, and the set of the hottest extents.
//! More free slots missing on the SSDs than before also count as a change. The paper names these measures and
//! leaves the threshold open.
//!
//! A reorganization interrupted by a guest is not over: it continues in the next idle time, with the extents
//! hot at that time.

use super::settings::Constants;
use super::table::Table;
use braid_base::{ExtentId, Nanos};

/// State for the decision.
#[derive(Default)]
pub struct Trigger {
    /// The working sets after the last reorganization.
    settled: Option<WorkingSets>,
    /// Time of the last request at the last look; time 0 means no request yet.
    looked: Nanos,
    /// True if a reorganization is in progress.
    pub under_way: bool,
    /// Extents allocated since the last reorganization.
    pub new_extents: u64,
    /// Reorganizations that may still begin; `None` means no limit.
    left: Option<u64>,
}

/// The working sets of reads and of writes, and the free slots missing on the SSDs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkingSets {
    pub reads: SetSummary,
    pub writes: SetSummary,
    /// Slots missing up to the water mark.
    pub lacking: u64,
}

/// Summary of a working set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetSummary {
    pub size: u64,
    pub hot: u64,
    pub cold: u64,
    /// The hottest extents, sorted by address.
    pub hottest: Vec<ExtentId>,
}

/// Number of hottest extents compared one by one.
pub const HOTTEST: usize = 32;

impl Trigger {
    pub fn new(runs: Option<u64>) -> Trigger {
        Trigger { left: runs, ..Trigger::default() }
    }

    /// True if a reorganization may begin in this idle time: a run is left, and a guest has sent a request
    /// since the last look.
    pub fn considers(&mut self, last_request: Nanos) -> bool {
        self.left != Some(0) && std::mem::replace(&mut self.looked, last_request) != last_request
    }

    /// Begins a reorganization if there is a reason, and returns true then. `enough` is the number of new
    /// extents that is a reason.
    pub fn begins(&mut self, enough: u64, change: f64, now: &WorkingSets) -> bool {
        let has_new_data = self.new_extents > 0 && self.new_extents >= enough;
        let has_changed = |settled: &WorkingSets| settled.has_changed(now, change);
        self.under_way = has_new_data || self.settled.as_ref().is_none_or(has_changed);
        if self.under_way {
            self.left = self.left.map(|left| left - 1);
        }
        self.under_way
    }

    /// Ends the reorganization, which has left the working sets `left`.
    pub fn settle(&mut self, left: WorkingSets) {
        (self.settled, self.under_way, self.new_extents) = (Some(left), false, 0);
    }

    /// Returns the working sets after the last reorganization, if any.
    pub fn settled(&self) -> Option<&WorkingSets> {
        self.settled.as_ref()
    }

    /// Restores the working sets after the last reorganization of an earlier opening.
    pub fn restore(&mut self, settled: WorkingSets) {
        self.settled = Some(settled);
    }
}

impl WorkingSets {
    pub fn of(reads: &Table, writes: &Table, half: u32, constants: &Constants, lacking: u64) -> WorkingSets {
        let of = |table: &Table| SetSummary::of(table, half, constants);
        WorkingSets { reads: of(reads), writes: of(writes), lacking }
    }

    fn has_changed(&self, now: &WorkingSets, change: f64) -> bool {
        self.reads.has_changed(&now.reads, change)
            || self.writes.has_changed(&now.writes, change)
            || now.lacking > self.lacking
    }
}

impl SetSummary {
    fn of(table: &Table, half: u32, constants: &Constants) -> SetSummary {
        let mut set = SetSummary::default();
        let mut hottest: Vec<(u8, ExtentId)> = Vec::with_capacity(HOTTEST * 2);
        for (extent, hotness) in table.working_set(half) {
            set.size += 1;
            set.cold += u64::from(hotness < constants.threshold_l);
            if hotness > constants.threshold_h {
                set.hot += 1;
                hottest.push((hotness, extent));
                if hottest.len() == HOTTEST * 2 {
                    keep_hottest(&mut hottest);
                }
            }
        }
        keep_hottest(&mut hottest);
        set.hottest = hottest.into_iter().map(|(_, extent)| extent).collect();
        set.hottest.sort_unstable();
        set
    }

    fn has_changed(&self, now: &SetSummary, change: f64) -> bool {
        let differs = |a: u64, b: u64| a.abs_diff(b) as f64 > change * a.max(b) as f64;
        let same = self.hottest.iter().filter(|extent| now.hottest.binary_search(extent).is_ok()).count();
        let all = self.hottest.len().max(now.hottest.len());
        differs(self.size, now.size)
            || differs(self.hot, now.hot)
            || differs(self.cold, now.cold)
            || differs(same as u64, all as u64)
    }
}

/// Keeps the hottest extents; among equals, the lowest addresses.
fn keep_hottest(extents: &mut Vec<(u8, ExtentId)>) {
    extents.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    extents.truncate(HOTTEST);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(size: u64, hottest: &[u32]) -> WorkingSets {
        let hottest: Vec<ExtentId> = hottest.iter().map(|&extent| ExtentId(extent)).collect();
        let reads = SetSummary { size, hot: hottest.len() as u64, cold: 0, hottest };
        WorkingSets { reads, ..WorkingSets::default() }
    }

    /// True if a reorganization begins again after a settled reorganization.
    fn again(before: WorkingSets, after: WorkingSets, new_extents: u64) -> bool {
        let mut trigger = Trigger::new(None);
        assert!(trigger.begins(10, 0.25, &before));
        trigger.settle(before);
        trigger.new_extents = new_extents;
        trigger.begins(10, 0.25, &after)
    }

    #[test]
    fn enough_new_data_or_change_triggers_reorganization() {
        let usual = || sets(100, &[1, 2, 3, 4]);
        assert!(!again(usual(), usual(), 0));
        assert!(!again(usual(), usual(), 9) && again(usual(), usual(), 10));
        assert!(!again(usual(), sets(130, &[1, 2, 3, 4]), 0) && again(usual(), sets(140, &[1, 2, 3, 4]), 0));
        assert!(!again(usual(), sets(100, &[1, 2, 3, 5]), 0) && again(usual(), sets(100, &[1, 2, 6, 5]), 0));
        assert!(again(usual(), WorkingSets { lacking: 1, ..usual() }, 0));
        assert!(!again(WorkingSets { lacking: 1, ..usual() }, usual(), 0));
    }

    #[test]
    fn trigger_skips_repeated_request_and_exhausted_runs() {
        let mut trigger = Trigger::new(Some(1));
        let considered = [0, 1, 1, 2, 2].map(|at| trigger.considers(Nanos(at)));
        assert_eq!(considered, [false, true, false, true, false]);
        assert!(trigger.begins(1, 0.25, &sets(9, &[])));
        trigger.settle(sets(9, &[]));
        assert!(!trigger.considers(Nanos(3)));
    }

    #[test]
    fn the_hottest_are_found_among_many() {
        let mut table = Table::new(1000);
        for extent in 0..500_u32 {
            for _ in 0..=(extent * 7 % 100) {
                table.record(ExtentId(extent), 0..1, 1);
            }
        }
        let constants = Constants::read(&mut braid_base::Settings::parse("policy", "working-set").unwrap());
        let set = SetSummary::of(&table, 1, &constants.unwrap());
        // Hotness is 1 to 100, each for five extents.
        assert_eq!((set.size, set.hot, set.cold, set.hottest.len()), (500, 485, 5, HOTTEST));
        let hotness: Vec<u8> = set.hottest.iter().map(|&extent| table.hotness(extent, 1)).collect();
        assert_eq!(hotness.into_iter().min(), Some(94));
    }
}
