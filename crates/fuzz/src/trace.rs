//! Traces: for any bytes, reading ends, times do not run backwards, and the records can be written and read
//! again.

use braid_base::{Arrival, Bytes, Nanos, Op, Request};
use braid_trace::measure::{Limits, Measures};
use braid_trace::{BlockCompression, CompactWriter, Format, Header, Options, Reader, Record};

/// Reads a trace. The first byte chooses a format by name, or detection by content. In a compact trace the
/// checksums are made to fit.
pub fn trace(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let format = Format::ALL.get(usize::from(choice)).copied();
    let options = Options { format, window: usize::from(choice) % 7, ..Options::default() };
    read(bytes, &options);
    read(&sealed(bytes), &options);
}

fn read(bytes: &[u8], options: &Options) {
    let Ok(mut reader) = Reader::open(bytes, options) else { return };
    let mut measures = Measures::new(Limits { blocks: 1024 });
    let mut records: Vec<Record> = Vec::new();
    // Requests of 256 MiB have 65,536 blocks each: many of them take longer than a fuzzer waits.
    let mut measured = 0;
    while let Some(Ok(record)) = reader.next() {
        let Request { op, offset, len } = record.arrival.request;
        assert!(records.last().is_none_or(|last| last.arrival.at <= record.arrival.at), "{record:?}");
        assert!(offset.checked_add(len).is_some_and(|end| end.0 <= 1 << 62), "{record:?}");
        assert!(len.0 <= 256 << 20 || op == Op::Discard, "{record:?}");
        assert_eq!(len.0 == 0, op == Op::Flush, "{record:?}");
        measured += len.0 >> 12;
        if measured < 200_000 {
            measures.add(&record);
        }
        records.push(record);
    }
    assert!(reader.problems().kept().len() <= braid_trace::KEPT_PROBLEMS);
    let found = measures.finish();
    assert!((0.0..=1.0).contains(&found.locality.hottest_20_percent_references_share));
    write_again(&records);
}

fn write_again(records: &[Record]) {
    let within = |record: &&Record| (record.arrival.request.offset + record.arrival.request.len).0 <= 1 << 52;
    let arrivals: Vec<Arrival> = records.iter().filter(within).map(|record| record.arrival).collect();
    let mut writer = CompactWriter::open(Vec::new(), &Header::default(), BlockCompression::None)
        .expect("memory takes all");
    arrivals.iter().for_each(|arrival| writer.push(arrival).expect("what was read can be written"));
    let bytes = writer.finish(0).expect("memory takes all");
    let origin = arrivals.first().map_or(Nanos::ZERO, |first| first.at);
    let reader = Reader::open(&bytes[..], &Options::default()).expect("it was just written");
    let back = reader.arrivals().map(|arrival| arrival.expect("it was just written"));
    let back = back.map(|arrival| Arrival { at: arrival.at + origin, ..arrival });
    assert!(back.eq(arrivals), "what was written comes back");
}

