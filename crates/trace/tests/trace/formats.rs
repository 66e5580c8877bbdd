//! A few lines of each format with their meaning, detection of formats, and errors in lines.

use crate::texts::{arrivals, error, problems, records, tuple};
use braid_base::Op::{Discard, Flush, Read, Write};
use braid_base::{Bytes, Nanos};
use braid_trace::{Error, Event, Format, Layout, Options, Reader};

const SPC: &[u8] = b"0,303567,3584,w,0.000000\n1,55590,3072,R,0.000000\n0,303574,3584,w,0.026214,extra\n";
const MSR: &[u8] = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
    128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,0,Write,1317441536,8192,1963\n";
const CLOUDPHYSICS: &[u8] =
    b"version,time,op,size,lbn\n1,5633898368802,2a,512,42932745\n1,5633898368902,12,96,0\n\
    1,5633898611441,28,4096,8\n1,5633898611442,35,0,0\n1,5633898611443,42,8192,16\n";
const BLKPARSE: &[u8] = b"  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
    8,0    3        2     0.000001829   697  Q   R 223498 + 8 [fio]\n\
    8,0    3        3     0.000002829   697  Q FWFSM 100 + 16 [fio]\n\
    8,0    3        4     0.000003829   697  Q FWS [jbd2]\n\
    8,0    3        5     0.000004829   697  Q   D 2048 + 2048 [fstrim]\n\
    8,0    3        6     0.000005829   697  D   R 223498 + 16 [fio]\n\
    8,0    3        7     0.000006829     0  C   R 223498 + 16 [0]\n\
    8,0    3        8     0.000007829     0  m   N cfq workload slice:300\n\
    CPU3 (8,0):\n Reads Queued:           1,        4KiB\n";
const DISKSIM: &[u8] = b"4.530000 0 1843720 16 1\n4.630000 0 1843736 7 0\n4.730001 2 100 8 5\n";
const SSDSIM: &[u8] = b"938513000 4 264719034 16 0\n938828000 4 197570570 16 1\n";
const MSR_CUT: &[u8] = b"0.000 0 200626176 4096 0\n223.412 0 3159347200 36864 1\n";
const ARC: &[u8] = b"230027 8 0 0\n1842745 64 0 1\n";
const FIO3: &[u8] = b"fio version 3 iolog\n17 f.dat add\n202 f.dat open\n206 f.dat read 61440 4096\n\
    433 f.dat write 774144 4096\n50189 f.dat sync 397312 0\n50199 f.dat trim 0 8192\n200339 f.dat close\n";
const FIO2: &[u8] = b"fio version 2 iolog\nf add\nf open\nf read 0 4096\nf wait 100 0\nf write 4096 512\n\
    f wait 250 0\nf datasync 0 0\nf close\n";

