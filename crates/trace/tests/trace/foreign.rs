//! Text as written by other programs, and content that is not a trace.

use crate::texts::tuple;
use braid_base::Op;
use braid_trace::{Error, Options, Reader};

const LINES: [&str; 3] = ["0,8,512,r,0.5", "0,16,1024,w,0.6", "1,0,512,r,0.7"];

fn read(bytes: &[u8]) -> Result<Vec<(u64, Op, u64, u64)>, Error> {
    let reader = Reader::open(bytes, &Options::default())?;
    reader.map(|record| record.map(|record| tuple(&record.arrival))).collect()
}

/// Regression: a trace with carriage returns as line ends gave "1 bad line of more than 64 KiB", and exit
/// status 0.
#[test]
fn byte_order_marks_quotes_and_line_ends_are_ignored() {
    let expected = read(LINES.join("\n").as_bytes()).unwrap();
    assert_eq!(expected.len(), 3);
    for end in ["\r", "\r\n", "\n", "\n\n"] {
        for mark in ["", "\u{feff}"] {
            for quote in ["", "\""] {
                let quoted =
                    |line: &&str| line.split(',').map(|f| format!("{quote}{f}{quote}")).collect::<Vec<_>>();
                let text: Vec<String> = LINES.iter().map(|line| quoted(line).join(", ")).collect();
                let text = format!("{mark}{}{end}", text.join(end));
                assert_eq!(read(text.as_bytes()).unwrap(), expected, "{text:?}");
            }
        }
    }
}

/// A MiB and more of carriage returns is split like any other text.
#[test]
fn carriage_returns_end_lines_beyond_the_first_buffer() {
    let text = "0,8,512,r,0.5\r".repeat(100_000);
    assert_eq!(read(text.as_bytes()).unwrap().len(), 100_000);
}

#[test]
fn iolog_file_names_may_contain_blanks() {
    let text = "fio version 3 iolog\n0 my disk add\n1 my disk open\n2 my disk read 4096 512\n3 my read 1 write 0 512\n4 my disk sync\n";
    let mut reader = Reader::open(text.as_bytes(), &Options::default()).unwrap();
    let found: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!((found.len(), reader.tally().bad_records), (3, 0));
    let labels: Vec<&str> = found.iter().map(|record| reader.device_label(record.device)).collect();
    assert_eq!(labels, ["my disk", "my read 1", "my disk"]);
}

/// Regression: a tar archive of one file was read as the file itself, except for its first line.
#[test]
fn unsupported_archives_and_encodings_are_named() {
    let mut tar = b"trace.csv".to_vec();
    tar.resize(257, 0);
    tar.extend_from_slice(b"ustar\x0000");
    tar.resize(512, 0);
    tar.extend_from_slice("0,8,512,r,0.5\n".repeat(100).as_bytes());
    let utf16: Vec<u8> = "\u{feff}0,8,512,r,0.5\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let contents: [(&[u8], &str); 5] = [
        (&tar, "tar archive"),
        (b"BZh91AY&SY", "bzip2"),
        (b"PK\x03\x04\x14\0", "zip archive"),
        (&utf16, "UTF-16"),
        (b"\x5d\0\0\x80\0", "lzma"),
    ];
    for (content, name) in contents {
        let Err(Error::Unrecognised(problem)) = read(content) else { panic!("{name} was read") };
        assert!(problem.contains(name), "{problem}");
    }
}

/// Regression: such a trace gave an empty load, and a scripted study continued without requests.
#[test]
fn trace_without_valid_lines_is_an_error() {
    let bad = "0,x,512,r,0.5\n".repeat(10);
    let options = Options { format: Some("spc".parse().unwrap()), ..Options::default() };
    let mut reader = Reader::open(bad.as_bytes(), &options).unwrap();
    assert!(matches!(reader.next(), Some(Err(Error::Unrecognised(_)))));
    assert!(reader.next().is_none(), "told once");
    let other = Options { device: Some("7".to_owned()), ..Options::default() };
    let reader = Reader::open(LINES.join("\n").into_bytes().leak() as &[u8], &other).unwrap();
    assert_eq!(reader.map(Result::unwrap).count(), 0, "requests of other devices are no bad lines");
}
