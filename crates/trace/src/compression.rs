//! Compression: detected from the first bytes, and decompressed as a stream. The whole decompressed content
//! is never in memory. So a small file that unpacks to terabytes costs time, but no memory.
//!
//! The memory of a decompressor is limited too: a window of 128 MiB for zstd (the most that `zstd` writes
//! without `--long=28` or more), 128 MiB in all for xz (the dictionary at `-9` is 64 MiB).

use std::fmt;
use std::io::{self, Cursor, Read};

/// Compression of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Uncompressed.
    Plain,
    /// gzip, of one member or several.
    Gzip,
    /// xz, of one stream or several.
    Xz,
    /// zstd, of one frame or several.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Plain => "plain",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        })
    }
}

/// Decompressed content of a source.
pub(crate) type Content<'a> = Box<dyn Read + Send + 'a>;

/// Base-2 logarithm of the largest zstd window.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Memory limit of the xz decoder, in bytes.
const XZ_MEMORY: u64 = 128 << 20;

/// Detects the compression, and returns the decompressed content.
pub(crate) fn decompress<'a>(mut source: impl Read + Send + 'a) -> io::Result<(Compression, Content<'a>)> {
    let mut first = Vec::with_capacity(6);
    source.by_ref().take(6).read_to_end(&mut first)?;
    let compression = tell(&first);
    let source = Cursor::new(first).chain(source);
    let content: Content<'a> = match compression {
        Compression::Plain => Box::new(source),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(source)),
        Compression::Xz => {
            let stream =
                liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)?;
            Box::new(liblzma::read::XzDecoder::new_stream(source, stream))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(source)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
    };
    Ok((compression, content))
}

fn tell(first: &[u8]) -> Compression {
    match first {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        // A data frame, or the skippable frame at the beginning of pzstd's output.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        _ => Compression::Plain,
    }
}

/// Unsupported compressions and archives by their first bytes, with a command to unpack them.
const UNSUPPORTED: [(&[u8], &str); 7] = [
    (b"BZh", "compressed by bzip2: unpack it first, for example bzip2 -dc FILE | braid trace info -"),
    (b"PK\x03\x04", "a zip archive: unpack it first, for example unzip -p FILE | braid trace info -"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first, with 7z x FILE"),
    (b"Rar!\x1a\x07", "a RAR archive: unpack it first, with unrar x FILE"),
    (
        b"\x04\x22\x4d\x18",
        "compressed by lz4: unpack it first, for example lz4 -dc FILE | braid trace info -",
    ),
    (b"\x5d\0\0", "compressed by lzma: unpack it first, for example xz -dc FILE | braid trace info -"),
    (b"\x1f\x9d", "compressed by compress: unpack it first, for example gzip -dc FILE | braid trace info -"),
];

/// Offset of the magic number in the first header of a tar archive.
const TAR_MARK: usize = 257;

/// Names the compression, archive or encoding of an unsupported content. `None` for any other content. No
/// trace format begins with any of these magic numbers.
pub(crate) fn unsupported(beginning: &[u8]) -> Option<&'static str> {
    if beginning.get(TAR_MARK..).is_some_and(|rest| rest.starts_with(b"ustar")) {
        return Some("a tar archive: unpack it into a folder, and name the folder or one of its files");
    }
    if beginning.starts_with(b"\xff\xfe") || beginning.starts_with(b"\xfe\xff") {
        return Some(
            "text in UTF-16: convert it first, for example iconv -f UTF-16 -t UTF-8 FILE | braid trace info -",
        );
    }
    UNSUPPORTED.iter().find(|(mark, _)| beginning.starts_with(mark)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn unpack(bytes: &[u8]) -> io::Result<(Compression, Vec<u8>)> {
        let (compression, mut content) = decompress(bytes)?;
        let mut all = Vec::new();
        content.read_to_end(&mut all)?;
        Ok((compression, all))
    }

    fn packed(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Plain => bytes.to_vec(),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    const ALL: [Compression; 4] = [Compression::Plain, Compression::Gzip, Compression::Xz, Compression::Zstd];

    #[test]
    fn each_compression_is_detected_and_decoded_also_in_several_parts() {
        for compression in ALL {
            let one = packed(compression, b"0,1,512,r,0.5\n");
            let two = [one.clone(), one].concat();
            assert_eq!(unpack(&two).unwrap(), (compression, b"0,1,512,r,0.5\n".repeat(2)), "{compression}");
        }
    }

    #[test]
    fn source_shorter_than_any_magic_number_is_plain() {
        for bytes in [&b""[..], b"x", &[0x1f]] {
            assert_eq!(unpack(bytes).unwrap(), (Compression::Plain, bytes.to_vec()));
        }
    }

    #[test]
    fn a_torn_stream_is_an_error_and_not_a_short_trace() {
        for compression in &ALL[1..] {
            let bytes = packed(*compression, &b"0,1,512,r,0.5\n".repeat(100));
            assert!(unpack(&bytes[..bytes.len() - 6]).is_err(), "{compression}");
        }
    }
}
