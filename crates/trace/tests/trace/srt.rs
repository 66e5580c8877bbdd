//! HP Labs' SRT: the meaning of records, the supported versions, and the errors for all others.

use crate::texts::{arrivals, error, problems, records, tuple};
use braid_base::Nanos;
use braid_base::Op::{Read, Write};
use braid_trace::{Error, Format, Options, Reader, TraceFile};

/// A heading with a date of three o'clock, and other lines of HP's headings.
const HEADING: &str = "name\t= \"cello\";\ntracedate\t= \"Sun Apr 26 15:00:00 1992\";\nend\n\x0c";

/// Fields of a record: version and kind, seconds, microseconds, bytes, sector, device, flags.
#[derive(Clone, Copy)]
struct Request {
    id: (u16, u16),
    at: (u32, u32),
    len: u32,
    sector: u32,
    device: u32,
    flags: u32,
}

const FIRST: Request =
    Request { id: (4, 1), at: (0, 5), len: 8192, sector: 100, device: 0x0400_0203, flags: 0x0008_0001 };

impl Request {
    fn bytes(self) -> Vec<u8> {
        let (version, kind) = self.id;
        let mut words = vec![
            u32::from(version) << 16 | u32::from(kind),
            self.at.0,
            self.at.1,
            10,
            20,
            self.len,
            self.sector,
            self.device,
            3,
            77,
            self.flags,
            2,
        ];
        words.extend((version >= 4).then_some(9));
        words.extend((kind == 4).then_some(1));
        words.insert(0, 4 * (words.len() as u32 + 1));
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }
}

/// Three requests to two disks, with a heading, in the given version.
fn trace(version: u16) -> Vec<u8> {
    let id = (version, 1);
    let requests = [
        Request { id, ..FIRST },
        Request { id, at: (0, 900_005), sector: 116, device: 0x0400_0207, flags: 0, ..FIRST },
        Request { id, at: (1, 5), len: 1024, sector: 8, device: 0x0400_0301, ..FIRST },
    ];
    let records = requests.into_iter().flat_map(Request::bytes);
    HEADING.bytes().chain(records).collect()
}

#[test]
fn srt_versions_1_to_4_give_equal_arrivals() {
    let expected = [
        (0, Read, 51_200, 8192),
        (900_000_000, Write, 59_392, 8192),
        (1_000_000_000, Read, (1 << 40) + 4096, 1024),
    ];
    for version in 1..=4 {
        let trace = trace(version);
        assert_eq!(Reader::open(&trace[..], &Options::default()).unwrap().format(), Format::Srt);
        assert_eq!(arrivals(&trace), expected, "{version}");
        // DiskSim's tools join files without their headings.
        assert_eq!(arrivals(&trace[HEADING.len()..]), expected, "{version}");
        let named = Options { format: Some("srt".parse().unwrap()), ..Options::default() };
        let found = records(&trace, &named);
        assert_eq!(found.iter().map(|record| tuple(&record.arrival)).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn srt_device_is_a_disk_with_all_partitions() {
    let trace = trace(4);
    let mut reader = Reader::open(&trace[..], &Options::default()).unwrap();
    let devices: Vec<u16> = reader.by_ref().map(|record| record.unwrap().device).collect();
    assert_eq!(devices, [0, 0, 1]);
    assert_eq!((reader.device_label(0), reader.device_label(1)), ("4,0x0002", "4,0x0003"));
    let one = Options { device: Some("4,0x0003".to_owned()), ..Options::default() };
    assert_eq!(records(&trace, &one).len(), 1);
}

#[test]
fn units_can_be_set() {
    let block = Some("1KiB".parse().unwrap());
    let options = Options { block, time_unit: Some(Nanos::from_millis(1)), ..Options::default() };
    let found: Vec<_> = records(&trace(3), &options).iter().map(|record| tuple(&record.arrival)).collect();
    assert_eq!(found[1], (900_000_000_000, Write, 118_784, 8192));
}

#[test]
fn files_of_one_trace_are_ordered_by_date() {
    let folder = tempfile::tempdir().unwrap();
    let part = |hour: &str, sector| {
        let heading = HEADING.replace("15:00:00", hour);
        let record = Request { sector, ..FIRST }.bytes();
        heading.bytes().chain(record).collect::<Vec<u8>>()
    };
    // The later file comes first by name.
    std::fs::write(folder.path().join("a"), part("16:00:00", 2)).unwrap();
    std::fs::write(folder.path().join("b"), part("15:00:00", 1)).unwrap();
    let parts = TraceFile::open(folder.path(), &Options::default(), None).unwrap();
    let found: Vec<_> = parts.reader().unwrap().map(|record| tuple(&record.unwrap().arrival)).collect();
    assert_eq!(found, [(0, Read, 512, 8192), (3_600_000_000_000, Read, 1024, 8192)]);
}

#[test]
fn bad_records_are_counted_and_skipped() {
    let usual = Options::default();
    for bad in [
        Request { id: (4, 4), ..FIRST }.bytes(),
        Request { at: (0, 1_000_000), ..FIRST }.bytes(),
        Request { len: 0, ..FIRST }.bytes(),
        Request { len: 1 << 31, ..FIRST }.bytes(),
        // An unsupported kind, a length that does not match the fields, garbage.
        Request { id: (4, 3), ..FIRST }.bytes(),
        [&[0, 0, 0, 60], &FIRST.bytes()[4..]].concat(),
        vec![7; 5000],
        vec![0; 3],
    ] {
        let (said, given) = problems(&[&trace(4)[..], &bad, &FIRST.bytes()].concat(), &usual);
        assert_eq!((said.len(), given), (1, 4), "{said:?}");
        let strict = Options { strict: true, ..Options::default() };
        let torn = [&trace(4)[..], &bad, &FIRST.bytes()].concat();
        assert!(matches!(error(&torn, &strict), Error::Strict { .. }));
    }
    for len in 1..56 {
        let (said, given) = problems(&[&trace(4)[..], &FIRST.bytes()[..len]].concat(), &usual);
        assert_eq!((said.len(), given), (1, 3), "{len}: {said:?}");
    }
}

#[test]
fn unknown_srt_versions_are_rejected() {
    let newer = [HEADING.as_bytes(), &Request { id: (6, 1), ..FIRST }.bytes()].concat();
    let named = Options { format: Some(Format::Srt), ..Options::default() };
    for options in [&named, &Options::default()] {
        assert!(matches!(error(&newer, options), Error::Unrecognised(_)));
    }
    assert!(matches!(error(b"0,1,512,r,0.0\n", &named), Error::Unrecognised(_)));
    // A heading alone is a trace without requests.
    assert_eq!(arrivals(HEADING.as_bytes()), []);
}

#[test]
fn heading_without_readable_date_starts_at_zero() {
    let dated = |date: &str| {
        let heading = HEADING.replace("Sun Apr 26 15:00:00 1992", date);
        [heading.as_bytes(), &trace(4)[HEADING.len()..]].concat()
    };
    for date in ["", "yesterday", "Sun Apr 99 15:00:00 1992", "Sun Apr 26 15:00:00 99999999999999999999"] {
        assert_eq!(arrivals(&dated(date)), arrivals(&trace(4)), "{date}");
    }
}
