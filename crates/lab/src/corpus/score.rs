//! What the rows' values come to: ratios to the best of each cell, how sure they are, and totals.

use super::cell::{Change, Half};
use super::rows::{Kind, Row};
use super::run::{CellOutcome, Outcome, Value};
use serde::Serialize;

/// What a run came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Totals {
    /// Cells that count: in which nothing failed.
    #[serde(rename = "cell_count")]
    pub cells: usize,
    /// Cells that do not count, with the reason.
    #[serde(rename = "failures")]
    pub failed: Vec<String>,
    /// Rows that apply to all cells, and the best static split of each cell; the best first.
    pub lines: Vec<Line>,
    /// Rows that apply to some cells only, each over these.
    pub partial: Vec<Partial>,
    /// How far the best row of a cell differs from itself with the other seed, relative to the mean: the
    /// middle of all cells.
    #[serde(rename = "noise_median_share")]
    pub noise_median: f64,
    /// Cells where it differs by more than 5 %.
    pub noisy_cells: usize,
    /// Cells in which a row that competes is better than the clairvoyant cache.
    #[serde(rename = "better_than_clairvoyant_cells")]
    pub better_than_clairvoyant: usize,
}

/// A row over some cells.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// The row.
    #[serde(rename = "row")]
    pub name: String,
    /// Whether it may be the best of a cell.
    #[serde(rename = "is_competing")]
    pub competes: bool,
    /// Cells.
    #[serde(rename = "cell_count")]
    pub cells: usize,
    /// Its mean latency in parts of the best row's: the geometric mean.
    #[serde(rename = "mean_ratio")]
    pub geometric_mean: f64,
    /// The same, where it is largest.
    #[serde(rename = "worst_ratio")]
    pub worst: f64,
    /// The cell where it is largest.
    pub worst_cell: String,
    /// Cells where it is more than 5 % above the best, with every seed.
    #[serde(rename = "lost_cells")]
    pub lost: usize,
    /// Cells where seeds disagree on that.
    #[serde(rename = "unsure_cells")]
    pub unsure: usize,
    /// Its 99th percentile in parts of the best of the cell: the geometric mean.
    #[serde(rename = "p99_mean_ratio")]
    pub p99_geometric_mean: f64,
    /// The same, where it is largest.
    #[serde(rename = "p99_worst_ratio")]
    pub p99_worst: f64,
    /// Its throughput in parts of that of the row with the best mean latency: the geometric mean.
    #[serde(rename = "throughput_mean_ratio")]
    pub throughput_geometric_mean: f64,
    /// Bytes that SSDs were given to write, for each byte that guests read or wrote, over all cells together.
    pub ssd_written_per_byte: f64,
    /// Seconds from a change to 90 % of its last speed: the middle of the cells that change.
    pub recovery_seconds_median: Option<f64>,
    /// Cells that change and in which it never came there.
    #[serde(rename = "never_recovered_cells")]
    pub never_recovered: usize,
    /// Cells in which requests waited outside the volume for most of their time.
    #[serde(rename = "overloaded_cells")]
    pub overloaded: usize,
    /// Its ratios in the order of cells: none where it does not apply.
    #[serde(skip)]
    pub ratios: Vec<Option<f64>>,
}

/// A row over the cells that it applies to, and another over the same cells.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Partial {
    /// The row.
    pub line: Line,
    /// The first row over these cells.
    pub beside: Line,
}

/// Within this a row is as good as the best of a cell.
pub const SURE: f64 = 0.05;

/// The name of the line that is the best static split of each cell, known only afterwards.
pub const BEST_SPLIT: &str = "best static split";

