//! Replies, right and wrong, however the stream is cut.

use super::*;
use braid_base::Rng;

/// A stream of bytes of a server.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
}

impl Stream {
    fn head(mut self, head: Head) -> Stream {
        self.bytes.extend(head.as_bytes());
        self
    }

    fn payload(mut self, bytes: &[u8]) -> Stream {
        self.bytes.extend(bytes);
        self
    }
}

/// Buffer of a request and its result.
type Ended = (Vec<u8>, Result<(), u32>);

/// Decodes a whole stream that arrives in pieces of the given lengths. Returns the buffers and results of the
/// requests, by slot.
fn decode(
    replies: &mut Replies,
    lens: &[u32],
    stream: &[u8],
    mut piece: impl FnMut() -> usize,
) -> Result<Vec<Ended>, &'static str> {
    let mut buffers: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0xee; len as usize]).collect();
    let mut results: Vec<Option<Result<(), u32>>> = vec![None; lens.len()];
    let (mut at, mut held) = (0, 0);
    loop {
        let (used, step) = replies.receive(&stream[at..held])?;
        at += used;
        match step {
            ReplyStep::More if held == stream.len() => break,
            ReplyStep::More => held = (held + piece()).min(stream.len()),
            ReplyStep::Next => assert!(used > 0),
            ReplyStep::Payload(slot, range) => {
                let len = (range.end - range.start) as usize;
                if stream.len() - at < len {
                    break;
                }
                buffers[slot][range.start as usize..range.end as usize]
                    .copy_from_slice(&stream[at..at + len]);
                at += len;
                held = held.max(at);
            }
            ReplyStep::Zeros(slot, range) => {
                buffers[slot][range.start as usize..range.end as usize].fill(0);
            }
            ReplyStep::Done(slot, result) => {
                assert_eq!(results[slot].replace(result), None, "two results");
                replies.release(slot);
            }
        }
    }
    assert_eq!(at, stream.len(), "bytes are left");
    let results = results.into_iter().map(|result| result.expect("each request has a result"));
    Ok(buffers.into_iter().zip(results).collect())
}

fn fault(replies: &mut Replies, stream: Stream) -> &'static str {
    decode(replies, &[4096; 4], &stream.bytes, || usize::MAX / 2).expect_err("the stream is wrong")
}

/// A read of 4096 bytes at 8192, and its cookie.
fn one_read(structured: bool) -> (Replies, u64) {
    let mut replies = Replies::new(structured);
    let (slot, cookie) = replies.expect(Command::Read, 8192, 4096);
    assert_eq!(slot, 0);
    (replies, cookie)
}

