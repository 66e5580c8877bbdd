//! Damage to bytes, by seed.

use braid_base::Rng;

/// Longest input: longer inputs find no more faults than shorter inputs.
const LONGEST: usize = 16 << 10;

/// Numbers at which decoders fail.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 20, 1 << 63, u64::MAX - 1, u64::MAX];

/// Damages `bytes` in one to eight places: bits, bytes, numbers in both orders, runs cut out, doubled, moved.
pub fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.between(1, 9) {
        damage(bytes, rng);
    }
    bytes.truncate(LONGEST);
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    if bytes.is_empty() {
        bytes.push(rng.next_u64() as u8);
        return;
    }
    let at = rng.below(bytes.len() as u64) as usize;
    match rng.below(8) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.next_u64() as u8,
        2 => put_number(&mut bytes[at..], rng),
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..run_end(bytes, at, rng))),
        5 => {
            let run = bytes[at..run_end(bytes, at, rng)].to_vec();
            let to = rng.below(bytes.len() as u64 + 1) as usize;
            bytes.splice(to..to, run);
        }
        6 => {
            let end = run_end(bytes, at, rng);
            rng.fill(&mut bytes[at..end]);
        }
        _ => {
            let (run, to) =
                (bytes[at..run_end(bytes, at, rng)].to_vec(), rng.below(bytes.len() as u64) as usize);
            let len = run.len().min(bytes.len() - to);
            bytes[to..to + len].copy_from_slice(&run[..len]);
        }
    }
}

fn put_number(bytes: &mut [u8], rng: &mut Rng) {
    let number = EDGES[rng.below(EDGES.len() as u64) as usize];
    let width = (1usize << rng.below(4)).min(bytes.len());
    let field = match rng.chance(0.5) {
        true => number.to_le_bytes(),
        false => (number << (64 - 8 * width)).to_be_bytes(),
    };
    bytes[..width].copy_from_slice(&field[..width]);
}

fn run_end(bytes: &[u8], at: usize, rng: &mut Rng) -> usize {
    at + 1 + rng.below((bytes.len() - at).min(64) as u64) as usize
}