/// The totals of these cells, of one half or all.
pub fn totals(rows: &[Row], outcomes: &[CellOutcome], half: Option<Half>) -> Totals {
    let wanted = |outcome: &&CellOutcome| half.is_none_or(|half| outcome.cell.half == half);
    let (mut cells, mut failed) = (Vec::new(), Vec::new());
    for outcome in outcomes.iter().filter(wanted) {
        let failure = rows.iter().zip(&outcome.rows).find_map(|(row, of)| match of {
            Outcome::Failed(why) => Some(format!("{}, {}: {why}", outcome.cell.name, row.name)),
            Outcome::Measured(_) | Outcome::NotApplicable(_) => None,
        });
        match (failure, Scored::of(rows, outcome)) {
            (Some(why), _) => failed.push(why),
            (None, Some(scored)) => cells.push(scored),
            (None, None) => failed.push(format!("{}: no row applies", outcome.cell.name)),
        }
    }
    let whole = |row: &usize| cells.iter().all(|cell| cell.values[*row].is_some());
    let all: Vec<usize> = (0..cells.len()).collect();
    let (whole, partial): (Vec<usize>, Vec<usize>) = (0..rows.len() + 1).partition(whole);
    let name = |row: usize| rows.get(row).map_or(BEST_SPLIT, |row| &row.name);
    let competes = |row: usize| rows.get(row).is_none_or(Row::competes);
    let line = |row: usize, of: &[usize]| Line::of((name(row), competes(row)), &cells, row, of);
    let mut lines: Vec<Line> = whole.into_iter().map(|row| line(row, &all)).collect();
    lines.sort_by(|a, b| a.geometric_mean.total_cmp(&b.geometric_mean));
    let partial = partial.into_iter().filter_map(|row| {
        let of: Vec<usize> = all.iter().copied().filter(|&cell| cells[cell].values[row].is_some()).collect();
        (!of.is_empty()).then(|| Partial { line: line(row, &of), beside: line(0, &of) })
    });
    let partial = partial.collect();
    let mut noises: Vec<f64> = cells.iter().map(|cell| cell.noise).collect();
    noises.sort_by(f64::total_cmp);
    Totals {
        cells: cells.len(),
        failed,
        lines,
        partial,
        noise_median: rounded(noises.get(noises.len() / 2).copied().unwrap_or(0.0)),
        noisy_cells: noises.iter().filter(|noise| **noise > SURE).count(),
        better_than_clairvoyant: cells.iter().filter(|cell| cell.beats_clairvoyant).count(),
    }
}

/// A cell with the values of all rows, the best split last.
struct Scored<'a> {
    name: &'a str,
    changes: bool,
    values: Vec<Option<&'a [Value]>>,
    /// The row with the lowest mean latency of those that compete.
    best: usize,
    best_p99: f64,
    noise: f64,
    beats_clairvoyant: bool,
}

impl<'a> Scored<'a> {
    fn of(rows: &[Row], outcome: &'a CellOutcome) -> Option<Scored<'a>> {
        let values = |of: &'a Outcome| match of {
            Outcome::Measured(values) if !values.is_empty() => Some(values.as_slice()),
            _ => None,
        };
        let mut values: Vec<Option<&[Value]>> = outcome.rows.iter().map(values).collect();
        let least = |of: &dyn Fn(&Row) -> bool| {
            let of = (0..rows.len()).filter(|&row| of(&rows[row]));
            let known = of.filter_map(|row| Some((row, mean(values[row]?, mean_ns))));
            known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(row, _)| row)
        };
        let is_split = |row: &Row| {
            matches!(row.kind, Kind::Split(_)) || matches!(row.name.as_str(), "ssd-only" | "hdd-only")
        };
        let (best, split) = (least(&Row::competes)?, least(&is_split));
        let clairvoyant = least(&|row| row.kind == Kind::Clairvoyant);
        let of_best = values[best]?;
        let beats = |knows: usize| mean(of_best, mean_ns) < values[knows].map_or(0.0, |of| mean(of, mean_ns));
        let p99s = (0..rows.len()).filter(|&row| rows[row].competes()).filter_map(|row| values[row]);
        let best_p99 = p99s.map(|of| mean(of, p99_ns)).fold(f64::MAX, f64::min);
        let beats_clairvoyant = clairvoyant.is_some_and(beats);
        values.push(split.and_then(|split| values[split]));
        Some(Scored {
            name: &outcome.cell.name,
            changes: outcome.cell.change != Change::None,
            values,
            best,
            best_p99,
            noise: spread(of_best),
            beats_clairvoyant,
        })
    }

    fn best(&self) -> &[Value] {
        self.values[self.best].unwrap_or_default()
    }

    /// A row's mean latency in parts of the best row's.
    fn ratio(&self, row: usize) -> Option<f64> {
        Some(mean(self.values[row]?, mean_ns) / mean(self.best(), mean_ns).max(1.0))
    }

    /// With how many seeds a row is more than 5 % above the best.
    fn above(&self, row: usize) -> (usize, usize) {
        let values = self.values[row].unwrap_or_default();
        let pairs = values.iter().zip(self.best());
        (pairs.filter(|(own, best)| own.mean_ns > best.mean_ns * (1.0 + SURE)).count(), values.len())
    }
}

