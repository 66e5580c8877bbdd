//! Random lives of mirrors in which different devices fail in turn, in overlapping ranges of few extents.
//! Requests may fail. Data read must not be older than flushed data, and does not change.

use crate::rig::{Rig, open, options, seeds, sound, sound_one};
use crate::told::Told;
use braid_base::{Bytes, DeviceId, ExtentId, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, Durability, Export, Zeroing, create};
use braid_policy::Move;
use braid_runtime::{Arena, Runtime, join_all};
use braid_sim::{Bad, Disk, DiskOptions, FaultPlan, StoredDisk, World};
use std::cell::RefCell;
use std::rc::Rc;

const SECTOR: Bytes = Bytes(512);

#[derive(Clone)]
struct Known {
    legal: Vec<u16>,
    now: Option<u16>,
    /// Counts changes: a read beside a change proves nothing.
    changes: u32,
    /// Number of writes in flight.
    writing: u32,
}

struct Life {
    rt: World,
    rng: Rng,
    arena: Arena,
    sectors: Rc<RefCell<Vec<Known>>>,
    volume: Rig,
    disks: Vec<Disk>,
    told: Told,
    what: String,
    extent_size: Bytes,
    next: Rc<RefCell<u16>>,
    broken: bool,
    spoils: bool,
    log: Rc<RefCell<Vec<String>>>,
}

fn fill(bytes: &mut [u8], value: u16) {
    bytes.chunks_mut(2).for_each(|pair| pair.copy_from_slice(&value.to_le_bytes()));
}

impl Life {
    fn note(&self, text: String) {
        self.log.borrow_mut().push(format!("{}: {text}", self.rt.now()));
    }

    async fn begin(rt: &World, seed: u64) -> Life {
        let mut rng = Rng::new(seed ^ 0x1A57_11FE);
        let count = 2 + rng.below(2) as usize;
        let disks: Vec<Disk> = (0..count)
            .map(|_| {
                let kind =
                    if rng.chance(0.5) { DiskOptions::ssd(MIB * 40) } else { DiskOptions::hdd(MIB * 40) };
                Disk::new(rt, kind)
            })
            .collect();
        let extent_size = [KIB * 16, KIB * 128, MIB * 2][rng.below(3) as usize];
        let how = CreateOptions {
            copies: 2,
            policy: "raid1".to_owned(),
            extent_size,
            block_size: if extent_size > KIB * 64 && rng.chance(0.3) { KIB * 64 } else { KIB * 4 },
            span_size: extent_size * [1, 2, 16][rng.below(3) as usize],
            size: Some(MIB * 8),
            ..options(1)
        };
        create(&sound(&disks), &how).await.expect("the disks are fit");
        let volume = open(rt.clone(), sound(&disks)).await.expect("it is new");
        let behind = rng.chance(0.3).then_some(MIB);
        let spoils = rng.chance(0.5);
        let told = Told { behind, ..Told::default() };
        volume.replace_policy(Box::new(told.clone()));
        let known = Known { legal: vec![0], now: Some(0), changes: 0, writing: 0 };
        let sectors = Rc::new(RefCell::new(vec![known; (volume.size() / SECTOR) as usize]));
        Life {
            rt: rt.clone(),
            rng,
            arena: Arena::new(MIB * 16),
            sectors,
            volume,
            disks,
            told,
            what: format!(
                "seed {seed}, {count} disks, extents {extent_size}, behind {behind:?}, spoils {spoils}"
            ),
            extent_size,
            next: Rc::new(RefCell::new(0)),
            broken: false,
            spoils,
            log: Rc::default(),
        }
    }

    /// A range, mostly in few places.
    fn range(&mut self) -> (usize, usize) {
        let all = self.sectors.borrow().len();
        let hot = [0, 3, 5][self.rng.below(3) as usize] * (self.extent_size.max(KIB * 128) / SECTOR) as usize;
        let first = match self.rng.chance(0.9) {
            true => hot + self.rng.below(96) as usize,
            false => self.rng.below(all as u64) as usize,
        };
        let count = match self.rng.below(3) {
            0 => 8 * (1 + self.rng.below(4) as usize),
            1 => 1 + self.rng.below(8) as usize,
            _ => 1 + self.rng.below(128) as usize,
        };
        let first = if self.rng.chance(0.5) { first / 8 * 8 } else { first };
        (first.min(all - 1), count.min(all - first.min(all - 1)))
    }