fn oracle_general() -> Vec<u8> {
    let record = |seconds: u32, object: u64, size: u32, next: i64| {
        [&seconds.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    [record(7, 100, 4096, 2), record(7, 200, 512, -1), record(9, 100, 4096, i64::MAX)].concat()
}

const FIU: &[u8] = b"89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n\
    89968195892462 20783 nfsd 100 16 W 8 1 56f11b711d91a065a2b6458eca924523\n89968195992462 1 kjournald 8 8 W 6 0\n";
const ALIBABA: &[u8] = b"419,W,8792731648,16384,1577808144360767\n725,R,512,4096,1577808144360800\n";
const TENCENT: &[u8] = b"1538323200,12910952,128,0,1063\n1538323201,8,8,1,1063\n";
const SYSTOR: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size\n\
    1456095145.133076000,0.000806000,R,0,899056122368,131072\n1456095145.133076000,,,0,0,4096\n\
    1456095146.133076000,0.1,W,4,4096,512\n\
    1456095147.133076000,0.1,W,4,8192,512\n";
const BLOCKS: &[u8] = b"7\n1000000\n7\n";

/// Two commands on blocks with an inquiry in between, of version 1 or 2.
fn vscsi(version: u8) -> Vec<u8> {
    let record = |code: u16, len: u32, lbn: u64, at: u64| {
        let (code, version) = (code.to_le_bytes(), [0, version]);
        let (numbers, len) = ([1, 0, 0, 0], len.to_le_bytes());
        let (lbn, at) = (lbn.to_le_bytes(), at.to_le_bytes());
        match version[1] {
            1 => [&numbers[..], &len, &numbers, &code, &version, &lbn, &at].concat(),
            _ => [&code[..], &version, &numbers, &len, &numbers, &lbn, &at, &[9; 8]].concat(),
        }
    };
    [record(0x28, 4096, 8, 5_000_000), record(0x12, 96, 0, 5_000_010), record(0x8a, 512, 1 << 30, 5_000_020)]
        .concat()
}

/// `event` is the lower half of `what`, `kind` the upper half.
fn blktrace(big: bool, event: u32, kind: u32, (at, sector, len): (u64, u64, u32), pdu: &[u8]) -> Vec<u8> {
    let four = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let eight = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let two = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let mut record = Vec::new();
    record.extend(four(0x6561_7407));
    record.extend(four(1));
    record.extend(eight(at));
    record.extend(eight(sector));
    record.extend(four(len));
    record.extend(four(event | kind << 16));
    record.extend(four(42));
    record.extend(four(8 << 20 | 16));
    record.extend(four(0));
    record.extend(two(0));
    record.extend(two(pdu.len() as u16));
    record.extend(pdu);
    record
}

const R: u32 = 1 | 1 << 4;
const W: u32 = 1 << 1 | 1 << 4;
const F: u32 = 1 << 2 | 1 << 4;

fn blktraces(big: bool) -> Vec<u8> {
    [
        blktrace(big, 0, 1 << 10, (5, 0, 0), b"a process's name"),
        blktrace(big, 1, R, (1_000, 8, 4096), b""),
        blktrace(big, 1 | 1 << 8, W, (2_000, 16, 512), b"12345678"),
        blktrace(big, 7, R, (2_500, 8, 4096), b""),
        blktrace(big, 1, F, (3_000, 0, 0), b""),
        blktrace(big, 1, W | 1 << 13, (4_000, 0, 1 << 20), b""),
        blktrace(big, 1, R | 1 << 9, (5_000, 0, 96), b""),
    ]
    .concat()
}

#[test]
fn each_format_is_detected_by_content() {
    let (oracle, little, big) = (oracle_general(), blktraces(false), blktraces(true));
    let (first, second) = (vscsi(1), vscsi(2));
    for (bytes, format) in [
        (FIU, Format::Fiu),
        (ALIBABA, Format::Alibaba),
        (TENCENT, Format::Tencent),
        (SYSTOR, Format::Systor),
        (BLOCKS, Format::Blocks),
        (&first, Format::Vscsi),
        (&second, Format::Vscsi),
        (SPC, Format::Spc),
        (MSR, Format::Msr),
        (CLOUDPHYSICS, Format::CloudPhysics),
        (BLKPARSE, Format::Blkparse),
        (DISKSIM, Format::DiskSim),
        (SSDSIM, Format::SsdSim),
        (MSR_CUT, Format::MsrCut),
        (ARC, Format::Arc),
        (FIO3, Format::Fio),
        (FIO2, Format::Fio),
        (&oracle, Format::OracleGeneral),
        (&little, Format::Blktrace),
        (&big, Format::Blktrace),
    ] {
        assert_eq!(Reader::open(bytes, &Options::default()).unwrap().format(), format);
        // The same if the format is named.
        let named = Options { format: Some(format.name().parse().unwrap()), ..Options::default() };
        let usual = records(bytes, &Options::default());
        assert!(!usual.is_empty(), "{format}");
        assert_eq!(records(bytes, &named), usual, "{format}");
    }
}

#[test]
fn cloud_and_desktop_traces_are_read_as_documented() {
    let one = 1 << 40;
    let read = |bytes| arrivals(bytes);
    assert_eq!(
        read(FIU),
        [
            (0, Read, 283_193_184 * 512, 4096),
            (100_000, Write, one + 100 * 512, 8192),
            (200_000, Write, 8 * 512, 4096)
        ]
    );
    assert_eq!(read(ALIBABA), [(0, Write, 8_792_731_648, 16_384), (33_000, Read, one + 512, 4096)]);
    let second = 1_000_000_000;
    assert_eq!(read(TENCENT), [(0, Read, 12_910_952 * 512, 65_536), (second, Write, 4096, 4096)]);
    assert_eq!(
        read(SYSTOR),
        [
            (0, Read, 899_056_122_368, 131_072),
            (second, Write, one + 4096, 512),
            (2 * second, Write, one + 8192, 512)
        ]
    );
}

#[test]
fn vscsi_is_read_in_both_versions() {
    let expected = [(0, Read, 4096, 4096), (20_000, Write, 512 << 30, 512)];
    assert_eq!((arrivals(&vscsi(1)), arrivals(&vscsi(2))), (expected.to_vec(), expected.to_vec()));
    // Half a record at the end, and a record of another version.
    let mut torn = [vscsi(1), vscsi(1)[..7].to_vec()].concat();
    torn[32 + 15] = 9;
    let named = Options { format: Some(Format::Vscsi), ..Options::default() };
    assert!(matches!(error(&torn, &named), Error::Unrecognised(_)));
    torn[32 + 15] = 1;
    let (said, given) = problems(&torn, &named);
    assert_eq!((said.len(), given), (1, 2));
    assert!(said[0].contains("7 bytes"), "{said:?}");
}

#[test]
fn lists_of_blocks_are_reads_of_a_block_each() {
    let expected = [
        (0, Read, 7 << 12, 4096),
        (1_000_000, Read, 1_000_000 << 12, 4096),
        (2_000_000, Read, 7 << 12, 4096),
    ];
    assert_eq!(arrivals(BLOCKS), expected);
    let named = |format| Options { format: Some(format), ..Options::default() };
    let binary = |bytes: &[u8], format| -> Vec<_> {
        records(bytes, &named(format)).iter().map(|record| tuple(&record.arrival)).collect()
    };
    let numbers = [7u32, 1_000_000, 7];
    let four: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let eight: Vec<u8> = numbers.iter().flat_map(|number| u64::from(*number).to_le_bytes()).collect();
    assert_eq!(binary(&four, Format::BlocksU32), expected);
    assert_eq!(binary(&eight, Format::BlocksU64), expected);
    let (said, given) = problems(&[&[0xff; 8][..], &eight[..11]].concat(), &named(Format::BlocksU64));
    assert_eq!((said.len(), given), (2, 1), "{said:?}");
}

#[test]
fn a_bad_line_of_the_newer_formats_is_named_and_skipped() {
    for (good, bad) in [
        (FIU, "89968195792462 20782 gzip x 8 R 6 0"),
        (FIU, "89968195792462 20782 gzip 8 8 X 6 0"),
        (ALIBABA, "419,W,-1,16384,1577808144360767"),
        (ALIBABA, "419,W,18446744073709551615,1,1577808144360767"),
        (TENCENT, "1538323200,12910952,128,2,1063"),
        (TENCENT, "1538323200,18446744073709551615,128,0,1063"),
        (SYSTOR, "1456095145.1,0.1,D,0,0,4096"),
        (SYSTOR, "1456095145.1,0.1,R,lun,0,4096"),
        (BLOCKS, "12 13"),
        (BLOCKS, "18446744073709551615"),
    ] {
        let usual = records(good, &Options::default()).len() as u64;
        let bytes = [good, bad.as_bytes(), b"\n"].concat();
        let (said, given) = problems(&bytes, &Options::default());
        assert_eq!((said.len(), given), (1, usual), "{bad}: {said:?}");
    }
}

#[test]
fn spc_counts_seconds_and_sectors() {
    let tebibyte = 1 << 40;
    let expected = [
        (0, Write, 303_567 * 512, 3584),
        (0, Read, tebibyte + 55_590 * 512, 3072),
        (26_214_000, Write, 303_574 * 512, 3584),
    ];
    assert_eq!(arrivals(SPC), expected);
}

#[test]
fn msr_counts_tenths_of_microseconds_and_bytes() {
    assert_eq!(
        arrivals(MSR),
        [(0, Read, 7_014_609_920, 24_576), (1_332_052_600, Write, 1_317_441_536, 8192)]
    );
    let reader = &mut Reader::open(MSR, &Options::default()).unwrap();
    assert_eq!(reader.count(), 2);
    assert_eq!(reader.devices()[0].place.device, "usr_0");
}

#[test]
fn cloudphysics_has_scsi_commands() {
    let expected = [
        (0, Write, 42_932_745 * 512, 512),
        (242_639_000, Read, 4096, 4096),
        (242_640_000, Flush, 0, 0),
        (242_641_000, Discard, 8192, 8192),
    ];
    assert_eq!(arrivals(CLOUDPHYSICS), expected);
}

#[test]
fn blkparse_counts_one_event_per_request() {
    let queued = [
        (0, Read, 223_498 * 512, 4096),
        (1_000, Write, 51_200, 8192),
        (2_000, Flush, 0, 0),
        (3_000, Discard, 1 << 20, 1 << 20),
    ];
    assert_eq!(arrivals(BLKPARSE), queued);
    for event in [Event::Issue, Event::Complete] {
        let records = records(BLKPARSE, &Options { event, ..Options::default() });
        assert_eq!(
            records.iter().map(|record| tuple(&record.arrival)).collect::<Vec<_>>(),
            [(0, Read, 223_498 * 512, 8192)]
        );
    }
}

#[test]
fn blktrace_is_read_in_both_byte_orders() {
    let queued = [
        (0, Read, 4096, 4096),
        (1_000, Write, 8192, 512),
        (2_000, Flush, 0, 0),
        (3_000, Discard, 0, 1 << 20),
    ];
    for big in [false, true] {
        assert_eq!(arrivals(&blktraces(big)), queued);
        let issued = records(&blktraces(big), &Options { event: Event::Issue, ..Options::default() });
        assert_eq!(issued.len(), 1);
        let bytes = blktraces(big);
        let mut reader = Reader::open(&bytes[..], &Options::default()).unwrap();
        reader.by_ref().for_each(drop);
        assert_eq!(reader.devices()[0].place.device, "8,16");
    }
}

#[test]
fn five_column_formats_differ_in_units() {
    let tebibyte = 1 << 40;
    assert_eq!(
        arrivals(DISKSIM),
        [
            (0, Read, 1_843_720 * 512, 8192),
            (100_000, Write, 1_843_736 * 512, 3584),
            (200_001, Read, tebibyte + 51_200, 4096)
        ]
    );
    assert_eq!(
        arrivals(SSDSIM),
        [(0, Write, 264_719_034 * 512, 8192), (315_000, Read, 197_570_570 * 512, 8192)]
    );
    assert_eq!(
        arrivals(MSR_CUT),
        [(0, Write, 200_626_176, 4096), (223_412_000, Read, 3_159_347_200, 36_864)]
    );
}

#[test]
fn ambiguous_content_is_read_as_the_named_format() {
    let (format, layout) = (Some(Format::DiskSim), Layout::Apart(Bytes(1 << 50)));
    let disksim = Options { format, layout, ..Options::default() };
    assert_eq!(records(MSR_CUT, &disksim)[0].arrival.request.len, Bytes(4096 * 512));
    let msr_cut = Options { format: Some(Format::MsrCut), ..Options::default() };
    assert_eq!(records(DISKSIM, &msr_cut)[0].arrival.request.len, Bytes(16));
}

#[test]
fn arc_has_a_request_each_millisecond_by_default() {
    assert_eq!(arrivals(ARC), [(0, Read, 230_027 * 512, 4096), (1_000_000, Read, 1_842_745 * 512, 32_768)]);
    let options = Options { block: Some(Bytes(4096)), time_unit: Some(Nanos(5)), ..Options::default() };
    let records = records(ARC, &options);
    assert_eq!(tuple(&records[1].arrival), (5, Read, 1_842_745 * 4096, 64 * 4096));
}

#[test]
fn oracle_general_has_objects_for_addresses() {
    assert_eq!(
        arrivals(&oracle_general()),
        [(0, Read, 51_200, 4096), (0, Read, 102_400, 512), (2_000_000_000, Read, 51_200, 4096)]
    );
}

#[test]
fn fio_version_3_has_microseconds() {
    assert_eq!(
        arrivals(FIO3),
        [
            (0, Read, 61_440, 4096),
            (227_000, Write, 774_144, 4096),
            (49_983_000, Flush, 0, 0),
            (49_993_000, Discard, 0, 8192)
        ]
    );
}

/// fio's manual and fio itself define a wait differently. Both kinds of files exist.
#[test]
fn fio_2_waits_are_absolute_if_rising_else_relative() {
    assert_eq!(
        arrivals(FIO2),
        [(0, Read, 0, 4096), (100_000_000, Write, 4096, 512), (250_000_000, Flush, 0, 0)]
    );
    let manual = String::from_utf8(FIO2.to_vec()).unwrap().replace("wait 250", "wait 100");
    let times: Vec<u64> = arrivals(manual.as_bytes()).iter().map(|arrival| arrival.0).collect();
    assert_eq!(times, [0, 100_000, 200_000]);
}

#[test]
fn headings_comments_and_bad_lines_do_not_hide_format() {
    let text = [&b"# from the repository\n\nASU,LBA,Size,Opcode,Timestamp\nrubbish\n"[..], SPC, SPC].concat();
    assert_eq!(Reader::open(&text[..], &Options::default()).unwrap().format(), Format::Spc);
}

#[test]
fn unknown_format_is_rejected_with_the_known_formats() {
    for bytes in [
        &b"Dear Sir or Madam,\nI write to you\n"[..],
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0",
        b"a,b\nc,d\n",
        b"{\"json\": 1}",
        b"fio version 1 iolog\n",
    ] {
        let error = error(bytes, &Options::default());
        assert!(matches!(error, Error::Unrecognised(_)), "{error:?}");
    }
    let said = error(b"a,b\n", &Options::default()).to_string();
    assert!(said.contains("'a,b'") && said.contains("oracle-general"), "{said}");
    assert!(matches!(error(b"", &Options::default()), Error::Unrecognised(_)));
}

#[test]
fn a_bad_line_is_named_by_number_counted_and_skipped() {
    let text = b"0,1,512,r,0.5\n0,1,512,x,0.5\n0,-1,512,r,0.5\n0,1,0,r,0.5\n0,1,512,r,0.6\n0,1,512\n";
    let (said, given) = problems(text, &Options::default());
    assert_eq!(given, 2);
    let lines: Vec<&str> = said.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["line 2", "line 3", "line 4", "line 6"]);
    assert!(said[0].contains("'0,1,512,x,0.5'"), "{said:?}");
}

#[test]
fn bad_lines_are_counted_but_only_twenty_kept() {
    let text = [SPC, &b"0,1,512,x,0.5\n".repeat(100_000)].concat();
    let named = Options { format: Some(Format::Spc), ..Options::default() };
    let mut reader = Reader::open(&text[..], &named).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 3);
    assert_eq!((reader.problems().kept().len(), reader.problems().count()), (20, 100_000));
    assert_eq!(reader.tally().bad_records, 100_000);
}

