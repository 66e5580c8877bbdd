//! Description of a number, in words.

use super::stand_in;
use crate::experiment::{Experiment, Quantity};

/// Describes a number of an experiment, with its unit. `variants` replace the series of the same systems.
pub fn describe(experiment: &Experiment, quantity: &Quantity, variants: &[&str]) -> String {
    let measure = quantity.measure();
    let (name, unit, axis) = (measure.name(), measure.unit(), experiment.axis.label());
    let label = |series| stand_in(experiment, series, variants);
    let best_of = |to: &[&'static str]| match to {
        [one] => label(one).to_owned(),
        several => {
            let labels: Vec<&str> = several.iter().map(|series| label(series)).collect();
            format!("the best of {}", labels.join(", "))
        }
    };
    match *quantity {
        Quantity::Value { series, at, .. } => format!("{name} of {}, {axis} {at}, {unit}", label(series)),
        Quantity::Best { series, .. } => format!("best {name} of {}, {unit}", label(series)),
        Quantity::BestPlace { series, .. } => {
            format!("{axis} at which {} has its best {name}", label(series))
        }
        Quantity::Peak { series, from, to, .. } => format!(
            "how much better the best {name} of {} is for {axis} {from} to {to} than elsewhere, as a factor",
            label(series)
        ),
        Quantity::Ratio { of, to, at, .. } => {
            format!("{name} of {}, {axis} {at}, as a multiple of {}", label(of), best_of(to))
        }
        Quantity::RatioToSum { of, to, at, .. } => {
            format!("{name} of {}, {axis} {at}, as a part of {} added up", label(of), to.join(" and "))
        }
        Quantity::WorstRatio { of, to, from, .. } => format!(
            "{name} of {} as a multiple of {}, where that is worst from {axis} {from} on",
            label(of),
            best_of(to)
        ),
        Quantity::BestRatio { of, to, .. } => {
            format!("{name} of {} as a multiple of {}, where that is best", label(of), best_of(to))
        }
        Quantity::Most { of, others, .. } => {
            let others: Vec<&str> = others.iter().map(|&(of, _)| label(of)).collect();
            let to = label(of.1);
            format!(
                "{name} of {} as a multiple of {to}, where that is best, as a multiple of the same of the best of {}",
                label(of.0),
                others.join(", ")
            )
        }
        Quantity::RatioOfBests { of, to, .. } => {
            format!("best {name} of {} as a multiple of that of {}", label(of), best_of(to))
        }
        Quantity::Change { series, at, from, .. } => {
            format!("{name} of {}, {axis} {at}, as a multiple of that at {from}", label(series))
        }
        Quantity::Rise { series, from, to, .. } => format!(
            "{name} of {}, {axis} {from} to {to}, as a multiple of that one place before, where it rises least",
            label(series)
        ),
        Quantity::Fall { series, from, to, .. } => format!(
            "{name} of {}, {axis} {from} to {to}, as a multiple of that one place before, where it falls least",
            label(series)
        ),
    }
}