/// Requests, and a valid stream of replies to all requests, in random order and random parts.
fn random_stream(rng: &mut Rng, structured: bool) -> (Replies, Vec<u32>, Vec<u8>, Vec<Ended>) {
    let mut replies = Replies::new(structured);
    let (mut lens, mut expected, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rng.between(1, 12) {
        let commands = [Command::Read, Command::Write, Command::Flush, Command::Discard];
        let command = commands[rng.below(4) as usize];
        let (offset, len) = (rng.below(1 << 40), rng.between(1, 5_000) as u32);
        let (slot, cookie) = replies.expect(command, offset, len);
        assert_eq!(slot, lens.len());
        lens.push(len);
        let mut buffer = vec![0xee; len as usize];
        let result = if rng.chance(0.2) { Err(rng.between(1, 200) as u32) } else { Ok(()) };
        let answer = if command == Command::Read && structured {
            structured_read(rng, cookie, offset, &mut buffer, result)
        } else {
            let head = match result {
                Err(error) if structured && rng.chance(0.5) => Head::error(cookie, error),
                Ok(()) if structured && rng.chance(0.5) => Head::done(cookie),
                _ => Head::simple(cookie, result.err().unwrap_or(0)),
            };
            let mut answer = head.as_bytes().to_vec();
            if command == Command::Read && result.is_ok() {
                rng.fill(&mut buffer);
                answer.extend(&buffer);
            }
            vec![answer]
        };
        parts.push(answer);
        expected.push((buffer, result));
    }
    // Parts of one reply stay in order; replies mix.
    let mut stream = Vec::new();
    while !parts.is_empty() {
        let at = rng.below(parts.len() as u64) as usize;
        stream.extend(parts[at].remove(0));
        parts.retain(|answer| !answer.is_empty());
    }
    (replies, lens, stream, expected)
}

/// Parts of a structured reply in random order: the last part ends the reply, or an empty part or an error.
fn structured_read(
    rng: &mut Rng,
    cookie: u64,
    offset: u64,
    buffer: &mut [u8],
    result: Result<(), u32>,
) -> Vec<Vec<u8>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < buffer.len() {
        let end = (start + rng.between(1, 2_000) as usize).min(buffer.len());
        ranges.push(start..end);
        start = end;
    }
    rng.shuffle(&mut ranges);
    if result.is_err() {
        ranges.truncate(rng.below(ranges.len() as u64 + 1) as usize);
    }
    let ends_with_data = result.is_ok() && rng.chance(0.5);
    let count = ranges.len();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for (number, range) in ranges.into_iter().enumerate() {
        let part = if ends_with_data && number + 1 == count { Part::Last } else { Part::More };
        let (at, len) = (offset + range.start as u64, range.len() as u32);
        if rng.chance(0.3) {
            buffer[range].fill(0);
            parts.push(Head::offset_hole(cookie, part, at, len).as_bytes().to_vec());
        } else {
            rng.fill(&mut buffer[range.clone()]);
            let head = Head::offset_data(cookie, part, at, len);
            parts.push([head.as_bytes(), &buffer[range]].concat());
        }
    }
    match result {
        Err(error) => parts.push(Head::error(cookie, error).as_bytes().to_vec()),
        Ok(()) if !ends_with_data => parts.push(Head::done(cookie).as_bytes().to_vec()),
        Ok(()) => {}
    }
    parts
}

#[test]
fn valid_streams_are_decoded_alike_however_they_are_cut() {
    for seed in 0..1_500 {
        let mut rng = Rng::new(seed);
        let (mut replies, lens, stream, expected) = random_stream(&mut rng, seed % 3 > 0);
        let most = [1, 7, 100, 5_000][rng.below(4) as usize];
        let found = decode(&mut replies, &lens, &stream, || rng.between(1, most + 1) as usize);
        let found = found.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert!(found == expected, "seed {seed}");
    }
}

#[test]
fn cookies_of_a_slot_differ() {
    let (mut replies, cookie) = one_read(false);
    let stream = Stream::default().head(Head::simple(cookie, NBD_EIO));
    assert_eq!(decode(&mut replies, &[1], &stream.bytes, || 3).unwrap()[0].1, Err(NBD_EIO));
    let (slot, next) = replies.expect(Command::Write, 0, 1);
    assert_eq!((slot, next != cookie), (0, true));
    fault(&mut replies, Stream::default().head(Head::simple(cookie, 0)));
}

#[test]
fn parts_outside_the_request_are_refused() {
    for (offset, len) in [(8191, 10), (8192, 4097), (12_288, 1), (0, 4096), (u64::MAX, 2), (12_287, 2)] {
        let (mut replies, cookie) = one_read(true);
        let payload = vec![1; len as usize];
        let data = Head::offset_data(cookie, Part::Last, offset, len);
        fault(&mut replies, Stream::default().head(data).payload(&payload));
        let (mut replies, cookie) = one_read(true);
        fault(&mut replies, Stream::default().head(Head::offset_hole(cookie, Part::Last, offset, len)));
    }
}