#[test]
fn strict_reading_stops_at_the_first_bad_line() {
    let text = b"0,1,512,r,0.5\n0,1,512,r,0.5\n0,1,512,x,0.5\n0,1,512,r,0.5\n";
    let strict = Options { strict: true, ..Options::default() };
    let mut reader = Reader::open(&text[..], &strict).unwrap();
    assert!(reader.next().unwrap().is_ok() && reader.next().unwrap().is_ok());
    let said = reader.next().unwrap().unwrap_err().to_string();
    assert!(said.starts_with("line 3: ") && said.contains("--strict"), "{said}");
    assert!(reader.next().is_none());
}

#[test]
fn a_line_of_a_mebibyte_is_a_bad_line() {
    let text = [SPC, &b"9".repeat(1 << 20), b"\n", SPC].concat();
    let (said, given) = problems(&text, &Options::default());
    assert_eq!((said, given), (vec!["line 4: a line of more than 64 KiB".to_owned()], 6));
}

#[test]
fn rubbish_between_records_of_blktrace_is_skipped() {
    let torn = [&blktraces(false)[..], &[0xee; 10_000], &blktraces(false), &[1, 2, 3]].concat();
    let (said, given) = problems(&torn, &Options::default());
    assert_eq!(given, 8);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("10000 bytes") && said[1].contains("3 bytes"), "{said:?}");
}

