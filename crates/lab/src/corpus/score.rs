//! Scores of a row over all cells: ratios of mean latencies to the best policy of each cell, and summaries.

use super::{CellRun, Figures, Group, Half, Ran, Row};
use serde::Serialize;

/// Scores of rows over the cells of a half.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scores {
    /// The half.
    pub half: Half,
    /// Number of cells that ran.
    pub cell_count: usize,
    /// Rows by group, in the order of their geometric means.
    pub rows: Vec<RowScore>,
}

/// Scores of a row. Ratios are to the best row that begins with the cell's own layout, except for
/// `mean_ratio_with_splits`; less is better.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RowScore {
    /// The row.
    pub row: String,
    /// Group of the row.
    pub group: Group,
    /// Number of cells that the row fits.
    pub fitting_cells: usize,
    /// Geometric mean of the ratios.
    pub mean_ratio: f64,
    /// Highest ratio.
    pub worst_ratio: f64,
    /// Cell with the highest ratio.
    pub worst_cell: String,
    /// Cells with more than 1.05 times the best.
    pub lost_cells: usize,
    /// Geometric mean of the ratios to the best of all policies and static splits.
    pub mean_ratio_with_splits: f64,
    /// Geometric mean of the clairvoyant bound divided by the row's mean latency: 1 is as good as the bound.
    /// `None` if no cell has both.
    pub bound_share: Option<f64>,
    /// Cells in which the row is faster than the bound, which is not proven.
    pub cells_beyond_bound: usize,
    /// Geometric mean of the ratios of the 99th percentile.
    pub p99_ratio: f64,
    /// Geometric mean of the throughput, as a ratio to the highest of the cell.
    pub throughput_ratio: f64,
    /// Bytes written to the SSDs, in all cells.
    pub ssd_written_bytes: u64,
    /// Cells in which the row was not steady at the end.
    pub unsteady_cells: usize,
    /// Median time to 90 % of the steady state, in seconds; `None` if there is no such time.
    pub recovery_seconds: Option<f64>,
    /// Ratios, rising.
    #[serde(skip)]
    pub ratios: Vec<f64>,
}

/// Ratio above which a cell is lost.
const LOST: f64 = 1.05;

/// Scores of a half; `None` if no cell of the half ran.
pub fn score(ran: &Ran, half: Half) -> Option<Scores> {
    let cells: Vec<&CellRun> = ran.cells.iter().filter(|cell| cell.half == half).collect();
    if cells.is_empty() {
        return None;
    }
    let groups: Vec<Group> = ran.rows.iter().map(|row| row.group).collect();
    let bests: Vec<Option<Bests>> = cells.iter().map(|cell| Bests::of(cell, &groups)).collect();
    let score = |(number, row): (usize, &Row)| {
        let of_cell = |(cell, best): (&&'_ CellRun, &'_ Option<Bests>)| {
            Some((cell.cell.clone(), cell.runs[number].figures?, best.clone()?))
        };
        of_row(row, &cells.iter().zip(&bests).filter_map(of_cell).collect::<Vec<_>>())
    };
    let mut scores: Vec<RowScore> = ran.rows.iter().enumerate().map(score).collect();
    let order = |group: Group| if group.competes() { 0 } else { group as u8 };
    scores.sort_by(|a, b| {
        (order(a.group), a.fitting_cells == 0)
            .cmp(&(order(b.group), b.fitting_cells == 0))
            .then(a.mean_ratio.total_cmp(&b.mean_ratio))
    });
    Some(Scores { half, cell_count: cells.len(), rows: scores })
}

/// Best values of a cell.
#[derive(Clone)]
struct Bests {
    mean: f64,
    p99: f64,
    throughput: f64,
    /// Lowest mean of all competing rows and static splits.
    mean_of_all: f64,
    /// Mean of the bound.
    bound: Option<f64>,
}

impl Bests {
    /// `None` if no row that begins with the cell's own layout fits.
    fn of(cell: &CellRun, groups: &[Group]) -> Option<Bests> {
        let of = |group: fn(Group) -> bool| {
            cell.runs.iter().zip(groups).filter(move |(_, of)| group(**of)).filter_map(|(run, _)| run.figures)
        };
        let number = |number: Option<u64>| Some(number?.max(1) as f64);
        let competes = || of(Group::competes);
        Some(Bests {
            mean: number(competes().map(|f| f.latency_ns_mean).min())?,
            p99: number(competes().map(|f| f.latency_ns_p99).min())?,
            throughput: number(competes().map(|f| f.throughput_bytes_per_second).max())?,
            mean_of_all: number(of(|g| g.competes() || g == Group::Split).map(|f| f.latency_ns_mean).min())?,
            bound: number(of(|g| g == Group::Bound).map(|f| f.latency_ns_mean).min()),
        })
    }
}