impl Line {
    fn of((name, competes): (&str, bool), cells: &[Scored], row: usize, of: &[usize]) -> Line {
        let ratios: Vec<Option<f64>> = of.iter().map(|&cell| cells[cell].ratio(row)).collect();
        let known = || of.iter().zip(&ratios).filter_map(|(&cell, ratio)| Some((&cells[cell], (*ratio)?)));
        let values = |cell: &Scored| cell.values[row].unwrap_or_default().to_vec();
        let (worst_cell, worst) = known()
            .map(|(cell, ratio)| (cell.name, ratio))
            .fold(("", 0.0), |worst, next| if next.1 > worst.1 { next } else { worst });
        let p99: Vec<f64> =
            known().map(|(cell, _)| mean(&values(cell), p99_ns) / cell.best_p99.max(1.0)).collect();
        let speeds = known().map(|(cell, _)| mean(&values(cell), per_second) / mean(cell.best(), per_second));
        let above: Vec<(usize, usize)> = known().map(|(cell, _)| cell.above(row)).collect();
        let total = |of: fn(&Value) -> f64| known().map(|(cell, _)| mean(&values(cell), of)).sum::<f64>();
        let changing = || known().filter(|(cell, _)| cell.changes);
        let recovered = |cell: &Scored| {
            let times =
                values(cell).iter().map(|value| value.recovery_seconds).collect::<Option<Vec<f64>>>()?;
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
        };
        let mut recoveries: Vec<f64> = changing().filter_map(|(cell, _)| recovered(cell)).collect();
        recoveries.sort_by(f64::total_cmp);
        let is_overloaded = |cell: &Scored| values(cell).iter().any(|value| value.is_overloaded);
        let ratio_list: Vec<f64> = known().map(|(_, ratio)| ratio).collect();
        Line {
            name: name.to_owned(),
            competes,
            cells: of.len(),
            geometric_mean: rounded(geometric_mean(&ratio_list)),
            worst: rounded(worst),
            worst_cell: worst_cell.to_owned(),
            lost: above.iter().filter(|(above, all)| above == all).count(),
            unsure: above.iter().filter(|(above, all)| *above > 0 && above < all).count(),
            p99_geometric_mean: rounded(geometric_mean(&p99)),
            p99_worst: rounded(p99.iter().copied().fold(0.0, f64::max)),
            throughput_geometric_mean: rounded(geometric_mean(&speeds.collect::<Vec<_>>())),
            ssd_written_per_byte: rounded(
                total(|value| value.ssd_written_bytes as f64)
                    / total(|value| value.bytes_per_second * value.measured_seconds).max(1.0),
            ),
            recovery_seconds_median: recoveries.get(recoveries.len() / 2).copied().map(rounded),
            never_recovered: changing().count() - recoveries.len(),
            overloaded: known().filter(|(cell, _)| is_overloaded(cell)).count(),
            ratios,
        }
    }
}

fn mean_ns(value: &Value) -> f64 {
    value.mean_ns
}

fn p99_ns(value: &Value) -> f64 {
    value.p99_ns as f64
}

fn per_second(value: &Value) -> f64 {
    value.requests_per_second
}

fn mean(values: &[Value], of: fn(&Value) -> f64) -> f64 {
    values.iter().map(of).sum::<f64>() / values.len().max(1) as f64
}

/// How far repetitions lie apart, in parts of their mean.
fn spread(values: &[Value]) -> f64 {
    let (low, high) = values
        .iter()
        .map(|value| value.mean_ns)
        .fold((f64::MAX, 0.0), |(low, high), next| (f64::min(low, next), f64::max(high, next)));
    if values.len() < 2 { 0.0 } else { (high - low) / mean(values, mean_ns).max(1.0) }
}

fn geometric_mean(all: &[f64]) -> f64 {
    let logarithms = all.iter().map(|ratio| ratio.max(1e-9).ln());
    (logarithms.sum::<f64>() / all.len().max(1) as f64).exp()
}

/// To four digits: logarithms differ in their last digit from one platform to the next.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