#[test]
fn missing_and_doubled_bytes_are_refused() {
    let (mut replies, cookie) = one_read(true);
    let half = Head::offset_hole(cookie, Part::Last, 8192, 2048);
    fault(&mut replies, Stream::default().head(half));
    let (mut replies, cookie) = one_read(true);
    fault(&mut replies, Stream::default().head(Head::done(cookie)));
    let (mut replies, cookie) = one_read(true);
    let whole = Head::offset_hole(cookie, Part::More, 8192, 4096);
    fault(&mut replies, Stream::default().head(whole).head(half));
    let (mut replies, cookie) = one_read(true);
    fault(&mut replies, Stream::default().head(Head::offset_hole(cookie, Part::More, 8192, 0)));
}

#[test]
fn replies_of_the_wrong_kind_are_refused() {
    let (mut replies, cookie) = one_read(true);
    fault(&mut replies, Stream::default().head(Head::simple(cookie, 0)).payload(&[0; 4096]));
    let (mut replies, cookie) = one_read(false);
    fault(&mut replies, Stream::default().head(Head::offset_hole(cookie, Part::Last, 8192, 4096)));
    for structured in [false, true] {
        let (mut replies, cookie) = one_read(structured);
        fault(&mut replies, Stream::default().head(Head::simple(cookie + 1, 0)));
        fault(&mut replies, Stream::default().head(Head::simple(cookie ^ (1 << 40), 0)));
        fault(&mut replies, Stream::default().payload(b"HTTP/1.1 400 Bad Request"));
    }
    let mut replies = Replies::new(true);
    let (_, cookie) = replies.expect(Command::Write, 8192, 4096);
    fault(&mut replies, Stream::default().head(Head::offset_hole(cookie, Part::Last, 8192, 4096)));
    fault(&mut replies, Stream::default().head(Head::block_status(cookie, 1, 1)).payload(&[0; 8]));
}

#[test]
fn part_with_a_wrong_length_is_refused() {
    let with_len = |head: Head, len: u32| {
        let mut bytes = head.as_bytes().to_vec();
        bytes[16..20].copy_from_slice(&len.to_be_bytes());
        Stream::default().payload(&bytes)
    };
    for len in [0, 8, u32::MAX] {
        let (mut replies, cookie) = one_read(true);
        fault(&mut replies, with_len(Head::offset_data(cookie, Part::Last, 8192, 1), len));
    }
    for len in [0, 11, 13, u32::MAX] {
        let (mut replies, cookie) = one_read(true);
        fault(&mut replies, with_len(Head::offset_hole(cookie, Part::Last, 8192, 1), len));
    }
    for len in [0, 5, ERROR_LARGEST + 1, u32::MAX] {
        let (mut replies, cookie) = one_read(true);
        fault(&mut replies, with_len(Head::error(cookie, 5), len));
    }
    let (mut replies, cookie) = one_read(true);
    fault(&mut replies, with_len(Head::done(cookie), 1));
    let (mut replies, cookie) = one_read(true);
    let mut bytes = Head::done(cookie).as_bytes().to_vec();
    bytes[5] = 0;
    fault(&mut replies, Stream::default().payload(&bytes));
}

#[test]
fn first_error_of_several_counts_and_errors_are_limited() {
    let more = |cookie, error| {
        let mut bytes = Head::error(cookie, error).as_bytes().to_vec();
        bytes[5] = 0;
        bytes
    };
    let (mut replies, cookie) = one_read(true);
    let stream =
        Stream::default().payload(&more(cookie, 28)).payload(&more(cookie, 5)).head(Head::done(cookie));
    assert_eq!(decode(&mut replies, &[1], &stream.bytes, || 9).unwrap()[0].1, Err(28));
    let (mut replies, cookie) = one_read(true);
    fault(&mut replies, Stream::default().payload(&more(cookie, 5).repeat(MOST_ERRORS as usize + 1)));
    let (mut replies, cookie) = one_read(true);
    fault(&mut replies, Stream::default().head(Head::error(cookie, 0)));
}
