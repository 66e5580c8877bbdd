//! Several devices in one trace.

use crate::texts::{error, problems, records};
use braid_base::{Bytes, TIB};
use braid_trace::{
    BlockCompression, Error, Header, Layout, Options, Place, Reader, Target, TraceFile, convert,
};

const TWO: &[u8] = b"10,0,512,r,0.0\n2,4096,512,w,0.1\n10,8192,1024,r,0.2\n";

fn file(text: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a trace");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn survey_packs_devices_by_number_before_reading() {
    let (_folder, path) = file(TWO);
    let trace = TraceFile::open(&path, &Options::default(), None).unwrap();
    let survey = trace.survey();
    let place = |device: &str, base, span| Place { device: device.to_owned(), base, span };
    let three = Bytes(3 << 20);
    let five = Bytes(5 << 20);
    assert_eq!(survey.places, [place("2", Bytes::ZERO, three), place("10", three, five)]);
    assert_eq!((survey.span, survey.tally.records), (three + five, 3));
    assert_eq!(survey.duration.as_secs_f64(), 0.2);
    for _ in 0..2 {
        let offsets: Vec<Bytes> =
            trace.reader().unwrap().arrivals().map(|arrival| arrival.unwrap().request.offset).collect();
        assert_eq!(offsets, [three, Bytes(4096 * 512), three + Bytes(8192 * 512)]);
    }
}

#[test]
fn one_pass_reading_spaces_devices_in_order_of_appearance() {
    let records = records(TWO, &Options::default());
    assert_eq!(records[1].arrival.request.offset, TIB + Bytes(4096 * 512));
    assert_eq!((records[1].device, records[1].within), (1, Bytes(4096 * 512)));
    let small = Options { layout: Layout::Apart(Bytes(1 << 20)), ..Options::default() };
    let (said, given) = problems(TWO, &small);
    assert_eq!(given, 1);
    assert!(said[0].contains("line 2") && said[0].contains("1 MiB"), "{said:?}");
}

#[test]
fn single_device_is_read_at_original_addresses() {
    let only = Options { device: Some("10".to_owned()), ..Options::default() };
    let records = records(TWO, &only);
    assert_eq!(records[1].arrival.request.offset, Bytes(8192 * 512));
    assert_eq!(records.len(), 2);
    // Time starts with the first request of the selected device.
    let other = Options { device: Some("2".to_owned()), ..Options::default() };
    assert_eq!(self::records(TWO, &other)[0].arrival.at.0, 0);
}

#[test]
fn layout_of_a_different_trace_is_rejected() {
    let places = vec![Place { device: "10".to_owned(), base: Bytes::ZERO, span: TIB }];
    let other = Options { layout: Layout::Packed(places), ..Options::default() };
    let error = error(TWO, &other);
    assert!(matches!(&error, Error::Options(text) if text.contains("'2'")), "{error}");
}

/// Regression: only 1,024 devices were read. The records of all other devices were bad, and the command still
/// succeeded.
#[test]
fn thousands_of_devices_are_read_and_convert_to_the_compact_format_and_back() {
    let text: String = (0..5000).map(|asu| format!("{asu},{},512,r,{}.0\n", asu % 7, asu)).collect();
    let (said, given) = problems(text.as_bytes(), &Options::default());
    assert_eq!((said.len(), given), (0, 5000));
    // In passes without replay, each device has room for 32 TiB.
    let far = format!("{text}4999,{},512,r,5001.0\n", (32u64 << 40) / 512 - 1);
    let roomy = Options { layout: Layout::ROOMY, ..Options::default() };
    assert_eq!(problems(far.as_bytes(), &roomy).0.len(), 0);
    let (_folder, path) = file(text.as_bytes());
    let trace = TraceFile::open(&path, &Options::default(), None).unwrap();
    let header = Header { places: trace.survey().places.clone(), ..Header::default() };
    let mut compact = Vec::new();
    let target = Target::Compact(BlockCompression::None);
    convert(&mut trace.reader().unwrap(), target, &header, &mut compact, |_| {}).unwrap();
    let mut reader = Reader::open(&compact[..], &Options::default()).unwrap();
    let places: Vec<u64> = reader.by_ref().map(|record| record.unwrap().within.0).collect();
    assert_eq!(places, (0..5000).map(|asu| asu % 7 * 512).collect::<Vec<u64>>());
    assert_eq!(reader.devices().iter().filter(|seen| seen.requests == 1).count(), 5000);
    // Devices beyond the room of a header are an error, and are not cut off.
    let places = vec![header.places[0].clone(); 60_000];
    let error =
        convert(&mut trace.reader().unwrap(), target, &Header { places, ..header }, &mut Vec::new(), |_| {});
    assert!(error.unwrap_err().to_string().contains("60000"));
}

#[test]
fn a_device_too_many_ends_the_trace_with_an_error() {
    let text: String = (0..65_537).map(|asu| format!("{asu},0,512,r,0.0\n")).collect();
    let mut reader = Reader::open(text.as_bytes(), &Options::default()).unwrap();
    let given = reader.by_ref().take_while(Result::is_ok).count();
    assert_eq!(given, 65_536);
    let error = error(text.as_bytes(), &Options::default());
    assert!(matches!(&error, Error::Options(text) if text.contains("65536")), "{error}");
}

#[test]
fn missing_or_special_file_is_named_in_the_error() {
    let open =
        |path: &str| TraceFile::open(path.as_ref(), &Options::default(), None).err().unwrap().to_string();
    assert!(open("/no/such/trace").contains("/no/such/trace"));
    assert!(open("/dev/null").contains("/dev/null"));
    let (_folder, path) = file(b"0,0,512,r,0\n0,0,512,r,zero\n");
    let strict = Options { strict: true, ..Options::default() };
    let said = TraceFile::open(&path, &strict, None).err().unwrap().to_string();
    assert!(said.contains("line 2: "), "{said}");
}
