//! The content of a disk and its cache, and the effects of a power cut; see [`crate::Disk`] for the rules.

use crate::bad_places::BadPlaces;
use crate::image::{Blank, Image, PagedBytes};
use braid_base::{Bytes, Rng, SECTOR};
use braid_runtime::Buf;
use std::collections::{BTreeMap, VecDeque};

/// The content of a disk and its cache. A copy shares bytes and pages with its original.
pub(crate) struct Media {
    /// Content that survives a power cut.
    durable: Image,
    /// Pages over `durable` that reads see instead.
    cached: Image,
    /// Changes in effect but not flushed, oldest first, numbered from `first_number`.
    unflushed: VecDeque<Change>,
    first_number: u64,
    /// Changes in flight that have not taken effect, by key.
    in_flight: BTreeMap<u64, Change>,
    next_key: u64,
    /// Number of losses of unflushed changes.
    losses: u64,
    /// Places that are unreadable or unwritable.
    pub(crate) bad: BadPlaces,
}

/// A change by a write or a discard.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) offset: Bytes,
    pub(crate) content: Content,
}

/// New content of a range.
#[derive(Clone)]
pub(crate) enum Content {
    /// Bytes.
    Written(PagedBytes),
    /// Bytes still in the writer's buffer.
    Arriving(Buf),
    /// Content that [`Image::discard`] makes of this length and seed.
    Discarded(Bytes, u64),
}

impl Media {
    /// Creates a medium that was never written.
    pub(crate) fn new(blank: Blank) -> Media {
        Media {
            durable: Image::new(blank),
            cached: Image::new(Blank::Zeros),
            unflushed: VecDeque::new(),
            first_number: 0,
            in_flight: BTreeMap::new(),
            next_key: 0,
            losses: 0,
            bad: BadPlaces::default(),
        }
    }

    /// Reads durable bytes.
    pub(crate) fn read_durable(&self, offset: Bytes, into: &mut [u8]) {
        self.durable.read(offset, into);
    }

    /// Changes the durable and the visible bytes at once.
    pub(crate) fn poke(&mut self, offset: Bytes, bytes: &[u8]) {
        let cut = PagedBytes::new(offset, bytes);
        self.durable.put(offset, &cut, None);
        self.cached.put(offset, &cut, Some(&self.durable));
    }

    /// Begins a change that takes effect later; returns its key for [`Media::apply_begun`].
    pub(crate) fn begin(&mut self, change: Change) -> u64 {
        self.next_key += 1;
        self.in_flight.insert(self.next_key, change);
        self.next_key
    }

    /// Applies the change that began under `key`, unless the change was lost meanwhile.
    pub(crate) fn apply_begun(&mut self, key: u64) {
        if let Some(change) = self.in_flight.remove(&key) {
            self.apply(change);
        }
    }

    /// Reads the visible bytes.
    pub(crate) fn read(&self, offset: Bytes, into: &mut [u8]) {
        self.durable.read_over(offset, into, Some(&self.cached));
    }

    /// The number of the next change to take effect.
    pub(crate) fn next_number(&self) -> u64 {
        self.first_number + self.unflushed.len() as u64
    }

    /// Number of losses of unflushed changes.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// Makes a change visible to reads.
    pub(crate) fn apply(&mut self, change: Change) {
        let change = change.arrived();
        if let Content::Written(bytes) = &change.content {
            self.bad.heal(&(change.offset..change.offset + bytes.len()));
        }
        change.apply(&mut self.cached, Some(&self.durable));
        self.unflushed.push_back(change);
    }

    /// Makes the changes with numbers below `end` durable.
    pub(crate) fn flush_before(&mut self, end: u64) {
        if end >= self.next_number() {
            self.first_number = self.next_number();
            self.unflushed.clear();
            self.durable.absorb(&mut self.cached);
            return;
        }
        while self.first_number < end {
            let Some(change) = self.unflushed.pop_front() else { return };
            change.apply(&mut self.durable, None);
            self.first_number += 1;
        }
    }

    /// Applies all changes in flight.
    pub(crate) fn finish_in_flight(&mut self) {
        let changes = std::mem::take(&mut self.in_flight);
        changes.into_values().for_each(|change| self.apply(change));
    }

    /// The software died: some changes in flight take effect, some do not, and some do by sector. No change
    /// already in effect is lost.
    pub(crate) fn end_in_flight(&mut self, rng: &mut Rng) {
        let changes: Vec<Change> = std::mem::take(&mut self.in_flight).into_values().collect();
        let fates = Fates::choose(changes.len(), rng);
        for (at, change) in changes.into_iter().enumerate() {
            match fates.of(at, rng) {
                Fate::Lost => {}
                Fate::Kept => self.apply(change),
                Fate::BySector => change.arrived().some_sectors(rng).for_each(|part| self.apply(part)),
            }
        }
    }