/// Returns the bytes with fitting checksums, wherever there is a place for a checksum.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let number = |bytes: &[u8], at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|four| four.first_chunk())
            .map(|four| u32::from_le_bytes(*four) as usize)
    };
    if let Some(header) = number(&bytes, 12).filter(|&len| (20..=bytes.len()).contains(&len)) {
        let crc = crc32c::crc32c(&bytes[20..header]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    for at in 0..bytes.len().saturating_sub(47) {
        if bytes[at..].starts_with(b"BTBK") {
            let stored = number(&bytes, at + 12).filter(|stored| *stored <= bytes.len() - at - 48);
            let payload = crc32c::crc32c(&bytes[at + 48..at + 48 + stored.unwrap_or(0)]);
            bytes[at + 8..at + 12].copy_from_slice(&payload.to_le_bytes());
        }
        if bytes[at..].starts_with(b"BTBK") || bytes[at..].starts_with(b"BTND") {
            let head = crc32c::crc32c(&bytes[at + 8..at + 48]);
            bytes[at + 4..at + 8].copy_from_slice(&head.to_le_bytes());
        }
    }
    bytes
}

pub fn traces() -> Vec<Vec<u8>> {
    const TOLD: u8 = 255;
    let texts: [&[u8]; 10] = [
        b"0,303567,3584,w,0.000000\n1,55590,3072,R,0.5\n0,303574,3584,w,1.026214\n",
        b"128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,1317441536,8192,1963\n",
        b"version,time,op,size,lbn\n1,5633898368802,2a,512,42932745\n1,5633898611441,28,4096,8\n1,5633898611442,42,0,0\n",
        b"  8,0    3        1     0.000001829   697  Q   R 223498 + 8 [fio]\n  8,0    3        3     0.000002829   697  Q FWS [j]\n",
        b"fio version 3 iolog\n206 f.dat read 61440 4096\n433 f.dat write 774144 4096\n50189 f.dat sync 0 0\n",
        b"fio version 2 iolog\nf read 0 4096\nf wait 100 0\nf trim 4096 512\nf wait 250 0\nf datasync 0 0\n",
        b"4.530000 0 1843720 16 1\n4.630000 0 1843736 7 0\n4.730001 2 100 8 5\n",
        b"938513000 4 264719034 16 0\n938828000 4 197570570 16 1\n",
        b"0.000 0 200626176 4096 0\n223.412 0 3159347200 36864 1\n",
        b"230027 8 0 0\n1842745 64 0 1\n",
    ];
    let mut traces: Vec<Vec<u8>> = texts.iter().map(|text| [&[TOLD], *text].concat()).collect();
    traces.push([&[TOLD][..], &compact(BlockCompression::None)].concat());
    traces.push([&[TOLD][..], &compact(BlockCompression::Zstd(1))].concat());
    traces.push([&[TOLD][..], &oracle_general()].concat());
    traces.push([&[TOLD][..], &blktrace()].concat());
    traces.push([&[TOLD][..], &srt()].concat());
    // With the format named, the same bytes are read although their beginning is damaged.
    let named =
        |format: Format| Format::ALL.iter().position(|&known| known == format).map_or(TOLD, |at| at as u8);
    traces.push([&[named(Format::OracleGeneral)][..], &oracle_general()].concat());
    traces.push([&[named(Format::Spc)], texts[0]].concat());
    traces
}

fn compact(compression: BlockCompression) -> Vec<u8> {
    let request = |n: u64| {
        let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][n as usize % 4];
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (n % 11 * 4096, 512 << (n % 5)) };
        Arrival { at: Nanos(n * 777), request: Request { op, offset: Bytes(offset), len: Bytes(len) } }
    };
    let header = Header { name: "a trace".to_owned(), ..Header::default() };
    let mut writer = CompactWriter::open(Vec::new(), &header, compression).expect("memory takes all");
    for n in 0..60 {
        writer.push(&request(n)).expect("memory takes all");
        if n % 20 == 19 {
            writer.end_block().expect("memory takes all");
        }
    }
    writer.finish(1).expect("memory takes all")
}

fn oracle_general() -> Vec<u8> {
    let record = |(seconds, object, size, next): (u32, u64, u32, i64)| {
        [&seconds.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    [(7, 100, 4096, 2), (7, 200, 512, -1), (9, 100, 4096, i64::MAX)].map(record).concat()
}

fn blktrace() -> Vec<u8> {
    let record = |(at, sector, len, what, more): (u64, u64, u32, u32, u16)| {
        let mut record = 0x6561_7407u32.to_le_bytes().to_vec();
        record.extend([1, 0, 0, 0]);
        record.extend(at.to_le_bytes());
        record.extend(sector.to_le_bytes());
        [len, what, 42, 8 << 20, 0].iter().for_each(|four| record.extend(four.to_le_bytes()));
        record.extend([0, 0]);
        record.extend(more.to_le_bytes());
        record.resize(record.len() + usize::from(more), b'x');
        record
    };
    let read = 1 | 1 << 16;
    [(0, 8, 4096, read, 0), (5, 16, 512, 1 | 1 << 17, 8), (6, 0, 0, 1 | 1 << 18, 0), (9, 24, 4096, 7, 0)]
        .map(record)
        .concat()
}

fn srt() -> Vec<u8> {
    let record = |(id, at, len, sector, flags): (u32, u32, u32, u32, u32)| {
        let mut words = vec![id, at, 5, 10, 20, len, sector, 0x0400_0203, 3, 77, flags, 2];
        words.extend((id >> 16 == 4).then_some(9));
        words.extend((id & 0xffff == 4).then_some(1));
        words.insert(0, 4 * (words.len() as u32 + 1));
        words.into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
    };
    let records = [(4 << 16 | 1, 0, 8192, 100, 1), (3 << 16 | 1, 1, 512, 8, 0), (4 << 16 | 4, 2, 512, 8, 1)];
    let heading = b"tracedate\t= \"Sun Apr 26 15:00:00 1992\";\n\x0c".to_vec();
    records.into_iter().fold(heading, |trace, fields| [trace, record(fields)].concat())
}
