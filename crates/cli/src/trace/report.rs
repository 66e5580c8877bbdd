//! `braid trace info` as text.

use super::info::Report;
use crate::table::Table;
use braid_base::{Bytes, Nanos};
use braid_trace::measure::{Measured, Method, MissRatios, Sizes};

/// Returns the whole report.
pub(super) fn describe(report: &Report) -> String {
    let Measured { requests, rate, .. } = &report.measured;
    let duration = Nanos::from_secs_f64(rate.duration_seconds);
    let mut text = format!(
        "{}: {}, {}; {} requests in {duration}\n",
        report.input_path, report.format, report.compression, requests.requests
    );
    if requests.requests == 0 {
        return text + &nothing(report);
    }
    text += &format!(
        "  {:.1} requests/s ({} in the busiest second), {:.2} MB/s; {} of reads and writes are reads\n\n",
        rate.arrivals_per_second,
        rate.peak_arrivals_per_second,
        rate.arrival_bytes_per_second / 1e6,
        percent(requests.read_share),
    );
    text += &sizes(&report.measured);
    text += "\n";
    for (name, sentence) in sentences(&report.measured) {
        text += &format!("  {name:12} {sentence}\n");
    }
    text + "\n" + &miss_ratios(&report.measured.miss_ratios) + &devices(report)
}

/// Remedy if no record is a request: blktrace may have traced other events.
fn nothing(report: &Report) -> String {
    match report.format.as_str() {
        "blktrace" | "blkparse" => {
            "  no event is the arrival of a request: try other events: --event issue, --event complete\n"
                .to_owned()
        }
        _ => String::new(),
    }
}

fn sizes(measured: &Measured) -> String {
    let columns =
        ["op", ">requests", ">bytes", ">mean", ">smallest", ">p10", ">median", ">p90", ">p99", ">largest"];
    let mut table = Table::new(&columns);
    let requests = &measured.requests;
    let kinds = [
        ("read", requests.read_bytes, &measured.sizes.read),
        ("write", requests.written_bytes, &measured.sizes.write),
        ("both", requests.read_bytes + requests.written_bytes, &measured.sizes.all),
    ];
    for (name, bytes, sizes) in kinds {
        let Sizes { request_bytes_mean, request_bytes_min, request_bytes_p10, request_bytes_p50, .. } =
            *sizes;
        let mut cells = vec![name.to_owned(), sizes.requests.to_string(), Bytes(bytes).to_string()];
        let figures =
            [request_bytes_mean.round() as u64, request_bytes_min, request_bytes_p10, request_bytes_p50];
        let larger = [sizes.request_bytes_p90, sizes.request_bytes_p99, sizes.request_bytes_max];
        cells.extend(figures.into_iter().chain(larger).map(|figure| match sizes.requests {
            0 => "-".to_owned(),
            _ => Bytes(figure).to_string(),
        }));
        table.row(cells);
    }
    let mut text = table.render("  ");
    if requests.flush_requests + requests.discard_requests > 0 {
        text += &format!(
            "  and {} flushes, {} discards of {}\n",
            requests.flush_requests,
            requests.discard_requests,
            Bytes(requests.discarded_bytes)
        );
    }
    text
}

fn sentences(measured: &Measured) -> [(&'static str, String); 7] {
    let Measured { footprint, seeks, locality, burstiness, reuse, working_set, .. } = measured;
    let about = if footprint.sampled_share < 1.0 { "about " } else { "" };
    let point = |blocks: f64| locality.shares.iter().find(|share| share.blocks_share == blocks);
    let hottest = |blocks| percent(point(blocks).map_or(0.0, |share| share.references_share));
    [
        (
            "footprint",
            format!(
                "{about}{} in {} blocks of {}: {} only read, {} only written",
                Bytes(footprint.footprint_bytes),
                footprint.footprint_blocks,
                Bytes(footprint.footprint_block_bytes),
                Bytes(footprint.only_read_bytes),
                Bytes(footprint.only_written_bytes)
            ),
        ),
        (
            "locality",
            format!(
                "the hottest 20 % of these blocks have {} of references (1 %: {}, 5 %: {}, 10 %: {}, 50 %: {})",
                percent(locality.hottest_20_percent_references_share),
                hottest(0.01),
                hottest(0.05),
                hottest(0.1),
                hottest(0.5)
            ),
        ),
        (
            "sequence",
            format!(
                "{} of requests begin at the end of the request before, {} at the end of one of the last 32; {} go back",
                percent(seeks.sequential_share),
                percent(seeks.stream_share),
                percent(seeks.backward_share)
            ),
        ),
        (
            "seeks",
            format!(
                "median {}, 90 % within {}, 99 % within {}",
                Bytes(seeks.seek_bytes_p50),
                Bytes(seeks.seek_bytes_p90),
                Bytes(seeks.seek_bytes_p99)
            ),
        ),
        (
            "burstiness",
            format!(
                "entropy of arrivals grows by {:.2} for each doubling of bins, up to 2^{} (1 is uniform, 0 a single burst)",
                burstiness.entropy_slope, burstiness.entropy_slope_k_max
            ),
        ),
        (
            "reuse",
            format!(
                "{} of references are first references; half of the others come again within {}, 90 % within {}",
                percent(reuse.first_references_share),
                Bytes(reuse.reuse_distance_bytes_p50),
                Bytes(reuse.reuse_distance_bytes_p90)
            ),
        ),
        (
            "working set",
            format!(
                "{} in {} on average, {} at most",
                Bytes(working_set.touched_bytes_mean),
                Nanos::from_secs_f64(working_set.window_seconds),
                Bytes(working_set.touched_bytes_max)
            ),
        ),
    ]
}

/// A table with a column for each power of four; a line has room for ten.
fn miss_ratios(miss_ratios: &MissRatios) -> String {
    const COLUMNS: usize = 10;
    let powers = miss_ratios.points.iter().filter(|point| point.cache_size_bytes.ilog2().is_multiple_of(2));
    let mut shown: Vec<_> = powers.filter(|point| point.cache_size_bytes.is_power_of_two()).collect();
    shown.extend(miss_ratios.points.last().filter(|last| shown.last() != Some(last)));
    let shown = &shown[shown.len().saturating_sub(COLUMNS)..];
    let columns: Vec<String> =
        shown.iter().map(|point| format!(">{}", Bytes(point.cache_size_bytes))).collect();
    let head: Vec<&str> = std::iter::once("LRU cache").chain(columns.iter().map(String::as_str)).collect();
    let mut table = Table::new(&head);
    let method = match miss_ratios.method {
        Method::Exact => "misses",
        Method::Sampled => "misses, by sample",
    };
    let misses = shown.iter().map(|point| percent(point.miss_ratio));
    table.row(std::iter::once(method.to_owned()).chain(misses).collect());
    table.render("  ")
}

fn devices(report: &Report) -> String {
    const SHOWN: usize = 30;
    if report.trace_devices.len() < 2 {
        return String::new();
    }
    let mut table = Table::new(&["device", ">requests", ">up to"]);
    for device in report.trace_devices.iter().take(SHOWN) {
        let cells =
            [device.trace_device.clone(), device.requests.to_string(), Bytes(device.end_bytes).to_string()];
        table.row(cells.into());
    }
    let more = report.trace_devices.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!("  and {more} more\n") } else { String::new() };
    format!("\n{}{rest}", table.render("  "))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
