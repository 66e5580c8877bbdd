//! Advice as text: a table of policies, a table of sizes, sentences about the advice, and the command to
//! type.

use super::{Arguments, Report};
use crate::simulate::clock;
use crate::table::Table;
use braid_base::Bytes;
use braid_lab::advice::{Advice, ChoiceRuling, Forecast, SizeCurve};

/// Largest error of the present policy's forecast that still shows fitting models.
const FITS: f64 = 0.1;

/// Returns the whole report.
pub(super) fn describe(report: &Report, arguments: &Arguments) -> String {
    let advice = &report.advice;
    let mut text = policies(advice);
    text += &curves(&advice.curves);
    text += "\n";
    for sentence in &report.sentences {
        text += &format!("{sentence}\n");
    }
    if let Some(command) = &report.command {
        text += &format!("\n  {command}\n");
    }
    if let Some(path) = &arguments.html {
        text += &format!("\npictures: {}\n", path.display());
    }
    text
}

/// Returns the command to type; none if no change is advised.
pub(super) fn command(advice: &Advice, name: Option<&str>) -> Option<String> {
    let policy = &advice.choice.advised_policy;
    (advice.choice.ruling == ChoiceRuling::Change)
        .then(|| format!("braid policy {} {policy}", name.unwrap_or("NAME")))
}

/// Returns sentences about the simulation, the advice, the size of the SSD, and its life.
pub(super) fn sentences(
    advice: &Advice,
    unrecorded: u64,
    measured_latency_ns_mean: Option<f64>,
    tbw: Option<Bytes>,
) -> Vec<String> {
    let mut said = vec![simulated(advice, unrecorded), ruling(advice)];
    said.extend(measured_latency_ns_mean.and_then(|measured| compared(advice, measured)));
    said.extend(overloaded(advice));
    said.extend(unfit(advice));
    said.extend(advice.curves.iter().map(size));
    said.extend(life(advice, tbw));
    said
}

fn simulated(advice: &Advice, unrecorded: u64) -> String {
    let Advice { recorded_requests, simulated_requests, recorded_seconds, bad_records, .. } = advice;
    let length = advice.warm_up_seconds + advice.measured_seconds;
    let which = match recorded_requests == simulated_requests {
        true => format!("all {simulated_requests} requests"),
        false => format!(
            "the last {simulated_requests} of {recorded_requests} requests ({} of {})",
            clock(length),
            clock(*recorded_seconds)
        ),
    };
    let mut text = format!(
        "Simulated: {which} of {}, which touches {}; {} ({:.0} %) of the time warms up, and {} is measured.",
        advice.load,
        Bytes(advice.touched_extents_bytes),
        clock(advice.warm_up_seconds),
        100.0 * advice.warm_up_seconds / length.max(1e-9),
        clock(advice.measured_seconds),
    );
    if unrecorded + bad_records > 0 {
        text += &format!(
            " {unrecorded} requests could not be recorded, {bad_records} records could not be read."
        );
    }
    text
}

fn ruling(advice: &Advice) -> String {
    let choice = &advice.choice;
    let (present, advised) = (short(&advice.present_policy), &choice.advised_policy);
    let mean =
        |policy: &str| advice.rows.iter().find(|row| row.policy == policy).map(|row| row.latency_ns_mean);
    let now = mean(&advice.present_policy).unwrap_or_default();
    let interval = match (choice.gain_ns_low, choice.gain_ns_high) {
        (Some(low), Some(high)) => {
            format!(", {} to {} with 95 % confidence", percent(low / now), percent(high / now))
        }
        _ => ", by an unknown margin".to_owned(),
    };
    let gain = percent(choice.gain_ns_mean.unwrap_or_default() / now.max(1e-9));
    match choice.ruling {
        ChoiceRuling::Change => format!(
            "Change to {advised}: the mean latency would be {} ms instead of {} ms, {gain} less{interval}.",
            millis(mean(advised).unwrap_or_default()),
            millis(now)
        ),
        ChoiceRuling::Keep => {
            format!("Keep {present}: no other policy has at least 5 % less mean latency.")
        }
        ChoiceRuling::Undecided => format!(
            "Keep {present} for now: {} may have {gain} less mean latency{interval}: too little for a verdict from this recording: record for \
             longer (--for) or simulate more requests (--requests).",
            choice.undecided_policy.as_deref().unwrap_or("another policy"),
        ),
    }
}

/// Compares the measured latency with the forecast: how well the models fit.
fn compared(advice: &Advice, measured: f64) -> Option<String> {
    let present = advice.rows.iter().find(|row| row.policy == advice.present_policy)?;
    let off = present.latency_ns_mean / measured.max(1.0) - 1.0;
    let text = format!(
        "During the recording, the volume had a mean latency of {} ms; the forecast for its present policy is {:+.0} % off",
        millis(measured),
        100.0 * off
    );
    Some(match off.abs() > FITS {
        true => format!(
            "{text}: the models do not fit the devices well, or the machine is busy: other forecasts may be off as much."
        ),
        false => format!("{text}."),
    })
}

