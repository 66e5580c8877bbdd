//! Policies on real traces, beside fixed ones and beside data that stays where it lies: mean latency in virtual time, in open loop, with an
//! SSD for 15 and for 50 % of what each trace touches.
//!
//! `cargo run --release -p braid-bench --bin trace-cells -- [POLICY …]`; `SSD=x25-m HDD=mba3073 SEED=1` choose models and seed, `SHARES=15,50`
//! and `TRACES=web,…` some cells, `CLIENTS=8` plays in closed loop. It reads ../shared/traces, and says so where that is not there.
//!
//! What is fixed: static splits, `stripe`, `ssd-first` with caches of 5, 10, 20 and 50 %, `hdd-only`, each with its own layout; the best of them
//! is known only afterwards. *Left* is the layout that the policies begin with, and nothing moves. *Oracle* is a static split that knows the
//! whole trace (`oracle.rs`), and none of what is fixed. Requests of traces that would overload the disks come slower.

use anyhow::{Context, Result, anyhow};
use braid_base::Bytes;
use braid_bench::cells::{TRACES, folder, models, setup};
use braid_bench::oracle::{Costs, Writes, belongs_on_ssd};
use braid_lab::{Run, Setup, sweep};
use std::fmt;
use std::ops::Range;
use std::path::Path;

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let policies = if asked.is_empty() { vec!["wardrop".to_owned(), "equi".to_owned()] } else { asked };
    let folder = folder();
    if !folder.exists() {
        println!("SKIPPED: {} is not there", folder.display());
        return Ok(());
    }
    let wanted = std::env::var("TRACES").ok();
    let shares = std::env::var("SHARES").unwrap_or_else(|_| "15,50".to_owned());
    let mut ratios: Vec<[Vec<f64>; 2]> = policies.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    println!(
        "| trace | SSD | left ms | best fixed ms | best ssd-first ms | oracle ms | {} |",
        policies.join(" | ")
    );
    println!("|---|---|---|---|---|---|{}", "---|".repeat(policies.len()));
    for &(file, name, speed) in TRACES {
        if wanted.as_ref().is_some_and(|wanted| !wanted.split(',').any(|one| one == name)) {
            continue;
        }
        for share in shares.split(',') {
            let file = folder.join(file);
            let setup = setup(&file, speed, share)?;
            let cell = cell(&setup, &policies, share, &file).with_context(|| format!("{name}, {share} %"))?;
            print!("| {name} | {share} % | {:.3} | {} |", cell.left, cell.best);
            print!(" {} | {:.3} |", cell.best_ssd_first, cell.oracle);
            for (ms, [to_left, to_best]) in cell.policies.iter().zip(&mut ratios) {
                print!(" {ms:.3} = {:.2} × left, {:.2} × best |", ms / cell.left, ms / cell.best.ms);
                to_left.push(ms / cell.left);
                to_best.push(ms / cell.best.ms);
            }
            println!();
        }
    }
    for (policy, [to_left, to_best]) in policies.iter().zip(&ratios) {
        let worst = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        println!(
            "{policy}: geometric mean {:.3} × left (worst {:.2}), {:.3} × best fixed (worst {:.2})",
            geometric_mean(to_left),
            worst(to_left),
            geometric_mean(to_best),
            worst(to_best)
        );
    }
    Ok(())
}

/// Mean latencies in milliseconds.
struct Cell {
    left: f64,
    best: Best,
    best_ssd_first: Best,
    oracle: f64,
    policies: Vec<f64>,
}

/// The best of several policies.
struct Best {
    ms: f64,
    policy: String,
}

impl Best {
    fn of<'a>(runs: impl Iterator<Item = &'a Run>) -> Result<Best> {
        let best = runs.min_by(|a, b| ms(a).total_cmp(&ms(b))).context("one run for each setup")?;
        Ok(Best { ms: ms(best), policy: best.outcome.policy.clone() })
    }
}

impl fmt::Display for Best {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({})", self.ms, self.policy)
    }
}

/// Per cent of the SSD that `ssd-first` has as a cache.
const CACHES: [u32; 4] = [5, 10, 20, 50];

fn cell(setup: &Setup, policies: &[String], share: &str, trace: &Path) -> Result<Cell> {
    let with = |policy: &str| Setup { policy: policy.to_owned(), ..setup.clone() };
    let runs = run(&policies.iter().map(|policy| with(policy)).collect::<Vec<_>>())?;
    let layout = runs.first().and_then(|run| run.outcome.prefill_policy.clone());
    let layout = layout.ok_or_else(|| anyhow!("the first policy is itself a rule of where data lies"))?;
    let share: u32 = share.parse()?;
    let splits = (1..10).map(|tenth| tenth * 10).filter(|&split| split <= share.max(10));
    let mut fixed: Vec<Setup> = splits.map(|split| with(&format!("static,ssd={split}%"))).collect();
    fixed.extend(CACHES.map(|cache| Setup {
        // The layout that policies begin with, but for the room of this cache; rounded up, or the cache would not count as full.
        prefill_policy: Some(format!(
            "static,ssd={:.2}%",
            f64::from(share) * (1.0 - f64::from(cache) / 100.0) + 0.01
        )),
        ..with(&format!("ssd-first,cache={cache}%"))
    }));
    fixed.extend(["stripe", "hdd-only"].map(with));
    // `ssd-only` never moves what lies elsewhere.
    let mut unmoved = vec![Setup { prefill_policy: Some(layout), ..with("ssd-only") }];
    for writes in [Writes::Buffered, Writes::Through] {
        let known = known_beforehand(trace, setup, share, writes)?;
        unmoved.push(Setup { prefill_ssd: Some(known), ..with("ssd-only") });
    }
    let unmoved = run(&unmoved)?;
    let results = run(&fixed)?;
    let is_ssd_first = |run: &&Run| run.outcome.policy.starts_with("ssd-first");
    Ok(Cell {
        left: ms(&unmoved[0]),
        best: Best::of(results.iter())?,
        best_ssd_first: Best::of(results.iter().filter(is_ssd_first))?,
        oracle: ms(&unmoved[1]).min(ms(&unmoved[2])),
        policies: runs.iter().map(ms).collect(),
    })
}

/// What the oracle puts on the SSD.
fn known_beforehand(trace: &Path, setup: &Setup, share: u32, writes: Writes) -> Result<Vec<Range<Bytes>>> {
    let costs = |model: &String| {
        let spec = braid_model::by_name(model).with_context(|| format!("no model is called {model}"))?;
        Ok::<_, anyhow::Error>(Costs::of(spec))
    };
    let [ssd, hdd] = models();
    let (ssd, hdd) = (costs(&ssd)?, costs(&hdd)?);
    belongs_on_ssd(trace, setup.extent_size, f64::from(share) / 100.0, [&ssd, &hdd], writes)
}

fn run(setups: &[Setup]) -> Result<Vec<Run>> {
    sweep(setups, None, |_| ()).into_iter().map(|result| Ok(result?)).collect()
}

fn ms(run: &Run) -> f64 {
    run.outcome.all.latency.mean / 1e6
}

fn geometric_mean(all: &[f64]) -> f64 {
    (all.iter().map(|x| x.ln()).sum::<f64>() / all.len().max(1) as f64).exp()
}
