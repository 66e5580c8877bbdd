//! Groups of map pages on the devices: the pages to read at the opening of a large volume.
//!
//! Creation writes no page of the map. The first checkpoint with a page of a group writes all pages of the
//! group. Then the summary names the group as written ([`braid_format::map_summary`]). In a volume without a
//! summary, creation has written all pages.

use braid_format::map_summary::Summary;
use std::collections::BTreeSet;
use std::ops::Range;

/// Groups named by the summaries on the devices.
pub(crate) struct Groups {
    /// Number of map pages.
    pages: u32,
    /// `None` for a volume without a summary.
    summary: Option<Summary>,
    /// Groups being written for the first time by a checkpoint.
    begun: Vec<u32>,
    /// True if the summary on some device may differ.
    is_stale: bool,
}

impl Groups {
    /// Groups of a volume without a summary: all pages were written.
    pub fn all(pages: u32) -> Groups {
        Groups { pages, summary: None, begun: Vec::new(), is_stale: false }
    }

    /// Groups named by a summary.
    pub fn of(pages: u32, summary: Summary, is_stale: bool) -> Groups {
        Groups { pages, summary: Some(summary), begun: Vec::new(), is_stale }
    }

    /// True if the summaries must be written again.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Pages of a group; `None` without a summary.
    pub fn group_len(&self) -> Option<u32> {
        self.summary.as_ref().map(Summary::group_len)
    }

    /// True if a page was written.
    pub fn contains(&self, page: u32) -> bool {
        self.summary.as_ref().is_none_or(|summary| summary.contains(summary.group_of(page)))
    }

    /// Written pages, in runs of at most `most` pages.
    pub fn runs(&self, most: u32) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        let Some(summary) = &self.summary else {
            return (0..self.pages).step_by(most as usize).map(|at| at..self.pages.min(at + most)).collect();
        };
        for group in summary.written() {
            let mut pages = summary.pages_of(group);
            if let Some(run) = runs.last_mut().filter(|run| run.end == pages.start) {
                run.end = pages.end.min(run.start + most);
                pages.start = run.end;
            }
            runs.extend(pages.clone().step_by(most as usize).map(|at| at..pages.end.min(at + most)));
        }
        runs
    }

    /// Marks the summaries as stale. Returns all pages on the devices, with the pages of groups being
    /// written, for a new write.
    pub fn mark_all_stale(&mut self) -> Vec<u32> {
        self.is_stale = self.summary.is_some();
        let begun = self.begun.iter().filter_map(|group| Some(self.summary.as_ref()?.pages_of(*group)));
        self.runs(self.pages.max(1)).into_iter().chain(begun).flatten().collect()
    }

    /// Begins a checkpoint of these pages, and adds the pages of groups never written. Returns the summary to
    /// write once the pages are durable; `None` if the summaries on the devices are up to date.
    pub fn begin(&mut self, pages: &mut BTreeSet<u32>) -> Option<Summary> {
        let summary = self.summary.as_mut()?;
        let groups: BTreeSet<u32> = pages.iter().map(|&page| summary.group_of(page)).collect();
        self.begun = groups.into_iter().filter(|&group| !summary.contains(group)).collect();
        if self.begun.is_empty() && !std::mem::take(&mut self.is_stale) {
            return None;
        }
        self.begun.iter().for_each(|&group| pages.extend(summary.pages_of(group)));
        // A new number even if the write fails: a device may already have this summary.
        summary.sequence += 1;
        self.is_stale = false;
        let mut next = summary.clone();
        self.begun.iter().for_each(|&group| next.insert(group));
        Some(next)
    }

    /// Ends a checkpoint. On success the summary, if any, is on all devices; on failure the summary is stale.
    pub fn end(&mut self, written: Option<Summary>, has_failed: bool) {
        self.begun.clear();
        match written {
            Some(_) if has_failed => self.is_stale = true,
            Some(written) => self.summary = Some(written),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pages: u32, group: u32, written: &[u32]) -> Groups {
        let mut summary = Summary::new(pages, group);
        written.iter().for_each(|&group| summary.insert(group));
        Groups::of(pages, summary, false)
    }

    #[test]
    fn runs_cover_exactly_the_written_groups() {
        assert_eq!(Groups::all(5).runs(2), [0..2, 2..4, 4..5]);
        assert_eq!(groups(10, 3, &[]).runs(4), []);
        assert_eq!(groups(10, 3, &[0, 1, 3]).runs(4), [0..4, 4..6, 9..10]);
        assert_eq!(groups(10, 8, &[0, 1]).runs(4), [0..4, 4..8, 8..10]);
        assert_eq!(groups(10, 1, &[0, 1, 2, 3, 4, 9]).runs(2), [0..2, 2..4, 4..5, 9..10]);
    }

    #[test]
    fn the_first_page_of_a_group_brings_the_whole_group_and_a_summary() {
        let mut groups = groups(10, 3, &[1]);
        let mut pages = BTreeSet::from([4]);
        assert_eq!(groups.begin(&mut pages), None, "the group was written before");
        groups.end(None, false);
        pages.insert(9);
        let summary = groups.begin(&mut pages).unwrap();
        assert_eq!(pages, BTreeSet::from([4, 9]));
        assert!(summary.contains(3) && !groups.contains(9), "it is not durable yet");
        assert_eq!(
            groups.mark_all_stale(),
            [3, 4, 5, 9],
            "a place that joins now needs what is being written"
        );
        groups.end(Some(summary), false);
        assert!(groups.contains(9) && groups.is_stale(), "what joined needs the summary, too");
    }

    #[test]
    fn group_and_summary_are_rewritten_after_failed_checkpoint() {
        let mut groups = groups(10, 3, &[]);
        let first = groups.begin(&mut BTreeSet::from([4])).unwrap();
        groups.end(Some(first.clone()), true);
        assert!(groups.is_stale() && !groups.contains(4));
        let mut pages = BTreeSet::from([4]);
        let second = groups.begin(&mut pages).unwrap();
        assert_eq!(pages, BTreeSet::from([3, 4, 5]));
        assert!(second.sequence > first.sequence, "a device may have the first one");
        groups.end(Some(second), false);
        assert!(!groups.is_stale() && groups.contains(4));
        assert_eq!(groups.begin(&mut BTreeSet::from([5])), None);
    }
}