fn unfit(advice: &Advice) -> Option<String> {
    let first = advice.unfit_policies.first()?;
    let policies: Vec<&str> = advice.unfit_policies.iter().map(|unfit| &*unfit.policy).collect();
    Some(format!("Does not fit: {} ({}: {}).", policies.join(", "), first.policy, first.why))
}

fn overloaded(advice: &Advice) -> Option<String> {
    let slow: Vec<&str> =
        advice.rows.iter().filter(|row| !row.keeps_up).map(|row| short(&row.policy)).collect();
    (!slow.is_empty()).then(|| {
        format!(
            "The devices do not keep up with the recorded times under {}: these latencies grow with the length of the recording.",
            slow.join(", ")
        )
    })
}

fn size(curve: &SizeCurve) -> String {
    let what = format!("{} on {}", short(&curve.policy), curve.ssd_models);
    let largest = curve.points.last().map_or(0, |point| point.ssd_bytes);
    match curve.knee_bytes {
        Some(knee) => {
            format!("Size under {what}: a larger SSD than {} gains less than a tenth.", Bytes(knee))
        }
        None => format!("Size under {what}: up to {}, a larger SSD gains more than a tenth.", Bytes(largest)),
    }
}

fn life(advice: &Advice, tbw: Option<Bytes>) -> Option<String> {
    let row = advice.rows.iter().find(|row| row.policy == advice.choice.advised_policy)?;
    if row.ssd_written_bytes_per_day == 0.0 {
        return None;
    }
    let written = format!(
        "Wear under {}: {} written to an SSD per day, {} its size",
        short(&row.policy),
        Bytes(row.ssd_written_bytes_per_day as u64),
        share(row.drive_writes_per_day)
    );
    Some(match (tbw, row.ssd_life_days) {
        (Some(tbw), Some(days)) => format!("{written}; with {tbw}, an SSD lasts {}.", age(days)),
        _ => format!("{written}; for the life of an SSD, add --tbw, the bytes that its data sheet allows."),
    })
}

fn policies(advice: &Advice) -> String {
    let mut table = Table::new(&[
        "policy",
        ">mean ms",
        ">95 % interval",
        ">p99 ms",
        ">to the present",
        ">SSD written/day",
        "",
    ]);
    advice.rows.iter().for_each(|row| table.row(cells(row, advice)));
    table.render("  ")
}

fn cells(row: &Forecast, advice: &Advice) -> Vec<String> {
    let present = advice.rows.iter().find(|row| row.policy == advice.present_policy);
    let now = present.map_or(1.0, |row| row.latency_ns_mean).max(1e-9);
    let difference = match (row.difference_ns_mean, row.difference_ns_low, row.difference_ns_high) {
        (Some(mean), Some(low), Some(high)) => {
            format!("{} ± {}", signed(mean / now), percent((high - low) / 2.0 / now))
        }
        (Some(mean), _, _) => signed(mean / now),
        (None, _, _) => "present".to_owned(),
    };
    vec![
        short(&row.policy).to_owned(),
        millis(row.latency_ns_mean),
        interval(row.latency_ns_low, row.latency_ns_high),
        millis(row.latency_ns_p99 as f64),
        difference,
        Bytes(row.ssd_written_bytes_per_day as u64).to_string(),
        if row.keeps_up { String::new() } else { "overloaded".to_owned() },
    ]
}

fn curves(curves: &[SizeCurve]) -> String {
    if curves.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["policy", "SSD", ">size", ">mean ms", ">95 % interval", ">p99 ms", ""]);
    for curve in curves {
        for point in &curve.points {
            table.row(vec![
                short(&curve.policy).to_owned(),
                curve.ssd_models.clone(),
                Bytes(point.ssd_bytes).to_string(),
                millis(point.latency_ns_mean),
                interval(point.latency_ns_low, point.latency_ns_high),
                millis(point.latency_ns_p99 as f64),
                if Some(point.ssd_bytes) == curve.knee_bytes { "knee".to_owned() } else { String::new() },
            ]);
        }
    }
    format!("\n{}", table.render("  "))
}

fn interval(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", millis(low.max(0.0)), millis(high)),
        _ => "unknown".to_owned(),
    }
}

/// Shortens a policy with all its settings to its name; most settings are defaults.
fn short(policy: &str) -> &str {
    const ROOM: usize = 48;
    if policy.len() <= ROOM { policy } else { policy.split(',').next().unwrap_or(policy) }
}

/// Milliseconds, with the digits of a table.
pub fn millis(ns: f64) -> String {
    let ms = ns / 1e6;
    let places = if ms < 1.0 {
        3
    } else if ms < 100.0 {
        2
    } else {
        0
    };
    format!("{ms:.places$}")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn signed(share: f64) -> String {
    format!("{:+.0} %", share * 100.0)
}

fn share(times: f64) -> String {
    if times < 1.0 { format!("{:.2} % of", times * 100.0) } else { format!("{times:.1} times") }
}

fn age(days: f64) -> String {
    let years = days / 365.25;
    match years {
        years if years > 100.0 => "more than 100 years".to_owned(),
        years if years >= 1.0 => format!("{years:.1} years"),
        _ => format!("{days:.0} days"),
    }
}