#[test]
fn units_foreign_to_a_format_are_rejected() {
    let block = Options { block: Some(Bytes(4096)), ..Options::default() };
    assert!(matches!(error(MSR, &block), Error::Options(_)));
    let unit = Options { time_unit: Some(Nanos(1)), ..Options::default() };
    assert!(matches!(error(BLKPARSE, &unit), Error::Options(_)));
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(error(SPC, &Options { speed, ..Options::default() }).to_string().contains("speed"));
    }
    assert!(
        error(SPC, &Options { block: Some(Bytes(0)), ..Options::default() }).to_string().contains("block")
    );
}

#[test]
fn a_stretched_clock_can_be_set_right() {
    let options = Options { speed: 100.0, ..Options::default() };
    assert_eq!(records(SSDSIM, &options)[1].arrival.at, Nanos(3_150));
}

#[test]
fn backward_times_are_sorted_or_counted() {
    let text = b"0,1,512,r,5.0\n0,2,512,r,1.0\n0,3,512,r,9.0\n";
    let blocks = |window: usize| {
        let mut reader = Reader::open(&text[..], &Options { window, ..Options::default() }).unwrap();
        let records: Vec<(u64, u64)> = reader
            .by_ref()
            .map(|r| tuple(&r.unwrap().arrival))
            .map(|a| (a.0 / 1_000_000_000, a.2 / 512))
            .collect();
        (records, reader.tally().reordered_records, reader.tally().late_records)
    };
    assert_eq!(blocks(1024), (vec![(0, 2), (4, 1), (8, 3)], 1, 0));
    assert_eq!(blocks(0), (vec![(0, 1), (0, 2), (4, 3)], 0, 1));
    let strict = Options { window: 0, strict: true, ..Options::default() };
    assert!(error(text, &strict).to_string().contains("--window"));
}
