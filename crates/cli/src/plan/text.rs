//! A plan as text: the cheapest mixes in a table, sentences about the answer, and the changes of load or
//! price with another answer.

use crate::advise::text::millis;
use crate::simulate::clock;
use crate::table::Table;
use braid_base::Bytes;
use braid_lab::advice::{Plan, Priced};
use std::path::Path;

/// Rows of the table, at most; the page and JSON have all mixes.
const SHOWN: usize = 16;

/// Returns the whole report.
pub fn describe(plan: &Plan, page: Option<&Path>) -> String {
    let statistic = &plan.target_statistic;
    let price = format!(">{}", plan.currency);
    let (value, mean) = (format!(">{statistic} ms"), ">mean ms");
    let mut table = Table::new(&["devices", &price, "policy", &value, mean, "holds"]);
    let ms = |ns: Option<f64>| ns.map_or("-".to_owned(), millis);
    for mix in plan.mixes.iter().take(SHOWN) {
        table.row(vec![
            mix.mix.clone(),
            format!("{:.2}", mix.price),
            mix.policy.clone(),
            ms(mix.target_statistic_ns),
            ms(mix.latency_ns_mean),
            holds(mix),
        ]);
    }
    let mut text = table.render("  ");
    if plan.mixes.len() > SHOWN {
        text += &format!("  and {} more mixes that cost more\n", plan.mixes.len() - SHOWN);
    }
    text += "\n";
    sentences(plan).iter().for_each(|sentence| text += &format!("{sentence}\n"));
    if let Some(path) = page {
        text += &format!("\npicture: {}\n", path.display());
    }
    text
}

fn holds(mix: &Priced) -> String {
    match (&mix.why, mix.holds, mix.run_count) {
        (Some(why), _, _) => why.clone(),
        (None, true, 1) => "in one run".to_owned(),
        (None, true, runs) => format!("in all of {runs} runs"),
        (None, false, _) => "no".to_owned(),
    }
}

/// Returns sentences about the answer, and about changes of load or price with another answer.
pub fn sentences(plan: &Plan) -> Vec<String> {
    let target = format!("{} below {} ms", plan.target_statistic, millis(plan.target_ns as f64));
    let mut said = vec![format!(
        "Simulated: the last {} requests of {} on a volume of {}; {} warms up, and {} is measured.",
        plan.simulated_requests,
        plan.load,
        Bytes(plan.data_bytes),
        clock(plan.warm_up_seconds),
        clock(plan.measured_seconds)
    )];
    let Some(cheapest) = &plan.cheapest else {
        said.push(format!(
            "None of {} mixes has a {target}: add faster devices to the prices, or raise the target.",
            plan.mixes.len()
        ));
        return said;
    };
    said.push(format!("The cheapest mix with a {target}: {}.", bought(cheapest, plan)));
    said.push(match &plan.runner_up {
        Some(next) => format!("The next cheapest: {}.", bought(next, plan)),
        None => "No other mix holds the target.".to_owned(),
    });
    for faster in &plan.faster {
        let what = format!("With {} times the load", faster.load_factor);
        let now =
            format!("the mix has a {} of {} ms", plan.target_statistic, millis(faster.target_statistic_ns));
        said.push(match (faster.holds, &faster.cheapest_mix) {
            (true, _) => format!("{what} {now}, and still holds the target."),
            (false, Some(mix)) => format!(
                "{what} {now}; the cheapest mix to hold the target is then {mix}, at {:.2} {}.",
                faster.cheapest_price.unwrap_or_default(),
                plan.currency
            ),
            (false, None) => format!("{what} {now}, and no mix that holds the target now holds it then."),
        });
    }
    let (other, same): (Vec<_>, Vec<_>) = plan.dearer.iter().partition(|dearer| dearer.is_another);
    for dearer in &other {
        said.push(format!(
            "If {} costs {:+.0} %, the cheapest is {}, at {:.2} {}.",
            dearer.model,
            100.0 * (dearer.price_factor - 1.0),
            dearer.cheapest_mix,
            dearer.cheapest_price,
            plan.currency
        ));
    }
    if other.is_empty() && !same.is_empty() {
        said.push("No price change by a fifth alters the answer.".to_owned());
    }
    said
}

fn bought(mix: &Priced, plan: &Plan) -> String {
    format!(
        "{} under {}, at {:.2} {}, with a {} of {} ms in the worst of {} runs",
        mix.mix,
        mix.policy,
        mix.price,
        plan.currency,
        plan.target_statistic,
        millis(mix.target_statistic_ns.unwrap_or_default()),
        mix.run_count
    )
}
