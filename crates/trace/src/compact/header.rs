//! Header: properties of a trace, known before the first record.

use super::super::options::Place;
use crate::Error;
use crate::devices::MOST_DEVICES;
use braid_base::Bytes;

pub(crate) const MAGIC: &[u8; 8] = b"BRAIDTRC";
const VERSION: u32 = 1;
const FIXED: usize = 56;
/// Room for some 40,000 devices with short labels.
pub(super) const LONGEST_HEADER: usize = 1 << 20;
const LONGEST_NAME: usize = 255;
const UNKNOWN: u64 = u64::MAX;

/// Header of a compact trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Origin of the trace in a few words, at most 255 bytes.
    pub name: String,
    /// Size of the address space, if known.
    pub span: Option<Bytes>,
    /// Number of records, if known.
    pub records: Option<u64>,
    /// Time zero in nanoseconds since 1970, if known.
    pub unix_ns: Option<u64>,
    /// Places of the devices. Empty for a single device. Labels have at most 255 bytes, and the whole header
    /// at most 1 MiB: some 40,000 devices.
    pub places: Vec<Place>,
}

impl Header {
    /// Encodes the header. Names and labels over the limit are cut. With too many devices, the result is
    /// longer than [`LONGEST_HEADER`].
    pub(crate) fn encode(&self) -> Vec<u8> {
        let name = cut(&self.name);
        let places = &self.places;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(self.span.unwrap_or_default().0.to_le_bytes());
        bytes.extend(self.records.unwrap_or(UNKNOWN).to_le_bytes());
        bytes.extend(self.unix_ns.unwrap_or(0).to_le_bytes());
        bytes.extend((places.len() as u32).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(name.as_bytes());
        for place in places {
            let label = cut(&place.device);
            bytes.extend(place.base.0.to_le_bytes());
            bytes.extend(place.span.0.to_le_bytes());
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let len = bytes.len() as u32;
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[20..]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the length of the header from its first bytes.
    pub(crate) fn len(beginning: &[u8]) -> Result<usize, Error> {
        let Some(fixed) = beginning.first_chunk::<16>().filter(|fixed| fixed.starts_with(MAGIC)) else {
            return Err(invalid("the first bytes are not 'BRAIDTRC'"));
        };
        let (version, len) = (four(fixed, 8), four(fixed, 12) as usize);
        if version != VERSION {
            return Err(Error::Unrecognised(format!(
                "the trace has version {version} of the compact format, and this braid reads version \
                 {VERSION}: use a newer braid"
            )));
        }
        match (FIXED..=LONGEST_HEADER).contains(&len) && len.is_multiple_of(8) {
            true => Ok(len),
            false => Err(invalid(&format!("its header has the invalid length {len}"))),
        }
    }

    /// Decodes a header. `bytes` must be the whole header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, Error> {
        if bytes.len() < FIXED || Header::len(bytes)? != bytes.len() {
            return Err(invalid("its header is truncated"));
        }
        if crc32c::crc32c(&bytes[20..]) != four(bytes, 16) {
            return Err(invalid("its header is damaged (checksum mismatch)"));
        }
        let (devices, name_len) =
            (four(bytes, 48) as usize, usize::from(bytes[52]) | usize::from(bytes[53]) << 8);
        let mut rest = &bytes[FIXED..];
        let name = text(&mut rest, name_len)?;
        if devices > MOST_DEVICES || name_len > LONGEST_NAME {
            return Err(invalid("its header has more than 65536 devices, or a name of more than 255 bytes"));
        }
        let mut places = Vec::new();
        for _ in 0..devices {
            places.push(place(&mut rest)?);
        }
        let known = |at: usize, unknown: u64| Some(eight(bytes, at)).filter(|&value| value != unknown);
        let (span, records, unix_ns) = (known(24, 0).map(Bytes), known(32, UNKNOWN), known(40, 0));
        Ok(Header { name, span, records, unix_ns, places })
    }
}

fn place(rest: &mut &[u8]) -> Result<Place, Error> {
    let Some((fixed, after)) = rest.split_first_chunk::<17>() else {
        return Err(invalid("the devices of its header are truncated"));
    };
    *rest = after;
    let (base, span) = (Bytes(eight(fixed, 0)), Bytes(eight(fixed, 8)));
    let device = text(rest, fixed[16].into())?;
    if base.0.checked_add(span.0).is_none_or(|end| end > 1 << 62) {
        return Err(invalid("a device is beyond the address limit"));
    }
    Ok(Place { device, base, span })
}

fn text(rest: &mut &[u8], len: usize) -> Result<String, Error> {
    let Some((text, after)) = rest.split_at_checked(len) else {
        return Err(invalid("a name in its header is truncated"));
    };
    *rest = after;
    String::from_utf8(text.to_vec()).map_err(|_| invalid("a name in its header is not UTF-8"))
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NAME)]
}

fn invalid(why: &str) -> Error {
    Error::Unrecognised(format!("the trace is not in the compact format, or its header is damaged: {why}"))
}

pub(super) fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(super) fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
