//! Speed of reading and measuring traces: millions of records per second on one thread, the best of five
//! runs.
//!
//! `cargo bench -p braid-trace`

use braid_base::{Arrival, Bytes, Nanos, Op, Request, Rng};
use braid_trace::measure::{Limits, Measures};
use braid_trace::{BlockCompression, CompactWriter, Header, Options, Reader, Target, convert};
use std::hint::black_box;
use std::time::Instant;

const RECORDS: u64 = 4_000_000;

fn main() {
    let none = compact(BlockCompression::None);
    let zstd = compact(BlockCompression::Zstd(1));
    let text = |target| {
        let (mut out, mut reader) = (Vec::new(), open(&none));
        convert(&mut reader, target, &Header::default(), &mut out, |_| ()).expect("memory takes all");
        out
    };
    let (spc, fio) = (text(Target::Spc), text(Target::Fio3));
    println!(
        "{RECORDS} records: 70 % reads, a third sequential, 4 KiB to 128 KiB, arrivals to the nanosecond"
    );
    for (name, bytes) in
        [("compact", &none), ("compact, zstd", &zstd), ("spc", &spc), ("fio, version 3", &fio)]
    {
        let size = bytes.len() as f64 / RECORDS as f64;
        let speed =
            best(|| open(bytes).map(|record| record.expect("all are good").arrival.request.len.0).sum());
        println!("read {name:16} {speed:7.1} M records/s  {size:5.1} bytes each");
    }
    let speed = best(|| compact(BlockCompression::None).len() as u64);
    println!("write compact         {speed:7.1} M records/s, random numbers and all");
    let speed = best(|| {
        let mut measures = Measures::new(Limits::default());
        open(&none).for_each(|record| measures.add(&record.expect("all are good")));
        measures.finish().footprint.footprint_blocks
    });
    println!("info of compact       {speed:7.1} M records/s");
}

fn open(bytes: &[u8]) -> Reader<'_> {
    Reader::open(bytes, &Options::default()).expect("it was just written")
}

fn best(mut run: impl FnMut() -> u64) -> f64 {
    let took = (0..5).map(|_| {
        let start = Instant::now();
        black_box(run());
        start.elapsed().as_secs_f64()
    });
    RECORDS as f64 / took.fold(f64::INFINITY, f64::min) / 1e6
}

/// A trace as hard as real traces: all times differ, some requests are sequential, most are not.
fn compact(compression: BlockCompression) -> Vec<u8> {
    let mut writer =
        CompactWriter::open(Vec::new(), &Header::default(), compression).expect("memory takes all");
    let mut rng = Rng::new(1);
    let (mut at, mut end) = (Nanos::ZERO, Bytes::ZERO);
    for _ in 0..RECORDS {
        at += Nanos(rng.below(200_000));
        let offset = if rng.chance(0.33) { end } else { Bytes(rng.below(4 << 20) * 4096) };
        let len = Bytes(4096 << rng.below(6));
        let op = if rng.chance(0.7) { Op::Read } else { Op::Write };
        end = offset + len;
        writer.push(&Arrival { at, request: Request { op, offset, len } }).expect("memory takes all");
    }
    writer.finish(0).expect("memory takes all")
}
