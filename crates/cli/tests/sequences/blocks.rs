//! Model of a volume's blocks: the values that each block may read as.
//!
//! Every write gives its blocks a unique number, a *stamp*; 0 stands for zeros. A block keeps all of its
//! stamps, so the model tells apart an older value, a value of another block and a torn value.

use std::fmt;

/// Adjacent blocks in a cluster.
pub const CLUSTER: usize = 8;
/// Clusters of a volume, with gaps between clusters.
pub const CLUSTERS: usize = 6;
/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// Result of a read of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Stamp(u32),
    Error,
    /// Bytes of no write to this block.
    Strange(u64),
}

/// Strictness of a check of read data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Flushed data, or any later write.
    Exact,
    /// Data discarded by an administrator may read as older data or an error. Never as another block's bytes.
    Older,
    /// All blocks in the state of one instant, not before the given instant.
    Instant(usize),
}

#[derive(Clone, Default, Debug)]
struct Block {
    /// All writes to the block: time, stamp, and true if the write was acknowledged or its value was read.
    history: Vec<(usize, u32, bool)>,
    /// Stamps that the block may read as.
    may: Vec<u32>,
    /// The block's stamp, if known.
    now: Option<u32>,
    /// The stamp after the death of a daemon, if the death may not lose acknowledged writes.
    kept: Option<u32>,
    /// True if the block may read as an error, and not as zeros.
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
    /// Creates the blocks of a new volume: zeros. `salt` distinguishes the volumes.
    pub fn new(salt: u32) -> Blocks {
        let zero = Block { history: vec![(0, 0, true)], may: vec![0], now: Some(0), ..Block::default() };
        Blocks { salt, blocks: vec![zero; CLUSTER * CLUSTERS], time: 0, stamps: 0 }
    }

    /// Returns the present instant.
    pub fn time(&self) -> usize {
        self.time
    }

    /// Returns a new stamp, and its bytes for `count` blocks from `first` on.
    pub fn draw(&mut self, first: usize, count: usize) -> (u32, Vec<u8>) {
        self.stamps += 1;
        let stamp = self.stamps;
        (stamp, (first..first + count).flat_map(|block| self.bytes(block, stamp)).collect())
    }

    fn bytes(&self, block: usize, stamp: u32) -> Vec<u8> {
        let words = [self.salt, block as u32, stamp, !stamp];
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().repeat(BLOCK / 16)
    }

    /// Identifies the write of these bytes of a block.
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

    /// Records an acknowledged write.
    pub fn written(&mut self, first: usize, count: usize, stamp: u32) {
        self.time += 1;
        for block in &mut self.blocks[first..first + count] {
            block.history.push((self.time, stamp, true));
            block.may.push(stamp);
            (block.now, block.lost) = (Some(stamp), false);
        }
    }

    /// Records a write that failed or was not answered.
    pub fn tried(&mut self, first: usize, count: usize, stamp: u32) {
        self.time += 1;
        for block in &mut self.blocks[first..first + count] {
            block.history.push((self.time, stamp, false));
            block.may.push(stamp);
            block.now = None;
        }
    }

    /// Records a successful flush, or a clean shutdown.
    pub fn flushed(&mut self) {
        for block in &mut self.blocks {
            if let Some(now) = block.now {
                block.may = vec![now];
            }
        }
    }

    /// Records the end of the daemon. `kept`: all acknowledged writes must survive.
    pub fn closed(&mut self, kept: bool) {
        for block in &mut self.blocks {
            block.kept = block.now.filter(|_| kept);
            block.now = None;
        }
    }

    /// Records a change of devices after the daemon's death: unflushed writes may be lost.
    pub fn devices_changed(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.kept = None);
    }

    /// Checks the read values of all blocks. If all are right, the read values become the known values.
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

    /// Describes the wrong values among the read values of all blocks.
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

    /// Checks that the read values of all blocks equal the state of one instant, not before `from`.
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

    /// Takes the read values as the known values of the blocks.
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

    /// With one copy, a read value is definite: no other value may appear later.
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

    /// Possible stamps of the block at a time.
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
