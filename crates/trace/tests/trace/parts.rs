//! A trace in several files, and the counts of a first pass.

use crate::texts::{records, tuple};
use braid_base::Bytes;
use braid_trace::{Compaction, Error, Event, Options, Record, TraceFile};
use std::path::{Path, PathBuf};

/// Two devices, six requests.
const WHOLE: &str =
    "2,0,512,r,5.0\n1,8,512,w,5.1\n1,300,1024,r,5.2\n2,9000,512,r,5.3\n1,0,512,w,5.4\n2,4,512,r,5.5\n";

/// The trace as a whole, and split into two files by turns.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    let lines: Vec<&str> = WHOLE.lines().collect();
    let part = |from| lines.iter().skip(from).step_by(2).map(|line| format!("{line}\n")).collect::<String>();
    // The part that begins later comes first by name.
    std::fs::write(parts.join("a"), part(1)).unwrap();
    std::fs::write(parts.join("b"), part(0)).unwrap();
    std::fs::write(parts.join(".hidden"), "no trace").unwrap();
    std::fs::write(folder.path().join("whole"), WHOLE).unwrap();
    (folder, parts)
}

fn read(path: &Path, options: &Options) -> (TraceFile, Vec<Record>) {
    let parts = TraceFile::open(path, options, None).unwrap();
    let records = parts.reader().unwrap().map(Result::unwrap).collect();
    (parts, records)
}

#[test]
fn parts_are_merged_by_time_into_the_whole_trace() {
    let (folder, parts) = folder();
    let both = PathBuf::from(format!("{}+{}", parts.join("b").display(), parts.join("a").display()));
    for options in [Options::default(), Options { speed: 2.0, ..Options::default() }] {
        let (whole, expected) = read(&folder.path().join("whole"), &options);
        assert_eq!(expected.len(), 6);
        for path in [&parts, &both] {
            let (merged, found) = read(path, &options);
            let tuples = |records: &[Record]| records.iter().map(|r| tuple(&r.arrival)).collect::<Vec<_>>();
            assert_eq!(tuples(&found), tuples(&expected));
            assert_eq!((merged.survey(), found[5].arrival.at), (whole.survey(), whole.survey().duration));
        }
    }
    let one = Options { device: Some("2".to_owned()), ..Options::default() };
    assert_eq!(read(&parts, &one).1.len(), 3);
}

#[test]
fn touched_extents_of_parts_match_the_whole_trace() {
    let (folder, parts) = folder();
    let open = |path: &Path| TraceFile::open_touched(path, &Options::default(), Bytes(4096)).unwrap();
    let places = |(parts, compaction): (TraceFile, Compaction)| -> Vec<_> {
        // Device 1: sectors 0, 8 and 300. Device 2: 0 and 4 in one extent, and 9000.
        assert_eq!(compaction.extents(), 5);
        parts.reader().unwrap().map(|record| compaction.place(&record.unwrap()).unwrap()).collect()
    };
    assert_eq!(places(open(&folder.path().join("whole"))), places(open(&parts)));
}

#[test]
fn file_foreign_to_a_trace_is_named_in_error() {
    let (_folder, parts) = folder();
    let error = |path: &Path| TraceFile::open(path, &Options::default(), None).err().unwrap().to_string();
    let empty = parts.join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(error(&empty).contains(&empty.display().to_string()));
    assert!(error(&parts.join("none")).contains("none"));
    std::fs::write(parts.join("readme"), "Lorem ipsum dolor\n").unwrap();
    assert!(error(&parts).contains("readme"));
    std::fs::write(parts.join("readme"), "0,1,512,r,0\n0,1,512,r,0\nrubbish\n").unwrap();
    let strict = Options { strict: true, ..Options::default() };
    assert!(matches!(TraceFile::open(&parts, &strict, None), Err(Error::Strict { .. })));
}

#[test]
fn events_of_a_request_are_counted_by_kind() {
    let text = b"8,0 0 1 0.0 1 D R 8 + 8 [x]\n8,0 0 2 0.1 1 C R 8 + 8 [0]\n8,0 0 3 0.2 1 C W 8 + 8 [0]\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, text).unwrap();
    let (parts, found) = read(&path, &Options::default());
    let events = parts.survey().events;
    assert_eq!((found.len(), events.queue, events.issue, events.complete), (0, 0, 1, 2));
    assert_eq!(records(text, &Options { event: Event::Complete, ..Options::default() }).len(), 2);
}
