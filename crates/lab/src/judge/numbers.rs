//! Numbers of claims, from the tables of all seeds.
//!
//! A number has one value for each seed. For an extreme (the best place, the worst ratio), the place is taken
//! from the means over all seeds, and the seeds' values at this place are used. The mean of each seed's own
//! extreme would be beyond the extreme of the means. If a value is missing in a seed there is no extreme,
//! because the place without a value may be the extreme.

use super::ruling::TIE;
use super::stand_in;
use crate::estimate::Estimate;
use crate::experiment::{Experiment, Measure, Quantity};
use crate::study::Table;

/// Results of an experiment, by seed.
pub(super) struct Results<'a> {
    pub experiment: &'a Experiment,
    pub seeds: &'a [Vec<Table>],
}

/// A number by seed.
type BySeed = Vec<f64>;

impl Results<'_> {
    /// A number, with its confidence interval. For a best place, the interval spans the places level with the
    /// best.
    pub fn estimate(&self, quantity: &Quantity, variants: &[&str]) -> Estimate {
        match *quantity {
            Quantity::BestPlace { measure, series } => self.best_places(measure, series, variants),
            _ => Estimate::of(&self.by_seed(quantity, variants)),
        }
    }

    fn by_seed(&self, quantity: &Quantity, variants: &[&str]) -> BySeed {
        let measure = quantity.measure();
        let less_is_better = !measure.more_is_better();
        let places = self.experiment.axis.places();
        let at = |series: &str, place: u32| self.values(measure, series, place, variants);
        let all_at = |series: &str, is_meant: &dyn Fn(u32) -> bool| -> Vec<BySeed> {
            places.iter().filter(|&&place| is_meant(place)).map(|&place| at(series, place)).collect()
        };
        let best = |candidates: Vec<BySeed>| extreme(candidates, !less_is_better);
        let worst = |candidates: Vec<BySeed>| extreme(candidates, less_is_better);
        let best_at = |to: &[&str], place: u32| best(to.iter().map(|series| at(series, place)).collect());
        let ratios = |of: &str, to: &[&str], from: u32| -> Vec<BySeed> {
            let places = places.iter().filter(|&&place| place >= from);
            places.map(|&place| divided(&at(of, place), &best_at(to, place))).collect()
        };
        let best_of = |series: &str| best(all_at(series, &|_| true));
        let steps = |series: &str, from: u32, to: u32| -> Vec<BySeed> {
            let values = all_at(series, &|place| (from..=to).contains(&place));
            values.windows(2).map(|pair| divided(&pair[1], &pair[0])).collect()
        };
        match *quantity {
            Quantity::Value { series, at: place, .. } => at(series, place),
            Quantity::Best { series, .. } => best_of(series),
            Quantity::BestPlace { series, .. } => {
                vec![self.best_places(measure, series, variants).mean]
            }
            Quantity::Peak { series, from, to, .. } => {
                let is_within = |place: u32| (from..=to).contains(&place);
                let within = best(all_at(series, &is_within));
                let elsewhere = best(all_at(series, &|place| !is_within(place)));
                if less_is_better { divided(&elsewhere, &within) } else { divided(&within, &elsewhere) }
            }
            Quantity::Ratio { of, to, at: place, .. } => divided(&at(of, place), &best_at(to, place)),
            Quantity::RatioToSum { of, to, at: place, .. } => {
                let parts: Vec<BySeed> = to.iter().map(|series| at(series, place)).collect();
                let sum = (0..self.seeds.len()).map(|seed| parts.iter().map(|part| part[seed]).sum());
                divided(&at(of, place), &sum.collect::<BySeed>())
            }
            Quantity::WorstRatio { of, to, from, .. } => worst(ratios(of, to, from)),
            Quantity::BestRatio { of, to, .. } => best(ratios(of, to, 0)),
            Quantity::Most { of, others, .. } => {
                let of_pair = |&(of, to): &(&str, &str)| best(ratios(of, &[to], 0));
                divided(&of_pair(&of), &best(others.iter().map(of_pair).collect()))
            }
            Quantity::RatioOfBests { of, to, .. } => {
                divided(&best_of(of), &best(to.iter().map(|series| best_of(series)).collect()))
            }
            Quantity::Change { series, at: place, from, .. } => {
                divided(&at(series, place), &at(series, from))
            }
            Quantity::Rise { series, from, to, .. } => extreme(steps(series, from, to), false),
            Quantity::Fall { series, from, to, .. } => extreme(steps(series, from, to), true),
        }
    }

    /// The place where a series is best on average, with the first and the last place level with it.
    fn best_places(&self, measure: Measure, series: &str, variants: &[&str]) -> Estimate {
        let places = self.experiment.axis.places();
        let values: Vec<BySeed> =
            places.iter().map(|&place| self.values(measure, series, place, variants)).collect();
        let Some(best) = extreme_place(&values, measure.more_is_better()) else {
            return Estimate { mean: f64::NAN, low: f64::NAN, high: f64::NAN };
        };
        let is_level = |candidate: &BySeed| {
            let ratio = Estimate::of(&divided(candidate, &values[best]));
            if measure.more_is_better() { ratio.high >= 1.0 - TIE } else { ratio.low <= 1.0 + TIE }
        };
        let level = |(place, values): (&u32, &BySeed)| is_level(values).then_some(f64::from(*place));
        let level: Vec<f64> = places.iter().zip(&values).filter_map(level).collect();
        let mean = f64::from(places[best]);
        // The best place is level with itself, unless its value is zero.
        let (low, high) = (level.first().unwrap_or(&mean), level.last().unwrap_or(&mean));
        Estimate { mean, low: low.min(mean), high: high.max(mean) }
    }

    /// True if all seeds gave the same value: there is one seed, or the runs of these series ignore the seed.
    pub fn is_one_sample(&self, quantity: &Quantity, variants: &[&str]) -> bool {
        let named = quantity.series();
        let labels = named.iter().map(|series| stand_in(self.experiment, series, variants));
        let rows: Vec<usize> = labels.filter_map(|label| self.row(label)).collect();
        let Some((first, others)) = self.seeds.split_first() else { return true };
        let is_alike = |seed: &Vec<Table>| {
            let alike =
                |(a, b): (&Table, &Table)| rows.iter().all(|&row| a.values.get(row) == b.values.get(row));
            first.iter().zip(seed).all(alike)
        };
        others.iter().all(is_alike)
    }

    fn row(&self, label: &str) -> Option<usize> {
        self.experiment.series.iter().position(|series| series.label == label)
    }

    fn values(&self, measure: Measure, series: &str, place: u32, variants: &[&str]) -> BySeed {
        let row = self.row(stand_in(self.experiment, series, variants));
        let column = self.experiment.axis.places().iter().position(|&known| known == place);
        let value = |tables: &Vec<Table>| {
            let table = tables.iter().find(|table| table.of == Some(measure))?;
            table.values.get(row?)?.get(column?).copied()?
        };
        self.seeds.iter().map(|tables| value(tables).unwrap_or(f64::NAN)).collect()
    }
}

fn divided(numbers: &BySeed, by: &BySeed) -> BySeed {
    numbers.iter().zip(by).map(|(number, by)| number / by).collect()
}

/// The candidate with the highest or lowest mean; NaN if a candidate has no number, or there is no candidate.
fn extreme(mut candidates: Vec<BySeed>, highest: bool) -> BySeed {
    match extreme_place(&candidates, highest) {
        Some(place) => candidates.swap_remove(place),
        None => vec![f64::NAN],
    }
}

fn extreme_place(candidates: &[BySeed], highest: bool) -> Option<usize> {
    let means: Vec<f64> = candidates.iter().map(|candidate| Estimate::of(candidate).mean).collect();
    if means.iter().any(|mean| mean.is_nan()) {
        return None;
    }
    let better = |a: f64, b: f64| if highest { a > b } else { a < b };
    (0..means.len()).reduce(|best, place| if better(means[place], means[best]) { place } else { best })
}
