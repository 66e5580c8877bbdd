//! Content of a trace as a stream, with bounded lookahead.

use memchr::memchr;
use std::borrow::Cow;
use std::io::{self, Read};

/// Reads content through one buffer of bounded size.
pub(crate) struct Source<'a> {
    content: Box<dyn Read + Send + 'a>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
    /// The byte that ends a line.
    line_end: u8,
}

/// A line of text, without its end.
pub(crate) enum Line<'b> {
    Text(&'b [u8]),
    /// The line is longer than [`LONGEST_LINE`] and was skipped.
    TooLong,
}

/// Limit of a line, far above the lines of any format.
pub(crate) const LONGEST_LINE: usize = 64 << 10;

/// Largest piece for [`Source::peek`].
pub(crate) const LONGEST_PIECE: usize = 2 << 20;

/// Initial size of the buffer. The buffer grows only for formats with larger pieces.
const USUAL: usize = 256 << 10;

impl<'a> Source<'a> {
    pub(crate) fn new(content: Box<dyn Read + Send + 'a>) -> Source<'a> {
        Source { content, buffer: vec![0; USUAL].into(), start: 0, end: 0, ended: false, line_end: b'\n' }
    }

    /// Returns the next bytes: `len`, or fewer at the end of the content.
    pub(crate) fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        self.fill(len)?;
        let end = self.end.min(self.start + len);
        Ok(&self.buffer[self.start..end])
    }

    /// Returns the next bytes, as [`Source::peek`], with a line feed as the end of each line.
    pub(crate) fn lines_ahead(&mut self, len: usize) -> io::Result<Cow<'_, [u8]>> {
        let is_return = self.line_end == b'\r';
        let seen = self.peek(len)?;
        if !is_return {
            return Ok(seen.into());
        }
        Ok(seen.iter().map(|&byte| if byte == b'\r' { b'\n' } else { byte }).collect())
    }

    /// Makes a single carriage return the end of a line from here on, as in text of old Macintosh programs.
    pub(crate) fn end_lines_by_return(&mut self) {
        self.line_end = b'\r';
    }

    /// Skips `len` bytes. The bytes must have been peeked before.
    pub(crate) fn skip(&mut self, len: usize) {
        assert!(len <= self.end - self.start, "what is skipped was seen before");
        self.start += len;
    }

    /// Skips at least one byte, up to the next place at which `begins` returns true. `begins` needs at most
    /// `len` bytes. Returns the number of skipped bytes.
    pub(crate) fn skip_until(&mut self, len: usize, begins: impl Fn(&[u8]) -> bool) -> io::Result<u64> {
        const VIEW: usize = 4096;
        let mut skipped = 0;
        loop {
            let seen = self.peek(VIEW)?;
            let (found, ended) = (seen.len(), seen.len() < VIEW);
            let here = usize::from(skipped == 0);
            let next = (here..found).find(|&place| begins(&seen[place..]));
            // The last bytes may be the beginning of a match.
            let on = next.unwrap_or(if ended { found } else { found + 1 - len });
            self.skip(on);
            skipped += on as u64;
            if next.is_some() || ended {
                return Ok(skipped);
            }
        }
    }

    /// Returns the next line, `None` at the end. The last line may lack a line feed. A carriage return before
    /// the line feed is removed.
    pub(crate) fn line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        loop {
            let seen = &self.buffer[self.start..self.end];
            if let Some(place) = memchr(self.line_end, &seen[searched..]) {
                let from = self.start;
                self.start += searched + place + 1;
                let line = &self.buffer[from..self.start - 1];
                if line.len() > LONGEST_LINE {
                    return Ok(Some(Line::TooLong));
                }
                return Ok(Some(Line::Text(line.strip_suffix(b"\r").unwrap_or(line))));
            }
            searched = seen.len();
            if searched > LONGEST_LINE {
                self.skip_line()?;
                return Ok(Some(Line::TooLong));
            }
            if self.ended {
                let from = self.start;
                self.start = self.end;
                let line = &self.buffer[from..self.end];
                return Ok((!line.is_empty()).then_some(Line::Text(line.strip_suffix(b"\r").unwrap_or(line))));
            }
            self.fill(searched + 1)?;
        }
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(place) = memchr(self.line_end, &self.buffer[self.start..self.end]) {
                self.start += place + 1;
                return Ok(());
            }
            self.start = self.end;
            if self.ended {
                return Ok(());
            }
            self.fill(1)?;
        }
    }

    /// Reads until the buffer holds `len` bytes, or the content ends.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        assert!(len <= LONGEST_PIECE, "a piece of {len} bytes is longer than any format has");
        if self.end - self.start >= len || self.ended {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if len > self.buffer.len() {
            let mut larger = vec![0; LONGEST_PIECE].into_boxed_slice();
            larger[..self.end].copy_from_slice(&self.buffer[..self.end]);
            self.buffer = larger;
        }
        while self.end < len {
            match self.content.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns one byte at a time, like a slow pipe.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.0.len().min(1);
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn lines<'a>(content: impl Read + Send + 'a) -> Vec<Option<Vec<u8>>> {
        let mut source = Source::new(Box::new(content));
        let mut lines = Vec::new();
        while let Some(line) = source.line().unwrap() {
            lines.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
        }
        lines
    }

    #[test]
    fn lines_end_with_a_line_feed_or_with_the_content() {
        let expected = [Some(b"a".to_vec()), Some(b"".to_vec()), Some(b"bc".to_vec())];
        assert_eq!(lines(&b"a\r\n\nbc"[..]), expected);
        assert_eq!(lines(Slow(b"a\r\n\nbc\n")), expected);
        assert!(lines(&b""[..]).is_empty());
    }

    #[test]
    fn a_line_without_end_is_skipped_and_the_next_is_read() {
        for len in [LONGEST_LINE + 1, USUAL - 1, USUAL, USUAL + 1, 3 * USUAL] {
            let content = [&b"a\n"[..], &b"x".repeat(len), b"\nb\n"].concat();
            assert_eq!(lines(&content[..]), [Some(b"a".to_vec()), None, Some(b"b".to_vec())], "{len}");
        }
        let longest = b"x".repeat(LONGEST_LINE);
        assert_eq!(lines(&longest[..]), [Some(longest.clone())]);
        assert_eq!(lines(&b"x".repeat(LONGEST_LINE + 1)[..]), [None]);
    }

    #[test]
    fn peek_does_not_consume_the_source() {
        let content = b"0123456789".repeat(100_000);
        let mut source = Source::new(Box::new(&content[..]));
        assert_eq!(source.peek(10).unwrap(), b"0123456789");
        assert_eq!(source.peek(900_000).unwrap().len(), 900_000);
        source.skip(899_995);
        assert_eq!(source.peek(10).unwrap(), b"5678901234");
        assert_eq!(source.peek(LONGEST_PIECE).unwrap().len(), 100_005);
    }
}
