//! The compact format: written records read back unchanged, and damage costs only the damaged block.

use crate::texts::{arrival, problems, tuple};
use braid_base::{Arrival, Bytes, Nanos, Op, Rng};
use braid_trace::{
    BlockCompression, COMPACT_END_LEN, CompactEnd, CompactWriter, Header, Options, Place, Reader, TraceFile,
    compact_end,
};
use proptest::prelude::*;

fn write(header: &Header, compression: BlockCompression, arrivals: &[Arrival]) -> Vec<u8> {
    let mut writer = CompactWriter::open(Vec::new(), header, compression).unwrap();
    arrivals.iter().for_each(|arrival| writer.push(arrival).unwrap());
    assert_eq!(writer.records(), arrivals.len() as u64);
    writer.finish(0).unwrap()
}

fn read(bytes: &[u8]) -> Vec<Arrival> {
    let mut reader = Reader::open(bytes, &Options::default()).unwrap();
    let arrivals = reader.by_ref().map(|record| record.unwrap().arrival).collect();
    assert_eq!(reader.problems().kept(), []);
    arrivals
}

/// Arbitrary valid requests, in order of time, the first at time zero.
fn some_arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let time = prop_oneof![
        Just(0u64),
        1..1_000u64,
        (1..1_000u64).prop_map(|us| us * 1_000),
        (1..1_000u64).prop_map(|ticks| ticks * 100),
        1..1u64 << 50
    ];
    let op =
        prop_oneof![3 => Just(Op::Read), 3 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::Discard)];
    let offset =
        prop_oneof![0..1u64 << 20, (0..1u64 << 40).prop_map(|n| n * 512), 0..(1u64 << 56) - (1 << 28)];
    let len = prop_oneof![Just(4096u64), (1..100u64).prop_map(|n| n * 512), 1..=256u64 << 20];
    let request = (time, op, offset, len, any::<bool>());
    prop::collection::vec(request, 0..300).prop_map(|requests| {
        let (mut at, mut end) = (0, 0);
        let arrivals = requests.into_iter().enumerate().map(|(number, (since, op, offset, len, next))| {
            at += if number == 0 { 0 } else { since };
            let offset = if next && end < 1 << 55 { end } else { offset };
            if op == Op::Flush {
                return arrival(at, op, 0, 0);
            }
            end = offset + len;
            arrival(at, op, offset, len)
        });
        arrivals.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_arrivals_are_read_back_unchanged(arrivals in some_arrivals(), zstd: bool) {
        let compression = if zstd { BlockCompression::Zstd(1) } else { BlockCompression::None };
        prop_assert_eq!(read(&write(&Header::default(), compression, &arrivals)), arrivals);
    }

    #[test]
    fn truncated_trace_yields_all_whole_blocks(arrivals in some_arrivals(), block in 1..50usize, cut: u64) {
        let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).unwrap();
        // End of each block, and number of records up to there.
        let mut ends = vec![(writer.out().len(), 0)];
        for (number, arrival) in arrivals.iter().enumerate() {
            writer.push(arrival).unwrap();
            if number % block == block - 1 {
                writer.end_block().unwrap();
                ends.push((writer.out().len(), number + 1));
            }
        }
        let bytes = writer.finish(0).unwrap();
        let cut = ends[0].0 + cut as usize % (bytes.len() - ends[0].0);
        let mut reader = Reader::open(&bytes[..cut], &Options::default()).unwrap();
        let found: Vec<Arrival> = reader.by_ref().map(|record| record.unwrap().arrival).collect();
        let whole = ends.iter().rev().find(|&&(end, _)| end <= cut).unwrap().1;
        prop_assert_eq!(&found[..], &arrivals[..found.len()]);
        prop_assert!(found.len() >= whole);
        prop_assert_eq!(reader.problems().count(), 1, "that it is cut off is said once: {:?}", reader.problems());
    }
}

fn sequence(count: u64) -> Vec<Arrival> {
    (0..count).map(|n| arrival(n * 1_000, Op::Read, n % 7 * 4096, 4096)).collect()
}

/// Three blocks of ten records, and the start of each block.
fn three_blocks() -> (Vec<u8>, Vec<usize>) {
    let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).unwrap();
    let mut begins = Vec::new();
    for ten in sequence(30).chunks(10) {
        begins.push(writer.out().len());
        ten.iter().for_each(|arrival| writer.push(arrival).unwrap());
        writer.end_block().unwrap();
    }
    begins.push(writer.out().len());
    (writer.finish(0).unwrap(), begins)
}

#[test]
fn dropped_records_of_the_recorder_are_reported() {
    let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).unwrap();
    sequence(3).iter().for_each(|arrival| writer.push(arrival).unwrap());
    let bytes = writer.finish(12_345).unwrap();
    let (said, given) = problems(&bytes, &Options::default());
    assert_eq!((given, said.len()), (3, 1), "{said:?}");
    assert!(said[0].contains("12345 "), "{said:?}");
    assert_eq!(compact_end(&bytes), Some(CompactEnd { records: 3, dropped: 12_345 }));
    assert_eq!(compact_end(&bytes[..bytes.len() - 1]), None);
    assert_eq!(compact_end(&bytes[bytes.len() - COMPACT_END_LEN + 1..]), None);
}

