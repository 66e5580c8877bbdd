//! Looks of curves: one colour, mark and dash for each system, the same in all plots of a page.
//!
//! A policy has a colour, by its name. Each series of the policy has a dash and a mark of its own, in order
//! of first appearance. Two series of a policy have the same look only if 30 other series are between them.
//! Colours are in pairs, for light and for dark paper, and most are distinguishable with colour blindness;
//! marks and dashes are distinct without colour.

use crate::study::Study;
use serde::Serialize;
use std::collections::BTreeMap;

/// Colours on a light page.
pub(crate) const LIGHT: [&str; 12] = [
    "#5a5a5a", "#0072b2", "#c24e00", "#00805c", "#a83c8c", "#8a6a00", "#2f4fb5", "#9c2b2b", "#4c7a00",
    "#7a4fc0", "#00767d", "#b0005f",
];
/// The same colours on a dark page.
pub(crate) const DARK: [&str; 12] = [
    "#b0b0b0", "#56b4e9", "#ff8c42", "#2fc99a", "#e68ac8", "#e0b83a", "#8fa8ff", "#ff7f7f", "#a4d65e",
    "#b99cff", "#4fd5dc", "#ff6fb5",
];
/// Policies with a fixed colour; other policies get the remaining colours, in order of appearance.
const FIXED: [(&str, usize); 7] = [
    ("hdd-only", 0),
    ("ssd-only", 5),
    ("wardrop", 1),
    ("pass", 2),
    ("hystor", 3),
    ("exclusive", 4),
    ("working-set", 6),
];
/// Ink and gap in pixels; empty for a solid line.
pub(crate) const DASHES: [&[u32]; 6] = [&[], &[9, 4], &[2, 4], &[12, 4, 2, 4], &[5, 3], &[8, 3, 2, 3, 2, 3]];
/// Number of marks: drawn by `MARKS` in `page.js` and by `plot.rs`.
pub(crate) const MARKS: usize = 10;

/// Look of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Look {
    /// Index in [`LIGHT`] and [`DARK`].
    pub colour: usize,
    /// Index in [`DASHES`].
    pub dash: usize,
    /// Index below [`MARKS`].
    pub mark: usize,
}

/// Looks of all series of some studies.
pub(crate) struct Looks {
    colours: BTreeMap<String, usize>,
    /// Labels of each policy, in order of appearance.
    labels: BTreeMap<String, Vec<String>>,
}

impl Looks {
    /// Looks for all plots of these studies.
    pub fn of(studies: &[Study]) -> Looks {
        let mut looks = Looks { colours: BTreeMap::new(), labels: BTreeMap::new() };
        let mut free =
            (0..LIGHT.len()).filter(|colour| FIXED.iter().all(|(_, fixed)| fixed != colour)).cycle();
        for series in studies.iter().flat_map(|study| &study.series) {
            let policy = name(&series.policy);
            if !looks.colours.contains_key(policy) {
                let fixed = FIXED.iter().find(|(known, _)| *known == policy).map(|&(_, colour)| colour);
                let colour = fixed.or_else(|| free.next()).expect("some colours are not fixed");
                looks.colours.insert(policy.to_owned(), colour);
            }
            let labels = looks.labels.entry(policy.to_owned()).or_default();
            if !labels.contains(&series.label) {
                labels.push(series.label.clone());
            }
        }
        looks
    }

    /// Look of a series.
    pub fn look(&self, study: &Study, series: usize) -> Look {
        let series = &study.series[series];
        let policy = name(&series.policy);
        let colour = self.colours[policy];
        let rank = self.labels[policy].iter().position(|label| *label == series.label);
        let rank = rank.expect("the looks are of these studies");
        Look { colour, dash: rank % DASHES.len(), mark: (colour + 3 * rank) % MARKS }
    }
}

/// A policy without its settings.
fn name(policy: &str) -> &str {
    policy.split(',').next().unwrap_or(policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::all;
    use crate::study::{How, Seeds, unrun};

    fn studies() -> Vec<Study> {
        let how = How { seed: 1, seeds: Seeds::Fixed(1), quick: true, threads: None };
        all().into_iter().map(|experiment| unrun(experiment, how)).collect()
    }

    /// There were two dashes, so curves with three settings looked the same.
    #[test]
    fn curves_of_one_plot_have_distinct_looks() {
        let studies = studies();
        let looks = Looks::of(&studies);
        for study in &studies {
            let of_study: Vec<Look> =
                (0..study.series.len()).map(|series| looks.look(study, series)).collect();
            for (place, look) in of_study.iter().enumerate() {
                let same = of_study[..place].iter().position(|other| other == look);
                assert_eq!(same, None, "{}: {}", study.id, study.series[place].label);
            }
        }
    }

    #[test]
    fn system_looks_the_same_in_all_plots() {
        let studies = studies();
        let looks = Looks::of(&studies);
        let mut known: BTreeMap<(String, String), Look> = BTreeMap::new();
        for study in &studies {
            for (number, series) in study.series.iter().enumerate() {
                let key = (name(&series.policy).to_owned(), series.label.clone());
                let look = looks.look(study, number);
                assert_eq!(*known.entry(key).or_insert(look), look, "{}: {}", study.id, series.label);
            }
        }
        let colours: std::collections::BTreeSet<usize> =
            ["wardrop", "pass", "hystor", "exclusive", "working-set"]
                .map(|policy| looks.colours[policy])
                .into();
        assert_eq!(colours.len(), 5, "each of the five systems has a colour of its own");
    }
}
