//! Balance of policies between one SSD and one disk, in virtual time: shares, response times and throughput
//! as the number of clients changes.
//!
//! `cargo run --release -p braid-bench --bin balance -- [POLICY …]`; `SSD=x25-m,…` chooses the models of the
//! SSD, `SEED=1` the seed.

use anyhow::Result;
use braid_bench::balance::run;

const POLICIES: &[&str] =
    &["ssd-only", "hdd-only", "stripe", "static,ssd=90%", "static,ssd=80%", "static,ssd=70%", "wardrop"];

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let policies: Vec<&str> =
        if asked.is_empty() { POLICIES.to_vec() } else { asked.iter().map(String::as_str).collect() };
    let ssds = std::env::var("SSD").unwrap_or_else(|_| "x25-m,transcend-16g".to_owned());
    let seed = std::env::var("SEED").map_or(Ok(1), |seed| seed.parse())?;
    for ssd in ssds.split(',') {
        println!(
            "# {ssd} and mba3073, seed {seed}, virtual time: the last 20 s of 30 s with 1 client and of 60 s with 10"
        );
        for policy in &policies {
            println!("{policy}");
            run(ssd, policy, seed)?.iter().for_each(|phase| println!("    {phase}"));
        }
    }
    Ok(())
}
