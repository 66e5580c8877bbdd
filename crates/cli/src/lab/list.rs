//! `braid lab list` and `braid lab show`: list experiments and their claims without running an experiment.

use crate::output::Output;
use crate::simulate::{clock, failure};
use crate::table::Table;
use braid_control::{Error, ErrorKind, Result};
use braid_lab::experiment::{Baseline, Experiment, Jitter, Measure, Origin, Quantity, Test};
use braid_lab::experiments::{all, find, seconds};
use braid_lab::judge::describe;
use braid_lab::study::{Simulated, simulated};
use serde::Serialize;

#[derive(Serialize)]
struct Listed<T> {
    experiments: Vec<T>,
}

#[derive(Serialize)]
struct Entry {
    id: &'static str,
    title: &'static str,
    paper: &'static str,
    authors: &'static str,
    year: u16,
    place: &'static str,
    published: &'static str,
    simulations: usize,
    seconds_per_seed: Option<f64>,
    claims_of_paper: usize,
    claim_count: usize,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    entry: Entry,
    axis: &'static str,
    axis_values: Vec<u32>,
    measures: Vec<Measured>,
    series: Vec<Simulated>,
    jitter: &'static [Jitter],
    baselines: Vec<Bounded>,
    claims: Vec<Claimed>,
    calibrated: &'static [&'static str],
    contradictions: &'static [&'static str],
    differs: &'static [&'static str],
    differs_in_all: &'static [&'static str],
}

#[derive(Serialize)]
struct Measured {
    measure: &'static str,
    unit: &'static str,
}

#[derive(Serialize)]
struct Claimed {
    claim: &'static str,
    place: &'static str,
    origin: Origin,
    tests: Vec<Bounded>,
    why: &'static str,
    instead: Vec<Other>,
}

/// A quantity of another run.
#[derive(Serialize)]
struct Other {
    quantity: String,
}

/// A quantity, the published value, and the needed bound.
#[derive(Serialize)]
struct Bounded {
    quantity: String,
    claimed: String,
    needed: String,
}

/// Lists all experiments.
pub fn list(output: Output) {
    let listed = Listed { experiments: all().into_iter().map(entry).collect() };
    output.show(&listed, || {
        let mut table = Table::new(&["experiment", ">simulations", ">time", ">claims", "title", "paper"]);
        for e in &listed.experiments {
            table.row(vec![
                e.id.to_owned(),
                e.simulations.to_string(),
                e.seconds_per_seed.map_or("-".to_owned(), clock),
                format!("{} of {}", e.claims_of_paper, e.claim_count),
                e.title.to_owned(),
                format!("{} {}, {}", e.authors, e.year, e.place),
            ]);
        }
        format!(
            "{}\n  simulations and time (of one processor) are for one seed; claims: of the paper, of all\n",
            table.render("  ")
        )
    });
}

/// The declaration of an experiment, in TOML.
#[derive(Serialize)]
struct Declared {
    declaration: String,
}

/// Shows experiments, or prints the declaration of one in TOML.
pub fn show(ids: &[String], toml: bool, output: Output) -> Result<()> {
    let experiments = find(ids).map_err(|error| failure(&error))?;
    if toml {
        let [experiment] = experiments[..] else {
            let problem = format!("--toml: {} experiments: at most 1: name one of them", experiments.len());
            return Err(Error::new(ErrorKind::Usage, problem));
        };
        let declared = Declared { declaration: experiment.to_toml() };
        output.show(&declared, || declared.declaration.clone());
        return Ok(());
    }
    let shown = Listed { experiments: experiments.into_iter().map(shown).collect() };
    output.show(&shown, || shown.experiments.iter().map(text).collect::<Vec<_>>().join("\n"));
    Ok(())
}

fn entry(e: &'static Experiment) -> Entry {
    let is_of_paper = |origin: Origin| matches!(origin, Origin::Paper | Origin::Fitted);
    Entry {
        id: e.id,
        title: e.title,
        paper: e.paper.title,
        authors: e.paper.authors(),
        year: e.paper.year,
        place: e.place,
        published: e.published,
        simulations: e.simulations(),
        seconds_per_seed: seconds(e.id),
        claims_of_paper: e.claims.iter().filter(|claim| is_of_paper(claim.origin)).count(),
        claim_count: e.claims.len(),
    }
}

fn shown(e: &'static Experiment) -> Shown {
    let quantity = |quantity: &Quantity| describe(e, quantity, &[]);
    let test = |test: &Test| Bounded {
        quantity: quantity(&test.quantity),
        claimed: test.published.to_string(),
        needed: test.bound.to_string(),
    };
    let baseline = |baseline: &Baseline| test(&baseline.as_test());
    let measured = |measure: &Measure| Measured { measure: measure.name(), unit: measure.unit() };
    Shown {
        entry: entry(e),
        axis: e.axis.label(),
        axis_values: e.axis.places(),
        measures: e.measures.iter().map(measured).collect(),
        series: e.series.iter().map(simulated).collect(),
        jitter: e.jitter,
        baselines: e.baselines.iter().map(baseline).collect(),
        claims: e
            .claims
            .iter()
            .map(|claim| Claimed {
                claim: claim.sentence,
                place: claim.place,
                origin: claim.origin,
                tests: claim.tests.iter().map(test).collect(),
                why: claim.why,
                instead: claim.instead.iter().map(|other| Other { quantity: quantity(other) }).collect(),
            })
            .collect(),
        calibrated: e.calibrated,
        contradictions: e.contradictions,
        differs: e.differs,
        differs_in_all: e.paper.differs,
    }
}

fn text(shown: &Shown) -> String {
    let e = &shown.entry;
    let time = e
        .seconds_per_seed
        .map_or_else(String::new, |seconds| format!(", about {} of one processor", clock(seconds)));
    let mut text = format!(
        "{}: {}\n  {} {}, {}\n  each seed: {} simulations{time}\n",
        e.id, e.title, e.authors, e.year, e.place, e.simulations
    );
    let places: Vec<String> = shown.axis_values.iter().map(u32::to_string).collect();
    text += &format!("  {}: {}\n\n  series\n", shown.axis, places.join(", "));
    for series in &shown.series {
        text += &super::text::wrapped(
            "  - ",
            &format!(
                "{}: {} --copies {} --policy {} --workload {}",
                series.label,
                series.device_arguments.join(" "),
                series.copies,
                series.policy,
                series.load
            ),
        );
    }
    if !shown.baselines.is_empty() {
        text += "\n  the paper's devices alone: if a value is off, claims about policies are untestable\n";
        text += &bounds(&shown.baselines);
    }
    text += "\n";
    for claim in &shown.claims {
        text += &super::text::wrapped(
            "  ",
            &format!("{} ({}): {}", super::text::kind(claim.origin), claim.place, claim.claim),
        );
        text += &bounds(&claim.tests);
        for other in &claim.instead {
            text += &super::text::wrapped(
                "    ",
                &format!("if the claim does not hold, another run: {}", other.quantity),
            );
        }
    }
    text + &format!("\n  {}\n", e.published)
}

fn bounds(tests: &[Bounded]) -> String {
    let mut table = Table::new(&["", ">paper", ">needed"]);
    tests
        .iter()
        .for_each(|test| table.row(vec![test.quantity.clone(), test.claimed.clone(), test.needed.clone()]));
    table.render("    ")
}
