//! What each block of a volume may read as.
//!
//! Every write gives its blocks a number of their own, a *stamp*; 0 stands for zeros. A block keeps all of
//! its stamps, so that an older value, a value of another block and a torn one are told apart.

use std::fmt;

/// Blocks in a cluster, which lie side by side.
pub const CLUSTER: usize = 8;
/// Clusters of a volume, which lie apart.
pub const CLUSTERS: usize = 6;
/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// What a read of a block gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Stamp(u32),
    Error,
    /// Bytes that no write of this block gave it.
    Strange(u64),
}

/// How much is asked of what is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// What was flushed, or anything written since.
    Exact,
    /// What an administrator gave up may be older, or an error. Never another block's bytes.
    Older,
    /// All blocks as they were at one instant, not before this one.
    Instant(usize),
}

#[derive(Clone, Default, Debug)]
struct Block {
    /// All that it was given, with the time; whether the write was acknowledged, or seen.
    history: Vec<(usize, u32, bool)>,
    /// What it may read as.
    may: Vec<u32>,
    /// What it reads as, if that is known.
    now: Option<u32>,
    /// What it must read as after the death of a daemon, if that may lose nothing that was acknowledged.
    kept: Option<u32>,
    /// Whether it may read as an error, and not as zeros.
    lost: bool,
}

/// All blocks of a volume.
pub struct Blocks {
    salt: u32,
    blocks: Vec<Block>,
    time: usize,
    stamps: u32,
}

impl Blocks {
    /// Of a new volume: zeros. `salt` tells the volumes apart.
    pub fn new(salt: u32) -> Blocks {
        let zero = Block { history: vec![(0, 0, true)], may: vec![0], now: Some(0), ..Block::default() };
        Blocks { salt, blocks: vec![zero; CLUSTER * CLUSTERS], time: 0, stamps: 0 }
    }

    /// The present instant.
    pub fn time(&self) -> usize {
        self.time
    }

    /// New bytes for `count` blocks from `first` on, with their stamp.
    pub fn draw(&mut self, first: usize, count: usize) -> (u32, Vec<u8>) {
        self.stamps += 1;
        let stamp = self.stamps;
        (stamp, (first..first + count).flat_map(|block| self.bytes(block, stamp)).collect())
    }

    fn bytes(&self, block: usize, stamp: u32) -> Vec<u8> {
        let words = [self.salt, block as u32, stamp, !stamp];
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().repeat(BLOCK / 16)
    }

    /// What these bytes of a block are.
    pub fn recognize(&self, block: usize, bytes: &[u8]) -> Seen {
        if bytes.iter().all(|&byte| byte == 0) {
            return Seen::Stamp(0);
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let stamp = word(8);
        match bytes == self.bytes(block, stamp) {
            true => Seen::Stamp(stamp),
            false => Seen::Strange(u64::from(word(0)) << 32 | u64::from(word(4)) << 16 | u64::from(word(8))),
        }
    }

    /// A write that was acknowledged.
    pub fn written(&mut self, first: usize, count: usize, stamp: u32) {
        self.time += 1;
        for block in &mut self.blocks[first..first + count] {
            block.history.push((self.time, stamp, true));
            block.may.push(stamp);
            (block.now, block.lost) = (Some(stamp), false);
        }
    }

    /// A write that failed, or of which nothing was heard.
    pub fn tried(&mut self, first: usize, count: usize, stamp: u32) {
        self.time += 1;
        for block in &mut self.blocks[first..first + count] {
            block.history.push((self.time, stamp, false));
            block.may.push(stamp);
            block.now = None;
        }
    }

    /// A flush that succeeded, or a clean end.
    pub fn flushed(&mut self) {
        for block in &mut self.blocks {
            if let Some(now) = block.now {
                block.may = vec![now];
            }
        }
    }

    /// The daemon has ended. `kept`: with all that it had acknowledged.
    pub fn closed(&mut self, kept: bool) {
        for block in &mut self.blocks {
            block.kept = block.now.filter(|_| kept);
            block.now = None;
        }
    }

    /// Devices are not what the daemon left: the death of the daemon may have cost what was not flushed.
    pub fn devices_changed(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.kept = None);
    }

