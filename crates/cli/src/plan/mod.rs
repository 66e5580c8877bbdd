//! `braid plan`: finds the cheapest devices that hold a latency target under a recorded load.

mod text;

use crate::advise::{BLOCK, CACHE, EXTENT};
use crate::lab::Unfinished;
use crate::output::Output;
use crate::simulate::{Bar, failure};
use crate::trace::reading::Content;
use braid_base::Bytes;
use braid_control::{Error, ErrorKind, Result};
use braid_lab::advice::{LONGEST_PRICES, Plan, PlanQuestion, Prices, Question, Slo, Window, plan, plan_page};
use braid_trace::Options;
use clap::Args;
use serde::Serialize;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Find the cheapest devices that hold a latency target under a recorded load
///
/// All mixes of an SSD and a hard disk, in the sizes and counts of a price file, are simulated under the
/// load. The answer is the cheapest mix that holds the target in five simulations. The output also shows the
/// next cheapest mix, and changes that would alter the answer: more load, other prices.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid plan --trace web.csv.gz --slo 'p99<5ms' --prices prices.toml --size 4TB --html plan.html
  braid plan --trace web.csv.gz --slo 'mean<1ms' --prices prices.toml --policy equi --policy cache,mode=write-back

FILE of --prices (docs/example-prices.toml is an example, with invented figures):
  currency = \"EUR\"
  [[ssd]]                        # and [[hdd]]
  model = \"sata-ssd\"             # a name in braid device show, or FILE.toml
  sizes = [\"500GB\", \"1TB\"]
  price-per-gb = 0.07            # or price, for a device with a single size
  counts = [1, 2]                # numbers of devices to try [default: 1]

The last --requests of the recording are simulated at their own times, as by `braid advise`: the first half warms up. Of
data that the recording does not touch, at most 32 GiB are simulated; beyond that, as large a share of all data begins on
the SSDs as the SSDs have room for. Simulations know nothing of failures: add copies, spares and power yourself.

JSON: wall_seconds (differs from run to run), load, simulated_requests, warm_up_seconds, measured_seconds, data_bytes, target_statistic, target_ns, currency, cheapest
(null if none holds), runner_up, mixes (the cheapest first), faster (load_factor, target_statistic_ns, holds, cheapest_mix, cheapest_price), dearer (model,
price_factor, cheapest_mix, cheapest_price, is_another), seed.
  A mix: mix, device_arguments, price, policy, target_statistic_ns (the worst of its runs), latency_ns_mean, holds, run_count, why (reason if the mix cannot be simulated)")]
pub struct Arguments {
    /// Recorded load: a file, a folder, or FILE+FILE
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Target of reads and writes: mean, p50, p95, p99 or p999 below a time
    #[arg(long, value_name = "p99<TIME")]
    slo: Slo,
    /// File with the prices of devices
    #[arg(long, value_name = "FILE")]
    prices: PathBuf,
    /// Size of the volume [default: the extents that the recording touches]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Policy to simulate; each mix gets the best of several policies. Repeat the option for more policies
    /// [default: equi]
    #[arg(long, value_name = "POLICY[,KEY=VALUE...]")]
    policy: Vec<String>,
    /// File for a page with the picture of cost against latency
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of requests to simulate, at most, from the end of the recording: 64 to 5000000
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(64..=5_000_000))]
    requests: u32,
    /// Factor by which requests arrive faster than recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Seed of the devices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulations to run in parallel [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Unit of the recording's addresses, in formats of sectors or blocks [default: 512B]
    #[arg(long, value_name = "SIZE", help_heading = "Reading")]
    trace_block: Option<Bytes>,
    #[command(flatten)]
    content: Content,
}

#[derive(Serialize)]
struct Report {
    wall_seconds: f64,
    #[serde(flatten)]
    plan: Plan,
}

/// Runs the command. Exit status 1 if no mix holds the target.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    if !(arguments.speed > 0.0 && arguments.speed.is_finite()) {
        return Err(Error::new(ErrorKind::Usage, "--speed: use a number above 0"));
    }
    let begun = Instant::now();
    let prices = prices(&arguments.prices)?;
    let question = question(arguments, prices)?;
    let unfinished = arguments.html.as_deref().map(Unfinished::begin).transpose()?;
    let bar = Bar::new();
    let plan = plan(&question, |progress| {
        bar.show(progress);
        ControlFlow::Continue(())
    });
    bar.end();
    let plan = plan.map_err(|error| failure(&error))?;
    if let Some(unfinished) = unfinished {
        unfinished.finish(&plan_page(&plan, &text::sentences(&plan)))?;
    }
    let report = Report { wall_seconds: begun.elapsed().as_secs_f64(), plan };
    output.show(&report, || text::describe(&report.plan, arguments.html.as_deref()));
    Ok(u8::from(report.plan.cheapest.is_none()))
}

fn question(arguments: &Arguments, prices: Prices) -> Result<PlanQuestion> {
    let options =
        Options { block: arguments.trace_block, speed: arguments.speed, ..arguments.content.options() };
    let window = Window::read(&arguments.trace, &options, EXTENT, arguments.requests as usize);
    let policies =
        if arguments.policy.is_empty() { vec!["equi".to_owned()] } else { arguments.policy.clone() };
    let usual = Question {
        window: window.map_err(|error| failure(&error))?,
        devices: Vec::new(),
        present_policy: policies[0].clone(),
        policies,
        volume: None,
        other_ssds: Vec::new(),
        block_size: BLOCK,
        copies: 1,
        cache_extents: CACHE,
        endurance: None,
        sizes: false,
        seed: arguments.seed,
        threads: arguments.threads.map(usize::from),
    };
    Ok(PlanQuestion { usual, prices, slo: arguments.slo, data: arguments.size.unwrap_or_default() })
}

fn prices(path: &Path) -> Result<Prices> {
    let failed = |error: &std::io::Error| Error::io(format_args!("cannot read {}", path.display()), error);
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut text = String::new();
    file.take(LONGEST_PRICES + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let wrong = |why: String| {
        let problem = format!("{}: {why}: braid plan --help shows a price file", path.display());
        Error::new(ErrorKind::Usage, problem)
    };
    if text.len() as u64 > LONGEST_PRICES {
        return Err(wrong(format!("longer than {}", Bytes(LONGEST_PRICES))));
    }
    Prices::parse(&text).map_err(|error| wrong(error.to_string()))
}