#[test]
fn damaged_block_loses_no_records_of_intact_blocks() {
    let (bytes, begins) = three_blocks();
    for at in begins[1] + 48..begins[2] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        let (said, given) = problems(&bytes, &Options::default());
        assert_eq!((given, said.len()), (20, 1), "{said:?}");
        assert!(said[0].starts_with("block 1: ") && said[0].contains("10 records"), "{said:?}");
    }
}

#[test]
fn after_a_damaged_head_reading_goes_on_with_the_next_block() {
    let (bytes, begins) = three_blocks();
    for at in begins[1]..begins[1] + 48 {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x01;
        let (said, given) = problems(&bytes, &Options::default());
        assert_eq!((given, said.len()), (20, 2), "{said:?}");
        assert!(said[1].contains("10 records"), "{said:?}");
    }
}

#[test]
fn data_after_the_end_is_reported() {
    let (bytes, _) = three_blocks();
    let (said, given) = problems(&[&bytes[..], &bytes].concat(), &Options::default());
    assert_eq!((given, said.len()), (30, 1));
}

#[test]
fn the_header_keeps_name_devices_and_time() {
    let place =
        |device: &str, base, span| Place { device: device.to_owned(), base: Bytes(base), span: Bytes(span) };
    let header = Header {
        name: "ein Gerät".to_owned(),
        span: Some(Bytes(1 << 30)),
        records: Some(2),
        unix_ns: Some(1_700_000_000_000_000_000),
        places: vec![place("sdb", 1 << 20, 1 << 20), place("sda", 0, 1 << 20)],
    };
    let arrivals = [arrival(0, Op::Read, 4096, 512), arrival(5, Op::Write, (1 << 20) + 512, 512)];
    let bytes = write(&header, BlockCompression::None, &arrivals);
    let mut reader = Reader::open(&bytes[..], &Options::default()).unwrap();
    let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(records.iter().map(|record| record.arrival).collect::<Vec<_>>(), arrivals);
    assert_eq!((reader.device_label(records[0].device), records[0].within), ("sda", Bytes(4096)));
    assert_eq!((reader.device_label(records[1].device), records[1].within), ("sdb", Bytes(512)));
    let only = Options { device: Some("sdb".to_owned()), ..Options::default() };
    let mut reader = Reader::open(&bytes[..], &only).unwrap();
    assert_eq!(tuple(&reader.next().unwrap().unwrap().arrival), (0, Op::Write, 512, 512));
}

#[test]
fn a_complete_file_need_not_be_read_to_be_surveyed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let header = Header { span: Some(Bytes(1 << 40)), ..Header::default() };
    let (bytes, _) = three_blocks();
    std::fs::write(&path, &bytes).unwrap();
    let survey = |path| TraceFile::open(path, &Options::default(), None).unwrap().survey().clone();
    let complete = survey(&path);
    assert_eq!((complete.tally.records, complete.duration, complete.span.0), (30, Nanos(29_000), 7 * 4096));
    // Without its end, the trace is read in a full pass.
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let torn = survey(&path);
    assert_eq!((torn.tally.records, torn.duration, torn.tally.bad_records), (30, Nanos(29_000), 1));
    std::fs::write(&path, write(&header, BlockCompression::Zstd(3), &sequence(3))).unwrap();
    assert_eq!(survey(&path).span, Bytes(1 << 40));
}

#[test]
fn writer_rejects_invalid_arrivals() {
    let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).unwrap();
    writer.push(&arrival(10, Op::Read, 0, 512)).unwrap();
    for wrong in [
        arrival(9, Op::Read, 0, 512),
        arrival(10, Op::Read, 0, 0),
        arrival(10, Op::Write, 1 << 56, 512),
        arrival(10, Op::Read, u64::MAX, 512),
        arrival(10, Op::Read, 0, 1 << 40),
    ] {
        assert!(writer.push(&wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(read(&writer.finish(0).unwrap()), [arrival(0, Op::Read, 0, 512)]);
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let (mut bytes, _) = three_blocks();
    bytes[8] = 2;
    let error = Reader::open(&bytes[..], &Options::default()).err().unwrap().to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn real_looking_requests_take_few_bytes() {
    let mut rng = Rng::new(4);
    let mut at = 0;
    let requests: Vec<Arrival> = (0..10_000)
        .map(|_| {
            at += rng.below(1000) * 1000;
            arrival(at, Op::Read, rng.below(1 << 20) * 4096, 4096)
        })
        .collect();
    let each = write(&Header::default(), BlockCompression::None, &requests).len() as f64 / 10_000.0;
    assert!(each < 7.1, "{each}");
}