    /// Keeps, loses or tears every unflushed change, in effect or not.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng) {
        let in_flight = std::mem::take(&mut self.in_flight);
        self.unflushed.extend(in_flight.into_values().map(Change::arrived));
        self.lose_unflushed(rng);
    }

    /// Keeps, loses or tears every change in effect but not flushed.
    pub(crate) fn lose_unflushed(&mut self, rng: &mut Rng) {
        self.losses += 1;
        self.first_number = self.next_number();
        let changes: Vec<Change> = self.unflushed.drain(..).collect();
        self.cached.clear();
        let fates = Fates::choose(changes.len(), rng);
        let mut order: Vec<usize> = (0..changes.len()).collect();
        if rng.chance(0.5) {
            rng.shuffle(&mut order);
        }
        for at in order {
            match fates.of(at, rng) {
                Fate::Lost => {}
                Fate::Kept => changes[at].apply(&mut self.durable, None),
                Fate::BySector => changes[at].apply_some_sectors(&mut self.durable, rng),
            }
        }
    }

    /// A medium in the same state.
    pub(crate) fn copy(&self) -> Media {
        let in_flight = self.in_flight.iter().map(|(key, change)| (*key, change.clone().arrived()));
        Media {
            durable: self.durable.clone(),
            cached: self.cached.clone(),
            unflushed: self.unflushed.clone(),
            first_number: self.first_number,
            in_flight: in_flight.collect(),
            next_key: self.next_key,
            losses: self.losses,
            bad: self.bad.clone(),
        }
    }
}

impl Change {
    /// Takes the bytes out of the writer's buffer.
    fn arrived(self) -> Change {
        let Change { offset, content } = self;
        match content {
            Content::Arriving(buf) => {
                let content = Content::Written(buf.with_bytes(|bytes| PagedBytes::new(offset, bytes)));
                Change { offset, content }
            }
            content => Change { offset, content },
        }
    }

    /// Applies the change to `image`. Missing pages begin as copies of the pages of `under`.
    fn apply(&self, image: &mut Image, under: Option<&Image>) {
        match &self.content {
            Content::Written(bytes) => image.put(self.offset, bytes, under),
            Content::Discarded(len, seed) => image.discard(self.offset, *len, *seed, under),
            Content::Arriving(_) => unreachable!("a change arrives before it is applied"),
        }
    }

    /// Applies the change with each sector kept, lost or torn independently.
    fn apply_some_sectors(&self, image: &mut Image, rng: &mut Rng) {
        self.some_sectors(rng).for_each(|part| part.apply(image, None));
    }

    /// Returns the remaining parts with each sector kept, lost or torn independently.
    fn some_sectors(&self, rng: &mut Rng) -> impl Iterator<Item = Change> {
        let mut parts = Vec::new();
        let Content::Written(bytes) = &self.content else {
            // A discard scrambles its sectors by itself.
            return vec![self.clone()].into_iter();
        };
        let kept = [0.1, 0.5, 0.9][rng.below(3) as usize];
        let mut keep = |offset: Bytes, part: &[u8]| {
            parts.push(Change { offset, content: Content::Written(PagedBytes::new(offset, part)) });
        };
        let mut offset = self.offset;
        for mut rest in bytes.slices() {
            while !rest.is_empty() {
                let next_sector = (offset + Bytes(1)).align_up(SECTOR);
                let (sector, after) = rest.split_at((next_sector - offset).as_usize().min(rest.len()));
                if rng.chance(1.0 / 8.0) {
                    let cut = rng.below(sector.len() as u64 + 1) as usize;
                    let part = if rng.chance(0.5) { 0..cut } else { cut..sector.len() };
                    keep(offset + Bytes::of_len(part.start), &sector[part]);
                } else if rng.chance(kept) {
                    keep(offset, sector);
                }
                (offset, rest) = (offset + Bytes::of_len(sector.len()), after);
            }
        }
        parts.into_iter()
    }
}

/// Effect of a power cut on a change.
enum Fate {
    Lost,
    Kept,
    BySector,
}

/// Effect of a power cut on all changes together: extremes find other bugs than mixtures.
enum Fates {
    AllLost,
    AllKept,
    /// All changes are kept except this.
    OneLost(usize),
    /// All changes are lost except this.
    OneKept(usize),
    Mixed,
}

impl Fates {
    fn choose(changes: usize, rng: &mut Rng) -> Fates {
        let one = rng.below(changes.max(1) as u64) as usize;
        match rng.below(6) {
            0 => Fates::AllLost,
            1 => Fates::AllKept,
            2 => Fates::OneLost(one),
            3 => Fates::OneKept(one),
            _ => Fates::Mixed,
        }
    }

    fn of(&self, change: usize, rng: &mut Rng) -> Fate {
        let kept = match self {
            Fates::AllLost => false,
            Fates::AllKept => true,
            Fates::OneLost(one) => change != *one,
            Fates::OneKept(one) => change == *one,
            Fates::Mixed => match rng.below(4) {
                0 => true,
                1 => false,
                _ => return Fate::BySector,
            },
        };
        if kept { Fate::Kept } else { Fate::Lost }
    }
}