    fn write(&mut self) -> impl Future<Output = ()> + 'static + use<> {
        let (first, mut count) = self.range();
        let is_zero = self.rng.chance(0.15);
        if is_zero && self.rng.chance(0.5) {
            count = (count * 16).min(self.sectors.borrow().len() - first);
        }
        let value = {
            let mut next = self.next.borrow_mut();
            *next += 1;
            if is_zero { 0 } else { *next }
        };
        for known in &mut self.sectors.borrow_mut()[first..first + count] {
            let now = known.now.take();
            known.legal.extend(now);
            known.legal.push(value);
            known.changes += 1;
            known.writing += 1;
        }
        let fua = if self.rng.chance(0.2) { Durability::Fua } else { Durability::Volatile };
        let (volume, sectors, arena) = (self.volume.clone(), self.sectors.clone(), self.arena.clone());
        let (log, rt) = (self.log.clone(), self.rt.clone());
        let before: Vec<u32> =
            sectors.borrow()[first..first + count].iter().map(|known| known.changes).collect();
        async move {
            let buf = arena.alloc(SECTOR * count as u64).await;
            buf.with_bytes_mut(|bytes| fill(bytes, value));
            let (at, len) = (SECTOR * first as u64, SECTOR * count as u64);
            let done = match value {
                0 if fua == Durability::Volatile => volume.discard(at, len).await,
                0 => volume.write_zeroes(at, len, Zeroing::KeepAllocated, fua).await,
                _ => volume.write(at, &buf, fua).await,
            };
            log.borrow_mut().push(format!(
                "{}: wrote {first}+{count} as {value}, {fua:?}: {:?}",
                rt.now(),
                done.as_ref().err().map(|e| e.kind())
            ));
            let is_done = done.is_ok();
            for (known, before) in sectors.borrow_mut()[first..first + count].iter_mut().zip(before) {
                // Beside another write, the order of the two is unknown.
                let is_alone = known.changes == before && known.writing == 1;
                known.changes += 1;
                known.writing -= 1;
                if is_done && is_alone {
                    known.now = Some(value);
                    if fua == Durability::Fua {
                        known.legal = vec![value];
                    }
                }
            }
        }
    }

    fn read(&mut self) -> impl Future<Output = ()> + 'static + use<> {
        let (first, count) = self.range();
        self.read_range(first, count)
    }

    fn read_range(&self, first: usize, count: usize) -> impl Future<Output = ()> + 'static + use<> {
        let (volume, sectors, arena) = (self.volume.clone(), self.sectors.clone(), self.arena.clone());
        let (what, log, rt) = (self.what.clone(), self.log.clone(), self.rt.clone());
        async move {
            let before: Vec<u32> =
                sectors.borrow()[first..first + count].iter().map(|known| known.changes).collect();
            let buf = arena.alloc(SECTOR * count as u64).await;
            let read = volume.read(SECTOR * first as u64, &buf).await;
            log.borrow_mut().push(format!(
                "{}: read {first}+{count}: {:?}",
                rt.now(),
                read.as_ref().err().map(|e| e.kind())
            ));
            if read.is_err() {
                return;
            }
            let fault = buf.with_bytes(|bytes| {
                for (i, bytes) in bytes.chunks(SECTOR.0 as usize).enumerate() {
                    let known = &mut sectors.borrow_mut()[first + i];
                    let value = u16::from_le_bytes([bytes[0], bytes[1]]);
                    if known.changes != before[i] || known.writing > 0 {
                        continue;
                    }
                    if !known.legal.contains(&value) && known.now != Some(value) {
                        return Some(format!(
                            "sector {} is {value}, legal {:?}, now {:?}",
                            first + i,
                            known.legal,
                            known.now
                        ));
                    }
                    if known.now.is_some_and(|now| now != value) {
                        return Some(format!(
                            "sector {} changed from {:?} to {value}; legal {:?}",
                            first + i,
                            known.now,
                            known.legal
                        ));
                    }
                    known.now = Some(value);
                }
                None
            });
            if let Some(fault) = fault {
                let states: Vec<_> = volume.status().devices.iter().map(|d| d.state).collect();
                let place = volume.explain(SECTOR * first as u64);
                let (log, fault) = (
                    log.borrow(),
                    format!(
                        "{fault}; {states:?}, behind {}, {:?}",
                        volume.status().behind,
                        place.map(|p| (p.home, p.second))
                    ),
                );
                let from = log.len().saturating_sub(60);
                panic!("{what}: {fault}\n{}", log[from..].join("\n"));
            }
        }
    }

    async fn flush(&mut self) {
        let before: Vec<(Option<u16>, u32)> =
            self.sectors.borrow().iter().map(|known| (known.now, known.changes)).collect();
        let done = self.volume.flush().await;
        self.note(format!("flush: {:?}", done.as_ref().err().map(|e| e.to_string())));
        if done.is_err() {
            self.broken = true;
            return;
        }
        for (known, (now, changes)) in self.sectors.borrow_mut().iter_mut().zip(before) {
            if let (Some(now), true) = (now, known.changes == changes) {
                known.legal = vec![now];
            }
        }
    }

    fn faults(&mut self) {
        if self.spoils && self.rng.chance(0.4) {
            let (first, count) = self.range();
            let at = (SECTOR * first as u64).align_down(KIB * 4);
            let Ok(place) = self.volume.explain(at) else { return };
            let second = place.second.map(|(device, at, _)| (device, at));
            for (device, start) in [place.home, second].into_iter().flatten() {
                if device.index() == 1 && self.disks.len() > 1 {
                    let bad = if self.rng.chance(0.5) { Bad::ForEver } else { Bad::UntilWritten };
                    self.disks[1].spoil(start..start + KIB * 4 * (1 + count as u64 / 32), bad);
                    self.note(format!("spoilt {first} on d1, {bad:?}"));
                }
            }
        }
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        let device = self.rng.below(self.disks.len() as u64) as usize;
        let (first, count) = self.range();
        let place = self.volume.explain((SECTOR * first as u64).align_down(SECTOR));
        let Ok(place) = place else { return };
        let second = place.second.map(|(device, at, _)| (device, at));
        let found = [place.home, second].into_iter().flatten().collect::<Vec<_>>();
        let stall = Nanos::from_millis(1)..Nanos::from_millis(2 + self.rng.below(400));
        let slow = FaultPlan { stalls: 0.6, stall, ..FaultPlan::default() };
        let how = self.rng.below(10);
        self.note(format!("faults {how} on {device}"));
        match how {
            0..=4 if !found.is_empty() => {
                let (on, at) = found[self.rng.below(found.len() as u64) as usize];
                let range = at..at + SECTOR * count as u64;
                self.note(format!("bad writes on {on} at {first}+{count}"));
                if on.index() < self.disks.len() {
                    self.disks[on.index()].faults().set(FaultPlan { bad_writes: Some(range), ..slow });
                }
            }
            5 => self.disks[device].faults().set(FaultPlan { writes: 0.3, ..slow }),
            6 => self.disks[device].faults().set(FaultPlan { hangs: true, ..FaultPlan::default() }),
            7 => self.disks[device].faults().set(FaultPlan { reads: 0.4, ..slow }),
            8 => {
                let plan = FaultPlan { flushes: 0.5, ..slow };
                self.disks[device].faults().set(plan);
            }
            _ => self.disks[device].faults().set(slow),
        }
    }

    async fn work(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.broken {
                return;
            }
            match self.rng.below(20) {
                0..=2 => self.faults(),
                3 => {
                    self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
                    let rest = self.rng.below(9_000_000_000);
                    self.rt.sleep(Nanos(rest)).await;
                }
                4 => {
                    let rest = self.rng.below(7_500_000_000);
                    self.rt.sleep(Nanos(rest)).await;
                }
                5 if self.disks.len() > 2 => {
                    let sector = self.range().0 as u64;
                    let extent = ExtentId((SECTOR * sector / self.extent_size) as u32);
                    let target = DeviceId(self.rng.below(3) as u16);
                    self.told.moves.borrow_mut().push(Move::Migrate { extent, target });
                }
                6 if self.rng.chance(0.3) => {
                    let device = self.rng.below(self.disks.len() as u64) as usize;
                    let done = self.volume.fail_device(DeviceId(device as u16)).await;
                    self.note(format!("fail {device}: {:?}", done.as_ref().err().map(|e| e.kind())));
                }
                7 if self.rng.chance(0.5) => {
                    for device in self.volume.outdated_devices() {
                        self.disks[device.index()].faults().set(FaultPlan::default());
                        self.rt.sleep(Nanos::from_millis(100)).await;
                        let _ = self.volume.release_device(device).await;
                        let done =
                            self.volume.return_device(sound_one(&self.disks[device.index()]), "it").await;
                        self.note(format!("return {device}: {:?}", done.as_ref().err().map(|e| e.kind())));
                    }
                }
                8..=9 => self.flush().await,
                10..=13 => {
                    let count = 1 + self.rng.below(3);
                    let all: Vec<_> = (0..count).map(|_| self.read()).collect();
                    join_all(all.into_iter()).await;
                }
                14 => {
                    // Concurrent requests.
                    let rest = Nanos(self.rng.below(30_000_000));
                    let (one, two) = (self.write(), self.write());
                    let (three, rt) = (self.read(), self.rt.clone());
                    let two = async move {
                        rt.sleep(rest).await;
                        two.await;
                    };
                    let all: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
                        vec![Box::pin(one), Box::pin(two), Box::pin(three)];
                    join_all(all.into_iter()).await;
                }
                _ => self.write().await,
            }
        }
    }

    /// Stops the volume, beside guests that read; true if it is shut down.
    async fn close(&mut self) -> bool {
        if self.rng.chance(0.6) {
            self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        }
        for _ in 0..self.rng.below(4) {
            let read = self.read();
            self.rt.spawn(read);
        }
        let rest = Nanos(self.rng.below(20_000_000));
        self.rt.sleep(rest).await;
        let closed = self.volume.close().await;
        self.note(format!("close: {:?}", closed.as_ref().err().map(|e| e.to_string())));
        if closed.is_err() {
            return false;
        }
        let stored: Vec<StoredDisk> = self.disks.iter().map(Disk::store).collect();
        let sectors = self.sectors.borrow().clone();
        self.sectors = Rc::new(RefCell::new(sectors));
        for known in self.sectors.borrow_mut().iter_mut() {
            if let Some(now) = known.now {
                known.legal = vec![now];
            }
        }
        self.serve(stored).await;
        true
    }

    async fn crash(&mut self) {
        for _ in 0..self.rng.below(3) {
            let write = self.write();
            self.rt.spawn(write);
        }
        let rest = Nanos(self.rng.below(20_000_000));
        self.rt.sleep(rest).await;
        let mut stored: Vec<StoredDisk> = self.disks.iter().map(Disk::store).collect();
        let sectors = self.sectors.borrow().clone();
        self.sectors = Rc::new(RefCell::new(sectors));
        for known in self.sectors.borrow_mut().iter_mut() {
            let now = known.now.take();
            known.legal.extend(now);
            (known.changes, known.writing) = (0, 0);
        }
        let has_power = self.rng.chance(0.4);
        for disk in &mut stored {
            match has_power {
                true => disk.kill(),
                false => disk.power_cut(&mut self.rng),
            }
        }
        // The host knows the failed devices, and does not serve these devices alone.
        let outdated = self.volume.outdated_devices();
        let without = self.rng.chance(0.5).then(|| self.rng.below(stored.len() as u64) as usize);
        let without = without.filter(|gone| outdated.iter().all(|device| device.index() == *gone));
        self.note(format!("crash, power {has_power}, without {without:?}"));
        self.broken = false;
        if let Some(gone) = without {
            let left: Vec<Disk> =
                (0..stored.len()).filter(|i| *i != gone).map(|i| stored[i].attach(&self.rt)).collect();
            if let Ok(volume) = open(self.rt.clone(), sound(&left)).await {
                // Only inspected: the oracle continues with all devices.
                let (kept, disks) = (self.sectors.borrow().clone(), std::mem::replace(&mut self.disks, left));
                self.volume = volume;
                self.note("without it".to_owned());
                let all = self.sectors.borrow().len();
                for first in (0..all).step_by(128) {
                    self.read_range(first, 128).await;
                }
                self.sectors = Rc::new(RefCell::new(kept));
                self.disks = disks;
                self.note("with all again".to_owned());
            }
        }
        self.serve(stored).await;
    }

    async fn serve(&mut self, stored: Vec<StoredDisk>) {
        self.disks = stored.iter().map(|disk| disk.attach(&self.rt)).collect();
        let opened = open(self.rt.clone(), sound(&self.disks)).await;
        self.volume =
            opened.unwrap_or_else(|error| panic!("{}: {error}\n{}", self.what, self.log.borrow().join("\n")));
        self.told = Told { behind: self.told.behind, ..Told::default() };
        self.volume.replace_policy(Box::new(self.told.clone()));
        if self.rng.chance(0.5) {
            let stall = Nanos::from_millis(1)..Nanos::from_millis(2 + self.rng.below(1000));
            let plan = FaultPlan { stalls: 0.7, stall, ..FaultPlan::default() };
            self.disks.iter().for_each(|disk| disk.faults().set(plan.clone()));
        }
    }

    async fn read_all(&mut self) {
        self.disks.iter().for_each(|disk| disk.faults().set(FaultPlan::default()));
        self.rt.sleep(Nanos::from_secs(100)).await;
        let all = self.sectors.borrow().len();
        for first in (0..all).step_by(64) {
            self.read_range(first, 64).await;
        }
    }
}

fn live(seed: u64) {
    let world = World::new(seed);
    let rt = world.clone();
    world.block_on(async move {
        let mut life = Life::begin(&rt, seed).await;
        for _ in 0..2 + life.rng.below(4) {
            let steps = 10 + life.rng.below(60);
            life.work(steps).await;
            if life.rng.chance(0.3) && !life.broken {
                life.read_all().await;
            }
            if life.broken || life.rng.chance(0.65) || !life.close().await {
                life.crash().await;
            }
        }
        life.read_all().await;
    });
    world.halt();
}

#[test]
fn mirror_survives_alternating_device_failures() {
    let seeds: u64 = seeds("BRAID_CRASH_SEEDS", 16);
    let first: u64 = std::env::var("BRAID_FIRST_SEED").map_or(0, |first| first.parse().expect("a number"));
    let mut failed = Vec::new();
    for seed in first..first + seeds {
        if std::panic::catch_unwind(|| live(seed)).is_err() {
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
