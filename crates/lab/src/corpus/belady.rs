//! Which blocks a cache holds that knows all requests beforehand.
//!
//! Belady's rule with bypass: among the held blocks and the accessed block, the block with the furthest next read
//! leaves. A write brings its own bytes and needs no held block, so only reads count as uses. The cache begins with
//! the blocks of the earliest reads, for nothing. No other cache of the same number of blocks finds more reads, if
//! it fetches a block at an access and not before (L. A. Belady, 1966; bypass and a free beginning keep the
//! exchange argument).
//!
//! With [`Which::Scattered`], reads that continue a stream neither enter nor count: disks serve streams well, and
//! the room serves other reads.

use super::heat::Streams;
use braid_base::{Bytes, Op, Request};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeSet;

/// Which reads count as uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All.
    All,
    /// Those that do not continue a stream.
    Scattered,
}

/// Which blocks of which requests are found: a bit for each block that a request touches.
#[derive(Clone, Debug)]
pub struct Held {
    /// Where the bits of each request begin.
    first: Vec<usize>,
    bits: Vec<bool>,
}

/// The unit of caching.
pub const BLOCK: Bytes = Bytes(4 << 10);

const NEVER: u32 = u32::MAX;

impl Held {
    /// By a cache of `room` blocks, under these requests in this order.
    pub fn of<'a>(requests: impl Iterator<Item = &'a Request> + Clone, room: usize, which: Which) -> Held {
        let (first, uses) = next_uses(requests.clone(), which);
        let mut bits = vec![false; uses.len()];
        // What is held, by its next use. A block has one entry.
        let (mut order, mut held) = (BTreeSet::new(), HashMap::<u64, u32, FixedState>::default());
        for (block, next) in beginning(requests.clone(), &uses, room) {
            order.insert((next, block));
            held.insert(block, next);
        }
        let mut place = 0;
        for request in requests {
            for block in blocks(request) {
                let Use { next, counts } = uses[place];
                if let Some(due) = held.remove(&block) {
                    bits[place] = true;
                    order.remove(&(due, block));
                }
                let is_wanted = next != NEVER && (counts || bits[place]);
                let furthest = order.last().map(|(next, _)| *next);
                if is_wanted && (order.len() < room || furthest.is_some_and(|furthest| next < furthest)) {
                    if order.len() >= room
                        && let Some((_, leaves)) = order.pop_last()
                    {
                        held.remove(&leaves);
                    }
                    order.insert((next, block));
                    held.insert(block, next);
                }
                place += 1;
            }
        }
        Held { first, bits }
    }

    /// Whether the block that is this many into a request is held.
    pub fn is_held(&self, request: usize, block: usize) -> bool {
        self.bits[self.first[request] + block]
    }
}

/// An access to a block.
#[derive(Clone, Copy)]
struct Use {
    /// The place of the next read of the block that counts.
    next: u32,
    /// Whether this access may bring the block in.
    counts: bool,
}

/// For each access to a block, in order; and where each request's accesses begin.
fn next_uses<'a>(requests: impl Iterator<Item = &'a Request>, which: Which) -> (Vec<usize>, Vec<Use>) {
    let (mut first, mut accesses, mut streams) = (Vec::new(), Vec::new(), Streams::default());
    for request in requests {
        first.push(accesses.len());
        let continues = matches!(request.op, Op::Read | Op::Write) && streams.add(request);
        let counts = which == Which::All || !continues;
        accesses.extend(blocks(request).map(|block| (block, request.op == Op::Read && counts, counts)));
    }
    let mut next: HashMap<u64, u32, FixedState> = HashMap::default();
    let mut uses = vec![Use { next: NEVER, counts: false }; accesses.len()];
    for (place, (block, is_use, counts)) in accesses.into_iter().enumerate().rev() {
        uses[place] = Use { next: next.get(&block).copied().unwrap_or(NEVER), counts };
        if is_use {
            next.insert(block, place as u32);
        }
    }
    (first, uses)
}

/// The blocks that are used first, with their first use.
fn beginning<'a>(requests: impl Iterator<Item = &'a Request>, uses: &[Use], room: usize) -> Vec<(u64, u32)> {
    let (mut seen, mut chosen) = (HashMap::<u64, (), FixedState>::default(), Vec::new());
    for (place, (block, is_read)) in
        requests.flat_map(|r| blocks(r).map(move |block| (block, r.op == Op::Read))).enumerate()
    {
        if chosen.len() == room {
            break;
        }
        let is_first = seen.insert(block, ()).is_none();
        if is_first && is_read && uses[place].counts {
            chosen.push((block, place as u32));
        }
    }
    chosen
}

/// The blocks that a request touches; none of a flush or a discard.
pub fn blocks(request: &Request) -> std::ops::Range<u64> {
    match request.op {
        Op::Read | Op::Write if request.len > Bytes::ZERO => {
            request.offset / BLOCK..(request.offset + request.len - Bytes(1)) / BLOCK + 1
        }
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    fn requests(seed: u64, count: usize, blocks: u64) -> Vec<Request> {
        let mut rng = Rng::new(seed);
        let request = |_| Request {
            op: if rng.chance(0.8) { Op::Read } else { Op::Write },
            offset: BLOCK * rng.below(blocks).min(rng.below(blocks)),
            len: BLOCK,
        };
        (0..count).map(request).collect()
    }

    fn found(requests: &[Request], held: &Held) -> usize {
        let is_read = |n: &usize| requests[*n].op == Op::Read;
        (0..requests.len()).filter(is_read).filter(|&n| held.is_held(n, 0)).count()
    }

    /// The most reads that any cache finds, by trying every choice.
    fn best(requests: &[Request], held: &[u64], room: usize) -> usize {
        let Some((request, rest)) = requests.split_first() else { return 0 };
        let block = request.offset / BLOCK;
        let finds = usize::from(request.op == Op::Read && held.contains(&block));
        let mut most = best(rest, held, room);
        if !held.contains(&block) {
            let mut with = held.to_vec();
            with.push(block);
            if with.len() <= room {
                most = most.max(best(rest, &with, room));
            } else {
                for leaves in 0..held.len() {
                    let mut with = held.to_vec();
                    with[leaves] = block;
                    most = most.max(best(rest, &with, room));
                }
            }
        }
        most + finds
    }

    #[test]
    fn no_choice_finds_more_than_beladys() {
        for seed in 0..30 {
            let requests = requests(seed, 10, 5);
            let held = Held::of(requests.iter(), 2, Which::All);
            let begins: Vec<u64> = (0..5).collect();
            let pairs = begins.iter().flat_map(|a| begins.iter().map(move |b| vec![*a, *b]));
            let most = pairs.map(|begin| best(&requests, &begin, 2)).max();
            assert_eq!(Some(found(&requests, &held)), most, "seed {seed}");
        }
    }

    #[test]
    fn a_cache_is_better_than_lru_and_no_better_than_all_blocks() {
        let requests = requests(1, 3000, 400);
        let (mut lru, mut hits) = (Vec::new(), 0);
        for request in &requests {
            let block = request.offset / BLOCK;
            if let Some(place) = lru.iter().position(|held| *held == block) {
                hits += usize::from(request.op == Op::Read);
                lru.remove(place);
            } else if lru.len() == 40 {
                lru.remove(0);
            }
            lru.push(block);
        }
        let belady = found(&requests, &Held::of(requests.iter(), 40, Which::All));
        let reads = requests.iter().filter(|request| request.op == Op::Read).count();
        assert!(belady > hits, "{belady}, {hits}");
        assert_eq!(found(&requests, &Held::of(requests.iter(), 400, Which::All)), reads);
    }
}
