//! Bytes that look random and encode their origin, so that a wrong byte names its write.
//!
//! Each aligned word of 8 bytes is the number of a write plus one (24 bits) and the word's place in the
//! volume (40 bits), put through an invertible mixing function. Zeros are no stamp.

use braid_base::Bytes;

const WORD: usize = 8;
const PLACE_BITS: u32 = 40;

/// Fills `bytes` with the stamp of write `number` at `offset`. Numbers wrap at 2^24.
pub fn stamp(number: u64, offset: Bytes, bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset.as_usize() + done;
        let within = at % WORD;
        let count = (WORD - within).min(bytes.len() - done);
        let word = mix((number + 1) << PLACE_BITS | (at / WORD) as u64).to_le_bytes();
        bytes[done..done + count].copy_from_slice(&word[within..within + count]);
        done += count;
    }
}

/// Returns the write and the offset encoded in a word of 8 bytes, or `None` if the word is no stamp. `limit`
/// is the number of writes so far, `size` the volume's size.
pub fn read_stamp(word: [u8; WORD], limit: u64, size: Bytes) -> Option<(u64, Bytes)> {
    let plain = unmix(u64::from_le_bytes(word));
    let number = (plain >> PLACE_BITS).checked_sub(1)?;
    let place = plain & ((1 << PLACE_BITS) - 1);
    let offset = Bytes(place * WORD as u64);
    (number < limit && offset < size).then_some((number, offset))
}

/// splitmix64's finaliser, without its constant increment: a permutation of the 64-bit numbers.
fn mix(plain: u64) -> u64 {
    let x = (plain ^ (plain >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The inverse of [`mix`], with the inverses of its factors modulo 2^64.
fn unmix(mixed: u64) -> u64 {
    let x = mixed ^ (mixed >> 31) ^ (mixed >> 62);
    let x = x.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let x = x ^ (x >> 27) ^ (x >> 54);
    let x = x.wrapping_mul(0x96de_1b17_3f11_9089);
    x ^ (x >> 30) ^ (x >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_decodes_to_write_number_and_offset() {
        let mut bytes = [0; 32];
        stamp(17, Bytes(4099), &mut bytes);
        let word: [u8; 8] = bytes[5..13].try_into().unwrap();
        assert_eq!(read_stamp(word, 100, Bytes(1 << 20)), Some((17, Bytes(4104))));
        assert_eq!(read_stamp([0; 8], 100, Bytes(1 << 20)), None, "zeros are no stamp");
        assert_eq!(read_stamp([0xee; 8], 100, Bytes(1 << 20)), None);
    }

    #[test]
    fn pieces_of_a_write_are_stamped_as_the_whole() {
        let (mut whole, mut pieces) = ([0; 64], [0; 64]);
        stamp(3, Bytes(100), &mut whole);
        for (at, piece) in pieces.chunks_mut(7).enumerate() {
            stamp(3, Bytes(100 + 7 * at as u64), piece);
        }
        assert_eq!(whole, pieces);
    }
}