fn of_row(row: &Row, ran: &[(String, Figures, Bests)]) -> RowScore {
    let ratio = |of: fn(&Figures) -> u64, to: fn(&Bests) -> f64| {
        let ratios = ran.iter().map(move |(_, figures, best)| of(figures).max(1) as f64 / to(best));
        ratios.collect::<Vec<f64>>()
    };
    let mut ratios = ratio(|f| f.latency_ns_mean, |b| b.mean);
    let worst = ratios.iter().zip(ran).max_by(|a, b| a.0.total_cmp(b.0));
    let (worst, worst_cell) = worst.map_or((0.0, String::new()), |(&ratio, ran)| (ratio, ran.0.clone()));
    let share = |(_, figures, best): &(String, Figures, Bests)| {
        Some(best.bound? / figures.latency_ns_mean.max(1) as f64)
    };
    let shares: Vec<f64> = ran.iter().filter_map(share).collect();
    let mut times: Vec<u64> = ran.iter().filter_map(|(_, figures, _)| figures.recovery_ms).collect();
    times.sort_unstable();
    ratios.sort_by(f64::total_cmp);
    RowScore {
        row: row.name.clone(),
        group: row.group,
        fitting_cells: ran.len(),
        mean_ratio: geometric_mean(&ratios),
        worst_ratio: worst,
        worst_cell,
        lost_cells: ratios.iter().filter(|ratio| **ratio > LOST).count(),
        mean_ratio_with_splits: geometric_mean(&ratio(|f| f.latency_ns_mean, |b| b.mean_of_all)),
        bound_share: (!shares.is_empty()).then(|| geometric_mean(&shares)),
        cells_beyond_bound: shares.iter().filter(|share| **share > 1.0).count(),
        p99_ratio: geometric_mean(&ratio(|f| f.latency_ns_p99, |b| b.p99)),
        throughput_ratio: geometric_mean(&ratio(|f| f.throughput_bytes_per_second, |b| b.throughput)),
        ssd_written_bytes: ran.iter().map(|(_, figures, _)| figures.ssd_written_bytes).sum(),
        unsteady_cells: ran.iter().filter(|(_, figures, _)| !figures.is_steady).count(),
        recovery_seconds: times.get(times.len() / 2).map(|&ms| ms as f64 / 1e3),
        ratios,
    }
}

/// Geometric mean; 0 of an empty list.
fn geometric_mean(all: &[f64]) -> f64 {
    if all.is_empty() { 0.0 } else { (all.iter().map(|x| x.ln()).sum::<f64>() / all.len() as f64).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{RowRun, rows};

    /// A cell with these means of the first policies; no other row fits.
    fn cell(means: &[u64]) -> CellRun {
        let figures = |ns: u64| Figures {
            latency_ns_mean: ns,
            latency_ns_p99: ns * 10,
            throughput_bytes_per_second: 1_000_000 / ns,
            ssd_written_bytes: 7,
            is_steady: ns < 300,
            recovery_ms: Some(ns),
        };
        let runs = rows().into_iter().enumerate();
        let runs = runs.map(|(number, row)| RowRun {
            row: row.name,
            figures: means.get(number).map(|&ns| figures(ns)),
            unfit: None,
        });
        let name = format!("{means:?}");
        CellRun { cell: name, half: Half::Tuning, seconds: 0.0, runs: runs.collect() }
    }

    #[test]
    fn row_scores_are_ratios_to_best_row_per_cell() {
        // In the last cell no row fits that counts as a base of ratios. The first two cells have a bound.
        let cells = [&[100, 200][..], &[400, 100], &[100, 102], &[]].map(cell).to_vec();
        let mut ran = Ran { rows: rows(), cells, missing_cells: Vec::new() };
        let bound = ran.rows.iter().position(|row| row.group == Group::Bound).unwrap();
        for (cell, ns) in ran.cells.iter_mut().zip([50, 200]) {
            let figures = cell.runs[0].figures.unwrap();
            cell.runs[bound].figures = Some(Figures { latency_ns_mean: ns, ..figures });
        }
        assert_eq!(score(&ran, Half::Published), None);
        let scores = score(&ran, Half::Tuning).unwrap();
        let of = |name: &str| scores.rows.iter().find(|row| row.row == name).unwrap();
        let (equi, wardrop) = (of("equi"), of("wardrop"));
        assert_eq!(
            (equi.worst_ratio, equi.worst_cell.as_str(), equi.lost_cells, equi.unsteady_cells),
            (4.0, "[400, 100]", 1, 1)
        );
        assert!(
            (equi.mean_ratio - 4f64.cbrt()).abs() < 1e-9 && (equi.p99_ratio - equi.mean_ratio).abs() < 1e-9
        );
        assert_eq!(
            (wardrop.lost_cells, wardrop.worst_ratio, wardrop.recovery_seconds),
            (1, 2.0, Some(0.102))
        );
        // 50 / 100 and 200 / 400; 50 / 200 and 200 / 100.
        let near = |share: Option<f64>, expected: f64| (share.unwrap() - expected).abs() < 1e-9;
        assert!(near(equi.bound_share, 0.5) && near(wardrop.bound_share, 0.5f64.sqrt()));
        assert_eq!((equi.cells_beyond_bound, wardrop.cells_beyond_bound), (0, 1));
        assert_eq!(of("stripe").bound_share, None);
        assert_eq!((of("stripe").fitting_cells, of("stripe").mean_ratio), (0, 0.0));
        let place = |name: &str| scores.rows.iter().position(|row| row.row == name);
        assert!(place("wardrop") < place("equi") && place("equi") < place("stripe"), "the best comes first");
    }
}
