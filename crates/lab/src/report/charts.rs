//! Data of the page's charts, drawn by `page.js` with uPlot.

use super::looks::{DARK, DASHES, LIGHT, Look, Looks};
use crate::study::{PaperValue, Study, Table};
use serde::Serialize;

/// Ratio of curves from which on the lowest curve vanishes on a linear axis.
const FAR: f64 = 20.0;
/// Distributions of an axis in uPlot.
const LINEAR: u8 = 1;
const LOGARITHMIC: u8 = 3;
/// Logarithmic with a place for zero: the inverse hyperbolic sine.
const LOGARITHMIC_WITH_ZERO: u8 = 4;

#[derive(Serialize)]
pub(super) struct Charts<'a> {
    colours: Colours,
    dashes: [&'static [u32]; DASHES.len()],
    charts: Vec<Chart<'a>>,
}

#[derive(Serialize)]
struct Colours {
    light: [&'static str; LIGHT.len()],
    dark: [&'static str; DARK.len()],
}

#[derive(Serialize)]
struct Chart<'a> {
    x: Across<'a>,
    y: Up<'a>,
    series: Vec<Curve<'a>>,
    paper: &'a [PaperValue],
}

#[derive(Serialize)]
struct Across<'a> {
    label: &'a str,
    values: &'a [u32],
    distribution: u8,
}

#[derive(Serialize)]
struct Up<'a> {
    label: &'a str,
    unit: &'a str,
    distribution: u8,
}

#[derive(Serialize)]
struct Curve<'a> {
    label: &'a str,
    look: Look,
    values: Vec<Option<f64>>,
    half_widths: Vec<f64>,
    seeds_without: &'a [u32],
}

impl Charts<'_> {
    /// A chart for each table, in order.
    pub fn of<'a>(studies: &'a [Study], looks: &Looks) -> Charts<'a> {
        let of_study = |study: &'a Study| study.tables.iter().map(move |table| (study, table));
        Charts {
            colours: Colours { light: LIGHT, dark: DARK },
            dashes: DASHES,
            charts: studies
                .iter()
                .flat_map(of_study)
                .map(|(study, table)| chart(study, table, looks))
                .collect(),
        }
    }

    /// JSON that can be embedded in a page: no `<` ends the script.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are always written").replace('<', "\\u003c")
    }
}

fn chart<'a>(study: &'a Study, table: &'a Table, looks: &Looks) -> Chart<'a> {
    let curve = |(number, values): (usize, &Vec<Option<f64>>)| Curve {
        label: &study.series[number].label,
        look: looks.look(study, number),
        values: values.iter().map(|value| value.filter(|value| value.is_finite()).map(rounded)).collect(),
        half_widths: table.half_widths[number]
            .iter()
            .map(|half| if half.is_finite() { rounded(*half) } else { 0.0 })
            .collect(),
        seeds_without: &table.seeds_without[number],
    };
    let across = if by_factors(study) { LOGARITHMIC } else { LINEAR };
    Chart {
        x: Across { label: &study.axis, values: &study.axis_values, distribution: across },
        y: Up { label: &table.measure, unit: &table.unit, distribution: distribution(table) },
        series: table.values.iter().enumerate().map(curve).collect(),
        paper: &table.paper_values,
    }
}

/// Five digits: more than a screen shows.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().expect("a number that was written can be read")
}

/// True if the horizontal axis is logarithmic: its last place is many times the first.
pub(super) fn by_factors(study: &Study) -> bool {
    let (first, last) = (study.axis_values[0], study.axis_values[study.axis_values.len() - 1]);
    first > 0 && last / first >= 64
}

/// Distribution of the vertical axis: linear, unless the highest curve is 20 times the lowest.
fn distribution(table: &Table) -> u8 {
    let values = || table.values.iter().flatten().flatten().copied().filter(|value| value.is_finite());
    let highest =
        |row: &Vec<Option<f64>>| row.iter().flatten().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
    let curves: Vec<f64> = table.values.iter().map(highest).filter(|highest| *highest > 0.0).collect();
    let (least, most) =
        (curves.iter().copied().fold(f64::INFINITY, f64::min), curves.iter().copied().fold(0.0, f64::max));
    match () {
        () if curves.len() < 2 || most < FAR * least => LINEAR,
        () if values().all(|value| value > 0.0) => LOGARITHMIC,
        () => LOGARITHMIC_WITH_ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: &[&[f64]]) -> Table {
        let row = |row: &&[f64]| row.iter().copied().map(Some).collect::<Vec<_>>();
        let zeros = |row: &&[f64]| vec![0.0; row.len()];
        Table {
            measure: "throughput".to_owned(),
            unit: "MB/s".to_owned(),
            more_is_better: true,
            values: values.iter().map(row).collect(),
            half_widths: values.iter().map(zeros).collect(),
            seeds_without: values.iter().map(|row| vec![0; row.len()]).collect(),
            paper_values: Vec::new(),
            of: None,
        }
    }

    #[test]
    fn axis_is_logarithmic_if_curves_differ_twentyfold() {
        assert_eq!(distribution(&table(&[&[1.0, 2.0], &[30.0, 39.0]])), LINEAR);
        assert_eq!(distribution(&table(&[&[1.0, 2.0], &[30.0, 41.0]])), LOGARITHMIC);
        assert_eq!(distribution(&table(&[&[1.0, 2.0], &[0.0, 41.0]])), LOGARITHMIC_WITH_ZERO);
        // A single curve is always visible.
        assert_eq!(distribution(&table(&[&[1.0, 900.0]])), LINEAR);
    }
}
