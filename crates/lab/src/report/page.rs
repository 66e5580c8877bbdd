//! The page: one table of all papers, a filtered table of all claims, then a section for each experiment.

use super::charts::Charts;
use super::looks::Looks;
use super::tally::{Standing, Tally, system, tally};
use crate::experiment::Origin;
use crate::judge::{ClaimVerdict, Judged, Number};
use crate::study::{Study, Table};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The charts' library, unchanged (`crates/lab/assets/uplot`), with its licence.
const UPLOT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../assets/uplot/LICENSE");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// A page about these studies. The page is self-contained, and works from a file.
pub fn page(studies: &[Study]) -> String {
    let looks = Looks::of(studies);
    let charts = Charts::of(studies, &looks);
    let mut first_chart = 0;
    let mut sections = Vec::new();
    let mut paper = None;
    for study in studies {
        if paper != Some(&study.paper) {
            paper = Some(&study.paper);
            sections.push(about_paper(study));
        }
        sections.push(section(study, first_chart));
        first_chart += study.tables.len();
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Braid: papers reproduced" }
                style { (PreEscaped(UPLOT_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                (opening(studies))
                @for section in &sections { (section) }
                script type="application/json" id="data" { (PreEscaped(charts.json())) }
                script { (PreEscaped(format!("/*! uPlot 1.6.32, https://github.com/leeoniya/uPlot\n{UPLOT_LICENCE}*/\n{UPLOT}"))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn opening(studies: &[Study]) -> Markup {
    let tallies = tally(studies);
    let one = studies.iter().find(|study| !study.quick && study.seeds < study.seeds_needed);
    html! {
        h1 { "Papers reproduced by Braid" }
        p {
            "Each section reproduces a table or figure of a paper: on Braid's own engine, in virtual time, on models of the paper's devices. "
            code { "braid lab report" } " makes this page, and the same command gives the same figures."
        }
        @if studies.iter().any(|study| study.quick) {
            p.warning { "Made with --quick: too short to compare with anything." }
        }
        @if let Some(one) = one {
            p.warning { "Made with one seed: numbers, and no verdict. A verdict takes " (one.seeds_needed) " or more (--seeds)." }
        }
        noscript { p.warning { "The charts need JavaScript. All values are in the tables below each experiment." } }
        h2 { "What holds of the papers" }
        (papers(&tallies, |tally| &tally.of_paper, true))
        p.faint {
            "A claim counts once, for the system as published, and is as good as its worst number. A claim about a policy is untestable if a device \
             alone does not come out within 15 % of the paper's, or if a parameter of the lab was chosen for the claim."
        }
        @if tallies.iter().any(|tally| tally.others.iter().sum::<usize>() > 0) {
            h2 { "Braid's own aims, and claims repeated under other conditions" }
            (papers(&tallies, |tally| &tally.others, false))
        }
        h2 id="claims" { "All claims" }
        (filter(&tallies))
        (claims(studies))
    }
}

/// A row for each paper. A count of the paper's claims is a button that shows these claims.
fn papers(
    tallies: &[Tally],
    counts: impl for<'a> Fn(&'a Tally) -> &'a [usize; Standing::ALL.len()],
    are_buttons: bool,
) -> Markup {
    let used: Vec<Standing> = Standing::ALL
        .into_iter()
        .filter(|&s| s < Standing::NoVerdict || tallies.iter().any(|tally| counts(tally)[s as usize] > 0))
        .collect();
    let id = if are_buttons { "papers" } else { "others" };
    html! {
        div.wide {
            table id=(id) {
                tr { th { "paper" } th { "claims" } @for standing in &used { th { (standing.words()) } } }
                @for tally in tallies.iter().filter(|tally| counts(tally).iter().sum::<usize>() > 0) {
                    tr {
                        td { a href={ "#paper-" (tally.system) } { (tally.study.authors) " " (tally.study.year) } " (" (tally.system) ")" }
                        td { (counts(tally).iter().sum::<usize>()) }
                        @for &standing in &used {
                            @let count = counts(tally)[standing as usize];
                            td.zero[count == 0] {
                                @if are_buttons && count > 0 {
                                    button type="button" data-paper=(tally.system) data-show=(standing.key()) { (count) }
                                } @else { (count) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn filter(tallies: &[Tally]) -> Markup {
    html! {
        div.filter {
            label { "paper" select id="paper" {
                option value="" { "all" }
                @for tally in tallies { option value=(tally.system) { (tally.study.authors) " " (tally.study.year) } }
                option value="braid" { "Braid's own aims and repeated claims" }
            } }
            label { "verdict" select id="verdict" {
                option value="" { "all" }
                @for standing in Standing::ALL { option value=(standing.key()) { (standing.words()) } }
            } }
            label { "words" input id="words" type="search" placeholder="stripe, latency, …"; }
            span.faint id="count" {}
        }
    }
}

fn claims(studies: &[Study]) -> Markup {
    html! {
        div.wide {
            table {
                tr { th { "experiment" } th.text { "claim" } th.text { "here" } }
                @for study in studies {
                    @for judged in &study.claims {
                        @if let Some(standing) = Standing::of(judged) {
                            tr data-paper=(if judged.is_of_paper() { system(study) } else { "braid" }) data-verdict=(standing.key()) {
                                td { a href={ "#" (study.id) } { (PreEscaped(study.id.replace('/', "/<wbr>"))) } }
                                td.text { (judged.claim) (origin(judged.origin)) }
                                td.text { (verdicts(judged, standing)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn about_paper(study: &Study) -> Markup {
    html! {
        h2 id={ "paper-" (system(study)) } { (study.paper) " (" (study.year) ")" }
        details { summary { "What differs in all experiments of this paper" } (list(&study.differs_in_all)) }
    }
}

fn section(study: &Study, first_chart: usize) -> Markup {
    html! {
        section id=(study.id) {
            h3 { (study.id) ": " (study.title) }
            p.faint {
                (study.place) "; " (study.seeds_shown()) ", " (study.measured_shown()) ". "
                code { "braid lab run " (study.id) }
            }
            @for judged in &study.claims {
                @if let Some(standing) = Standing::of(judged) { (claim(judged, standing)) }
            }
            div.plots {
                @for (number, table) in study.tables.iter().enumerate() {
                    figure data-chart=(first_chart + number) role="img" aria-label={ (study.id) ", " (table.measure) ", " (table.unit) } {
                        figcaption { (study.id) ": " (table.measure) ", " (table.unit) (better(table)) }
                    }
                }
            }
            details {
                summary { "The paper's values beside ours" }
                p { (study.published) }
                (numbers(study.claims.iter().flat_map(|claim| &claim.verdicts).flat_map(|verdict| &verdict.numbers)))
                @if !study.baselines.is_empty() {
                    h4 { "The paper's devices alone" }
                    (numbers(study.baselines.iter()))
                }
            }
            details {
                summary { "All values" }
                @for table in &study.tables { (values(study, table)) }
            }
            details {
                summary { "What was simulated, and what differs from the paper" }
                (simulated(study))
                @for (title, items) in [
                    ("What of the paper's results went into the models", &study.calibrated),
                    ("Where the paper says otherwise elsewhere", &study.contradictions),
                    ("What differs from the paper here", &study.differs),
                ] {
                    @if !items.is_empty() { h4 { (title) } (list(items)) }
                }
            }
        }
    }
}

fn claim(judged: &Judged, standing: Standing) -> Markup {
    html! {
        div.claim {
            p { (verdicts(judged, standing)) ": " (judged.claim) (origin(judged.origin)) }
            @if !judged.untestable.is_empty() { p.faint { "Untestable: " (judged.untestable.join("; ")) "." } }
            @if let Some(why) = &judged.why { p.faint { "Why: " (why) } }
            @for number in &judged.instead { p.faint { "Another run: " (number.quantity) ": " (number.ours_shown()) "." } }
        }
    }
}

/// Numbers without duplicates.
fn numbers<'a>(numbers: impl Iterator<Item = &'a Number>) -> Markup {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut once = Vec::new();
    for number in numbers {
        let key = (number.quantity.as_str(), number.needed.as_str());
        if !seen.contains(&key) {
            seen.push(key);
            once.push(number);
        }
    }
    html! {
        div.wide { table {
            tr { th {} th { "paper" } th { "ours" } th { "ours/paper" } th { "needed" } th {} }
            @for number in once {
                tr {
                    td { (number.quantity) }
                    td { (number.claimed) }
                    td { (number.ours_shown()) }
                    td { (number.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))) }
                    td { (number.needed) }
                    td { (number.ruling.map_or("", |ruling| ruling.words())) }
                }
            }
        } }
    }
}

fn values(study: &Study, table: &Table) -> Markup {
    html! {
        h4 { (table.measure) ", " (table.unit) }
        div.wide { table {
            tr { th { (study.axis) } @for series in &study.series { th { (series.label) } } }
            @for (place, number) in study.axis_values.iter().enumerate() {
                tr { td { (number) } @for series in 0..table.values.len() { td { (table.shown(series, place)) } } }
            }
        } }
    }
}

fn simulated(study: &Study) -> Markup {
    html! {
        ul {
            @for series in &study.series {
                li {
                    (series.label) ": "
                    code {
                        (series.device_arguments.join(" ")) " --copies " (series.copies) " --policy " (series.policy) " --workload " (series.load)
                    }
                }
            }
        }
        @for drawn in &study.jitter {
            p { code { "{" (drawn.name) "}" } ": each seed draws " (drawn.low) " to " (drawn.high) "." }
        }
    }
}

fn better(table: &Table) -> &'static str {
    match (table.unit.as_str(), table.more_is_better) {
        ("%", _) => "",
        (_, true) => "; more is better",
        (_, false) => "; less is better",
    }
}

/// Remark on a claim that is not the paper's.
fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Paper | Origin::Fitted => "",
        Origin::Aim => " (an aim of Braid)",
        Origin::Repeat => " (repeated under other conditions)",
    }
}

/// Verdict on the system as published, and verdicts on its other settings.
fn verdicts(judged: &Judged, standing: Standing) -> Markup {
    let said = |verdict: &ClaimVerdict| {
        let ruling = verdict.ruling?;
        let of = verdict.of.as_ref().map(|of| format!(" ({of})")).unwrap_or_default();
        Some(format!("{ruling}{of}"))
    };
    let mut words = judged.verdicts.iter().filter_map(said);
    let first = words.next().unwrap_or_default();
    html! {
        span class={ "verdict " (standing.key()) } { (first) }
        @for other in words { span.faint { "; " (other) } }
    }
}

fn list(texts: &[String]) -> Markup {
    html! { ul { @for text in texts { li { (text) } } } }
}
