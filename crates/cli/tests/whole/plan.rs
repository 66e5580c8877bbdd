//! `braid plan`: the cheapest devices that meet a target.

use crate::advise::record_reads;
use crate::machine::Machine;
use serde_json::Value;

const PRICES: &str = "
    currency = \"EUR\"
    [[ssd]]
    model = \"x25-m\"
    sizes = [\"64MB\", \"512MB\"]
    price-per-gb = 100
    [[hdd]]
    model = \"mba3073\"
    sizes = [\"1GB\"]
    price = 10
";

/// Creates a machine with a recording and prices.
pub fn with_prices() -> Machine {
    let machine = Machine::new();
    record_reads(&machine, 2000);
    std::fs::write(machine.path("prices.toml"), PRICES).unwrap();
    machine
}

fn words<'a>(slo: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["plan", "--trace", "t.spc", "--prices", "prices.toml", "--slo", slo], more].concat()
}

#[test]
fn cheapest_sufficient_mix_depends_on_the_target() {
    let machine = with_prices();
    let cheapest = |slo: &str| machine.json(&words(slo, &["--size", "200MB"]))["cheapest"]["mix"].clone();
    assert_eq!(cheapest("p99<200ms"), "1 × mba3073 of 1 GB", "a disk alone costs least");
    // Only a mix with all data on the SSD answers every read at the speed of an SSD.
    assert_eq!(cheapest("p99<1ms"), "1 × x25-m of 0.512 GB");
    let plan = machine.json(&words("p99<1ms", &["--size", "200MB", "--html", "plan.html"]));
    let mixes = plan["mixes"].as_array().unwrap();
    let prices: Vec<f64> = mixes.iter().map(|mix| mix["price"].as_f64().unwrap()).collect();
    assert!(prices.is_sorted() && prices.len() == 4, "{prices:?}");
    assert_eq!((&plan["cheapest"]["run_count"], &plan["cheapest"]["price"]), (&5.into(), &51.2.into()));
    assert_eq!(plan["runner_up"]["mix"], "1 × x25-m of 0.512 GB + 1 × mba3073 of 1 GB");
    let page = std::fs::read_to_string(machine.path("plan.html")).unwrap();
    assert!(page.matches("<svg").count() == 1 && !page.contains("<script") && !page.contains("src="));
}

#[test]
fn plan_without_a_sufficient_mix_exits_with_failure() {
    let machine = with_prices();
    let ended = machine.braid(&[&words("p99<1us", &[])[..], &["--json"]].concat());
    let plan: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.status, &plan["cheapest"]), (1, &Value::Null), "{ended:?}");
}

#[test]
fn plan_errors_name_the_cause_and_the_remedy() {
    let machine = with_prices();
    machine.refused(&words("p99>5ms", &[]), "usage", &["p99<5ms"]);
    machine.refused(&words("p99<5ms", &["--size", "1TB"]), "usage", &["counts"]);
    machine.refused(&words("p99<5ms", &["--policy", "balance"]), "usage", &["wardrop"]);
    std::fs::write(machine.path("prices.toml"), PRICES.replace("price = 10", "cost = 10")).unwrap();
    machine.refused(&words("p99<5ms", &[]), "usage", &["prices.toml", "cost"]);
    std::fs::remove_file(machine.path("prices.toml")).unwrap();
    machine.refused(&words("p99<5ms", &[]), "io", &["prices.toml"]);
}

#[test]
fn the_example_of_prices_can_be_read() {
    let machine = Machine::new();
    record_reads(&machine, 100);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/example-prices.toml");
    let plan = machine.json(&["plan", "--trace", "t.spc", "--slo", "p99<1s", "--prices", example]);
    assert!(plan["mixes"].as_array().unwrap().len() > 20);
}
