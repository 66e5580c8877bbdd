//! The policy's own state: bounded tables of a policy that survive a restart, as bytes that only the policy
//! interprets.
//!
//! ```text
//! offset  size  field
//! 0       8     magic "BRAIDPOL"
//! 8       4     CRC-32C of the volume's UUID and bytes 12..length
//! 12      4     length: header and state, without the padding to 4 KiB
//! 16      8     sequence: one more at each write
//! 24      64    name of the policy that wrote it, UTF-8, zero-padded
//! 88      8     epoch of the opening that wrote it
//! 96      …     the policy's state
//! ```
//!
//! The region has two halves of 256 KiB, written alternately by the parity of the sequence. Of all valid
//! halves, the half with the highest epoch, then the highest sequence, counts: a device that was missing may
//! hold a higher sequence of an earlier epoch. The loss of the state costs only the policy's learned tables.

use crate::checksum::checksum;
use crate::{Invalid, Uuid, count, text};
use braid_base::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a half.
pub const HALF: Bytes = Bytes(256 << 10);
/// The longest state, in bytes.
pub const MOST_STATE: usize = HALF.as_usize() - HEADER;
/// The longest policy name, in bytes.
pub const LONGEST_POLICY_NAME: usize = 63;

const MAGIC: [u8; 8] = *b"BRAIDPOL";
const HEADER: usize = size_of::<Raw>();
/// Start of the checksum's range.
const COVERED: usize = 12;
const PAGE: usize = 4096;

/// The state of a policy, verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyState<'a> {
    /// The epoch of the opening that wrote the state.
    pub epoch: u64,
    /// One more at each write.
    pub sequence: u64,
    /// The policy that wrote the state.
    pub policy: String,
    /// The policy's bytes.
    pub state: &'a [u8],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    crc: U32,
    len: U32,
    sequence: U64,
    policy: [u8; LONGEST_POLICY_NAME + 1],
    epoch: U64,
}

const _: () = assert!(HEADER == 96);
const _: () = assert!(std::mem::offset_of!(Raw, len) == COVERED);
const _: () = assert!(std::mem::offset_of!(Raw, policy) == 24);

/// Encodes the state, padded to whole 4 KiB pages, at most `HALF` long.
///
/// # Panics
/// If the state is longer than `MOST_STATE` or the name longer than `LONGEST_POLICY_NAME`.
pub fn encode(volume: Uuid, written: &PolicyState) -> Vec<u8> {
    let &PolicyState { epoch, sequence, ref policy, state } = written;
    assert!(state.len() <= MOST_STATE, "policy state of {} bytes, {MOST_STATE} at most", state.len());
    let len = HEADER + state.len();
    let mut bytes = vec![0; len.next_multiple_of(PAGE)];
    let mut raw = Raw {
        magic: MAGIC,
        crc: U32::ZERO,
        len: (len as u32).into(),
        sequence: sequence.into(),
        policy: text::encode(policy),
        epoch: epoch.into(),
    };
    bytes[HEADER..len].copy_from_slice(state);
    bytes[..HEADER].copy_from_slice(raw.as_bytes());
    raw.crc = checksum(volume, &bytes[COVERED..len]).into();
    bytes[..HEADER].copy_from_slice(raw.as_bytes());
    bytes
}

/// Verifies the state at the start of `bytes`. Arbitrary bytes may follow the state.
pub fn decode(bytes: &[u8], volume: Uuid) -> Result<PolicyState<'_>, Invalid> {
    let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| Invalid::Absent)?;
    if raw.magic != MAGIC {
        return Err(Invalid::Absent);
    }
    let len = raw.len.get() as usize;
    if !(HEADER..=bytes.len().min(HALF.as_usize())).contains(&len)
        || raw.crc.get() != checksum(volume, &bytes[COVERED..len])
    {
        return Err(Invalid::Checksum);
    }
    count::verify(raw.epoch.get(), "the epoch of the policy's state")?;
    count::verify(raw.sequence.get(), "the sequence of the policy's state")?;
    Ok(PolicyState {
        epoch: raw.epoch.get(),
        sequence: raw.sequence.get(),
        policy: text::decode(&raw.policy, "name of the policy in its state")?,
        state: &bytes[HEADER..len],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    const VOLUME: Uuid = Uuid([7; 16]);

    fn of_hystor(state: &[u8]) -> PolicyState<'_> {
        PolicyState { epoch: 3, sequence: 8, policy: "hystor".to_owned(), state }
    }

    #[test]
    fn policy_state_round_trips_up_to_size_limit() {
        for len in [0, 1, 5000, MOST_STATE] {
            let state = vec![0x5a; len];
            let bytes = encode(VOLUME, &of_hystor(&state));
            assert!(bytes.len().is_multiple_of(PAGE) && bytes.len() <= HALF.as_usize());
            assert_eq!(decode(&bytes, VOLUME), Ok(of_hystor(&state)));
        }
    }

    #[test]
    fn every_torn_sector_of_a_state_is_noticed() {
        let bytes = encode(VOLUME, &of_hystor(&[0x5a; 5000]));
        for sector in 0..(HEADER + 5000usize).div_ceil(512) {
            let mut torn = bytes.clone();
            torn[sector * 512..][..512].fill(0xaa);
            assert!(decode(&torn, VOLUME).is_err(), "sector {sector}");
        }
        assert_eq!(decode(&bytes, Uuid([1; 16])), Err(Invalid::Checksum), "of another volume");
    }

    #[test]
    fn policy_state_with_impossible_numbers_is_rejected() {
        let absurd = [
            PolicyState { epoch: u64::MAX, ..of_hystor(&[]) },
            PolicyState { sequence: u64::MAX, ..of_hystor(&[]) },
        ];
        for state in absurd {
            assert!(matches!(decode(&encode(VOLUME, &state), VOLUME), Err(Invalid::Value(_))));
        }
    }

    #[test]
    fn hostile_bytes_do_not_panic() {
        let mut rng = Rng::new(3);
        let good = encode(VOLUME, &of_hystor(&[0x5a; 100]));
        for _ in 0..5_000 {
            let mut bytes = good.clone();
            for _ in 0..rng.between(1, 9) {
                bytes[rng.between(12, 99) as usize] = rng.next_u64() as u8;
            }
            let len = rng.between(HEADER as u64, 4096) as usize;
            bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
            let crc = checksum(VOLUME, &bytes[COVERED..len]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            let _ = decode(&bytes[..rng.between(1, 4096) as usize], VOLUME);
            let _ = decode(&bytes, VOLUME);
        }
    }
}
