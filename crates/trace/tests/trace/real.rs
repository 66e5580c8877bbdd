//! Real traces from ../shared/traces against the figures in their readme. Without the traces, the tests print
//! a note and pass.

use braid_trace::measure::{Limits, Measured, Measures, Method};
use braid_trace::{Compression, Format, Options, Reader, TraceFile};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns a trace of ../shared/traces, or `None`.
fn shared(name: &str) -> Option<PathBuf> {
    let up = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = up.map(|folder| folder.join("shared/traces").join(name)).find(|path| path.exists());
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: ../shared/traces/{name} is not there");
    }
    found
}

fn measured(path: &Path, options: &Options, format: Format) -> Measured {
    let mut reader = Reader::open(File::open(path).unwrap(), options).unwrap();
    assert_eq!((reader.format(), reader.compression()), (format, Compression::Zstd), "{}", path.display());
    let mut measures = Measures::new(Limits::default());
    reader.by_ref().for_each(|record| measures.add(&record.unwrap()));
    assert_eq!(reader.problems().kept(), [], "{}", path.display());
    assert_eq!(reader.tally().late_records, 0, "{}", path.display());
    measures.finish()
}

/// Figures of the readme: requests, seconds, read %, mean size in bytes, footprint in MiB.
#[track_caller]
fn agrees(name: &str, format: Format, (requests, seconds, read, mean, mib): (u64, f64, f64, f64, f64)) {
    let Some(path) = shared(name) else { return };
    let found = measured(&path, &Options::default(), format);
    assert_eq!(found.requests.requests, requests);
    let duration = found.rate.duration_seconds;
    assert!((duration - seconds).abs() <= 0.0005 * seconds + 0.0005, "{duration} s");
    let share = found.requests.read_share * 100.0;
    assert!((share - read).abs() <= 0.05, "{share} % reads");
    let size = found.sizes.all.request_bytes_mean;
    assert!((size - mean).abs() <= 0.5, "{size} bytes on average");
    let footprint = found.footprint.footprint_bytes as f64 / f64::from(1 << 20);
    assert!((footprint - mib).abs() <= 0.05, "{footprint} MiB");
    assert_eq!(found.miss_ratios.method, Method::Exact);
}

#[test]
fn financial1_is_as_described() {
    agrees("financial1-first10000.spc.zst", Format::Spc, (10_000, 259.6, 40.8, 5_528.0, 28.6));
}

#[test]
fn cloudphysics_is_as_described() {
    agrees("cloudphysics-sample.csv.zst", Format::CloudPhysics, (113_872, 7_200.1, 41.3, 36_936.0, 1_051.6));
}

#[test]
fn the_developers_tools_release_server_is_as_described() {
    agrees("ms-dtrs-127k.ascii.zst", Format::SsdSim, (127_043, 30_000.0, 89.0, 56_657.0, 4_969.8));
}

#[test]
fn tpcc_is_as_described() {
    agrees("ms-tpcc-small.ascii.zst", Format::SsdSim, (6_999, 0.136, 62.6, 8_532.0, 80.0));
}

#[test]
fn the_slices_of_msr_traces_are_as_described() {
    agrees("msr-cut10k-rw_20_80.105.trace.zst", Format::MsrCut, (10_000, 242.9, 20.2, 5_481.0, 28.8));
    agrees("msr-cut10k-rw_40_60.1370.trace.zst", Format::MsrCut, (10_000, 85.9, 40.5, 4_884.0, 35.0));
}

/// A block of the trace counts as a block of 4 KiB, so that both counts agree.
#[test]
fn the_arc_traces_have_the_blocks_and_references_of_the_papers_table() {
    let options = Options { block: Some("4KiB".parse().unwrap()), ..Options::default() };
    for (name, references, blocks) in
        [("arc-OLTP.lis.zst", 914_145, 186_880), ("arc-P3.lis.zst", 3_912_296, 762_543)]
    {
        let Some(path) = shared(name) else { continue };
        let found = measured(&path, &options, Format::Arc);
        assert_eq!(found.footprint.footprint_blocks, blocks, "{name}");
        assert_eq!(found.footprint.block_references, references, "{name}");
        assert_eq!((found.requests.read_share, found.requests.write_requests), (1.0, 0));
    }
}

/// The ARC paper (FAST 2003) compares policies on OLTP at these numbers of pages, and gives these hit ratios
/// of LRU in per cent. The figures are from memory. Agreement to a tenth confirms both the figures and the
/// measurement. The measured sizes lie around the paper's sizes.
#[test]
fn lru_hits_as_much_of_oltp_as_the_arc_paper_says() {
    let Some(path) = shared("arc-OLTP.lis.zst") else { return };
    let options = Options { block: Some("4KiB".parse().unwrap()), ..Options::default() };
    let points = measured(&path, &options, Format::Arc).miss_ratios.points;
    for (pages, published) in
        [(1_000.0, 32.83), (2_000.0, 42.47), (5_000.0, 53.65), (10_000.0, 60.70), (15_000.0, 64.63)]
    {
        let size = |at: usize| points[at].cache_size_bytes as f64 / 4096.0;
        let hits = |at: usize| 100.0 - 100.0 * points[at].miss_ratio;
        let above = (0..points.len()).find(|&at| size(at) >= pages).unwrap();
        let part = (pages - size(above - 1)) / (size(above) - size(above - 1));
        let found = hits(above - 1) + part * (hits(above) - hits(above - 1));
        assert!((found - published).abs() < 0.15, "{pages} pages: {found}, published {published}");
    }
}

#[test]
fn twenty_two_asus_are_packed_in_order() {
    let Some(path) = shared("financial1-first10000.spc.zst") else { return };
    let file = TraceFile::open(&path, &Options::default(), None).unwrap();
    let survey = file.survey();
    assert_eq!((survey.places.len(), survey.tally.records), (22, 10_000));
    let mut end = 0;
    for place in &survey.places {
        assert_eq!(place.base.0, end, "{} begins where the one before ends", place.device);
        end += place.span.0;
    }
    assert_eq!(survey.span.0, end);
    let numbers: Vec<u32> = survey.places.iter().map(|place| place.device.parse().unwrap()).collect();
    assert!(numbers.is_sorted());
    let inside = |arrival: braid_base::Arrival| arrival.request.offset + arrival.request.len <= survey.span;
    assert!(file.reader().unwrap().arrivals().all(|arrival| inside(arrival.unwrap())));
}

/// The readme gives 1,013 writes and no reads for ASU 0.
#[test]
fn a_device_can_be_read_alone() {
    let Some(path) = shared("financial1-first10000.spc.zst") else { return };
    let options = Options { device: Some("0".to_owned()), ..Options::default() };
    let found = measured(&path, &options, Format::Spc);
    assert_eq!((found.requests.read_requests, found.requests.write_requests), (0, 1_013));
}