    /// Holds what was read of all blocks against what may be read.
    pub fn verify(&mut self, seen: &[Seen], level: Level) -> Result<(), String> {
        if let Level::Instant(from) = level {
            self.verify_instant(seen, from)?;
        }
        let wrong = self.wrong(seen, level);
        if wrong.is_empty() {
            self.note(seen, level);
            return Ok(());
        }
        Err(format!("{} blocks are wrong: {}", wrong.len(), wrong[..wrong.len().min(6)].join("; ")))
    }

    /// What is wrong of what was read of all blocks.
    pub fn wrong(&self, seen: &[Seen], level: Level) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, &seen) in seen.iter().enumerate() {
            let block = &self.blocks[number];
            let right = match seen {
                Seen::Stamp(stamp) => match (block.now.or(block.kept), level) {
                    _ if level != Level::Exact => block.was(stamp),
                    (Some(now), _) => stamp == now,
                    (None, _) => block.may.contains(&stamp),
                },
                Seen::Error => block.lost || level == Level::Older,
                Seen::Strange(_) => false,
            };
            if !right {
                wrong.push(format!("block {number} is {seen}, {block}"));
            }
        }
        wrong
    }

    /// Whether there is an instant, not before `from`, at which all blocks were as they are.
    fn verify_instant(&self, seen: &[Seen], from: usize) -> Result<(), String> {
        let fits = |time: usize| {
            self.blocks.iter().zip(seen).all(|(block, seen)| match seen {
                Seen::Stamp(stamp) => block.at(time).contains(stamp),
                _ => false,
            })
        };
        match (from..=self.time).any(fits) {
            true => Ok(()),
            false => {
                Err(format!("the volume was never like this from instant {from} to {}: {seen:?}", self.time))
            }
        }
    }

    /// From now on the blocks are what was read.
    fn note(&mut self, seen: &[Seen], level: Level) {
        self.time += 1;
        for (block, &seen) in self.blocks.iter_mut().zip(seen) {
            match seen {
                Seen::Stamp(stamp) => {
                    if block.history.last().is_some_and(|&(_, last, sure)| last != stamp || !sure) {
                        block.history.push((self.time, stamp, true));
                    }
                    block.now = Some(stamp);
                    if level != Level::Exact {
                        (block.may, block.lost) = (vec![stamp], false);
                    }
                }
                _ => {
                    block.lost = true;
                    block.now = None;
                    if level != Level::Exact {
                        block.may = block.history.iter().map(|entry| entry.1).collect();
                    }
                }
            }
        }
    }

    /// With one copy, what was read is what there is, whatever follows.
    pub fn collapse(&mut self) {
        for block in &mut self.blocks {
            if let Some(now) = block.now {
                block.may = vec![now];
            }
        }
    }
}

impl Block {
    fn was(&self, stamp: u32) -> bool {
        self.history.iter().any(|entry| entry.1 == stamp)
    }

    /// What it may have been at a time.
    fn at(&self, time: usize) -> Vec<u32> {
        let until: Vec<_> = self.history.iter().take_while(|entry| entry.0 <= time).collect();
        let sure = until.iter().rposition(|entry| entry.2).unwrap_or_default();
        until[sure..].iter().map(|entry| entry.1).collect()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let had: Vec<u32> = self.history.iter().map(|entry| entry.1).collect();
        match self.now.or(self.kept) {
            Some(now) => write!(f, "must be {now}")?,
            None => write!(f, "may be {:?}", self.may)?,
        }
        write!(f, "{}; it had {had:?}", if self.lost { " or an error" } else { "" })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Stamp(0) => f.write_str("zeros"),
            Seen::Stamp(stamp) => write!(f, "{stamp}"),
            Seen::Error => f.write_str("an error"),
            Seen::Strange(word) => write!(f, "strange bytes {word:x}"),
        }
    }
}
