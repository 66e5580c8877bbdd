//! Hostile bytes: no panic, bounded memory, and an end.

use braid_base::Rng;
use braid_trace::measure::{Limits, Measures};
use braid_trace::{BlockCompression, Error, Format, Header, Options, Reader, Target, convert};
use proptest::prelude::*;
use std::io::Read;

fn swallow(bytes: &[u8], options: &Options) {
    let Ok(mut reader) = Reader::open(bytes, options) else { return };
    let mut measures = Measures::new(Limits { blocks: 1024 });
    let mut last = 0;
    for record in reader.by_ref().take(100_000) {
        let Ok(record) = record else { break };
        assert!(record.arrival.at.0 >= last, "time does not run backwards");
        last = record.arrival.at.0;
        measures.add(&record);
    }
    measures.finish();
    assert!(reader.problems().kept().len() <= 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), format in 0..=Format::ALL.len()) {
        let format = Format::ALL.get(format).copied();
        swallow(&bytes, &Options { format, ..Options::default() });
    }

    #[test]
    fn any_text_of_numbers_is_read_without_panic(text in "([0-9]{1,20}[ ,.]?|r,|w,|\n|Q W |\\+ ){0,300}", format in 0..=Format::ALL.len()) {
        let format = Format::ALL.get(format).copied();
        swallow(text.as_bytes(), &Options { format, ..Options::default() });
    }
}

/// A few KiB that unpack to a line of four GiB.
#[test]
fn a_decompression_bomb_takes_time_and_no_memory() {
    struct Zeros(u64);
    impl Read for Zeros {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let len = buffer.len().min(self.0 as usize);
            buffer[..len].fill(b'7');
            self.0 -= len as u64;
            Ok(len)
        }
    }
    let first = &b"0,1,512,r,0.0\n"[..];
    let bomb = zstd::encode_all(first.chain(Zeros(1 << 30)), 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    let named = Options { format: Some(Format::Spc), ..Options::default() };
    let mut reader = Reader::open(&bomb[..], &named).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert_eq!(reader.problems().count(), 1);
}

#[test]
fn a_zstd_window_beyond_the_bound_is_an_error_and_not_an_abort() {
    // A frame header with a window of 2 GiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
    let error = Reader::open(&frame[..], &Options::default()).err().unwrap();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

#[test]
fn flipped_bits_never_crash_the_reader() {
    let spc = b"0,303567,3584,w,0.000000\n1,55590,3072,w,0.000000\n0,303574,3584,w,0.026214\n".repeat(20);
    let mut compact = Vec::new();
    let mut reader = Reader::open(&spc[..], &Options::default()).unwrap();
    let target = Target::Compact(BlockCompression::Zstd(1));
    convert(&mut reader, target, &Header::default(), &mut compact, |_| ()).unwrap();
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &spc).unwrap();
        encoder.finish().unwrap()
    };
    for bytes in [&spc, &compact, &gzip] {
        for bit in 0..(bytes.len() * 8).min(4096) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            swallow(&bytes, &Options::default());
        }
    }
}

#[test]
fn numbers_at_the_edges_of_64_bits_do_not_overflow() {
    let mut rng = Rng::new(8);
    let edges =
        ["0", "1", "18446744073709551615", "9223372036854775808", "36028797018963968", "0.1", "4294967296"];
    let mut edge = || edges[rng.below(edges.len() as u64) as usize];
    let mut text = String::new();
    for _ in 0..2_000 {
        text += &format!("{},{},{},r,{}\n", edge(), edge(), edge(), edge());
    }
    for options in [
        Options { format: Some(Format::Spc), ..Options::default() },
        Options { format: Some(Format::Spc), speed: 1e-6, window: 0, ..Options::default() },
        Options { format: Some(Format::Spc), block: Some("1GiB".parse().unwrap()), ..Options::default() },
    ] {
        swallow(text.as_bytes(), &options);
    }
}
