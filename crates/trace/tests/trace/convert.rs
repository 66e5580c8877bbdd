//! Conversion between formats, in both directions.

use crate::texts::{arrival, arrivals, tuple};
use braid_base::Op::{Discard, Flush, Read, Write};
use braid_base::{Arrival, Bytes};
use braid_trace::{
    BlockCompression, CompactWriter, Converted, Error, Header, Options, Reader, Target, convert,
};

fn converted(bytes: &[u8], target: Target) -> (Converted, Vec<u8>) {
    let mut reader = Reader::open(bytes, &Options::default()).unwrap();
    let (mut out, mut seen) = (Vec::new(), 0);
    let what = convert(&mut reader, target, &Header::default(), &mut out, |_| seen += 1).unwrap();
    assert_eq!(seen, what.records + what.left_out_records);
    (what, out)
}

const COMPACT: Target = Target::Compact(BlockCompression::None);

fn trace(arrivals: &[Arrival]) -> Vec<u8> {
    let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None).unwrap();
    arrivals.iter().for_each(|arrival| writer.push(arrival).unwrap());
    writer.finish(0).unwrap()
}

fn all_kinds() -> Vec<Arrival> {
    vec![
        arrival(0, Write, 4096, 8192),
        arrival(1_000_000, Read, 512, 512),
        arrival(7_000_000, Flush, 0, 0),
        arrival(7_000_000, Discard, 1 << 20, 1 << 20),
        arrival(2_000_000_000, Read, 0, 4096),
    ]
}

#[test]
fn compact_conversion_keeps_all_arrivals() {
    let all = all_kinds();
    let (what, bytes) = converted(&trace(&all), Target::Compact(BlockCompression::Zstd(1)));
    assert_eq!((what.records, what.left_out_records, what.rounded_records), (5, 0, 0));
    assert_eq!(arrivals(&bytes), all.iter().map(tuple).collect::<Vec<_>>());
}

#[test]
fn fio_conversion_loses_only_finer_times() {
    let all = all_kinds();
    for target in [Target::Fio2, Target::Fio3] {
        let (what, text) = converted(&trace(&all), target);
        assert_eq!(what.records, 5);
        assert_eq!(arrivals(&text), all.iter().map(tuple).collect::<Vec<_>>(), "{target}");
    }
    let (_, text) =
        converted(&trace(&[arrival(0, Read, 0, 1), arrival(1_999_999, Read, 0, 1)]), Target::Fio3);
    assert_eq!(arrivals(&text)[1].0, 1_999_000);
}

#[test]
fn spc_has_no_flushes_and_no_discards_and_addresses_in_sectors() {
    let (what, text) = converted(&trace(&all_kinds()), Target::Spc);
    assert_eq!((what.records, what.left_out_records, what.rounded_records), (3, 2, 0));
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text, "0,8,8192,w,0.000000000\n0,1,512,r,0.001000000\n0,0,4096,r,2.000000000\n");
    let (what, text) = converted(&trace(&[arrival(0, Read, 1000, 100)]), Target::Spc);
    assert_eq!((what.rounded_records, arrivals(&text)), (1, vec![(0, Read, 512, 588)]));
}

#[test]
fn spc_converts_to_identical_spc_with_asus() {
    let text = b"3,10,512,w,0.000000000\n0,20,1024,r,0.000000001\n3,30,512,r,5.123456789\n";
    assert_eq!(converted(text, Target::Spc).1, text);
}

#[test]
fn devices_survive_the_compact_format_if_places_are_known() {
    let text = b"sda read\n";
    assert!(Reader::open(&text[..], &Options::default()).is_err());
    let text = b"fio version 3 iolog\n0 /dev/sda read 0 512\n1 /dev/sdb write 512 512\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, text).unwrap();
    let file = braid_trace::TraceFile::open(&path, &Options::default(), None).unwrap();
    let survey = file.survey();
    let header = Header { span: Some(survey.span), places: survey.places.clone(), ..Header::default() };
    let mut compact = Vec::new();
    convert(&mut file.reader().unwrap(), COMPACT, &header, &mut compact, |_| ()).unwrap();
    let mut reader = Reader::open(&compact[..], &Options::default()).unwrap();
    let second = reader.by_ref().nth(1).unwrap().unwrap();
    assert_eq!((reader.device_label(second.device), second.within), ("/dev/sdb", Bytes(512)));
    let (_, text) = converted(&compact, Target::Fio3);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("2 /dev/sdb write 512 512\n") && text.contains("/dev/sdb close"), "{text}");
}

#[test]
fn failing_destination_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bytes = trace(&all_kinds());
    for target in [COMPACT, Target::Spc, Target::Fio2] {
        let mut reader = Reader::open(&bytes[..], &Options::default()).unwrap();
        let error = convert(&mut reader, target, &Header::default(), Full, |_| ()).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
}
