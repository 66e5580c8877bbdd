//! `working-set` compared with algorithms 1 and 2 of the paper: placement of new data, moves, start and end.

use crate::volume::{Volume, complete_write, devices, figure};
use braid_base::{BlockId, DeviceClass, DeviceId, ExtentId, KIB, Nanos, Rng};
use braid_policy::{Direction, Move, Occasion, Outcome, Piece, Plan, Policy, parse};
use std::collections::HashMap;

const SSD: DeviceClass = DeviceClass::Ssd;
const HDD: DeviceClass = DeviceClass::Hdd;
/// A window longer than any test, and no water mark: only hot extents move.
const USUAL: &str = "working-set,water-mark=0%,window=1h,stripe=even";
/// The usual settings with a water mark.
pub fn with_mark(mark: impl std::fmt::Display) -> String {
    USUAL.replace("water-mark=0%", &format!("water-mark={mark}"))
}

/// A volume, its policy, and the expected counts of requests.
pub struct Rig {
    volume: Volume,
    policy: Box<dyn Policy>,
    reads: HashMap<u32, u32>,
    writes: HashMap<u32, u32>,
    /// Slots freed by moves, and the times at which they become free.
    freeing: Vec<(Nanos, DeviceId)>,
    /// Time until a freed slot becomes free.
    lag: Nanos,
}

impl Rig {
    /// Devices with the given classes and slots, and all extents allocated by the policy.
    pub fn new(text: &str, classes: &[(DeviceClass, u32)], extents: u32) -> Rig {
        let devices = devices(classes);
        let policy = parse(text, &devices).expect(text);
        let volume = Volume::new(&devices, extents as usize);
        let (reads, writes) = Default::default();
        let mut rig = Rig { volume, policy, reads, writes, freeing: Vec::new(), lag: Nanos::ZERO };
        for extent in 0..extents {
            rig.volume.allocate(rig.policy.as_mut(), extent);
        }
        rig
    }

    fn access(&mut self, extent: u32, direction: Direction, times: u32) {
        self.volume.now += Nanos::from_millis(1);
        for _ in 0..times {
            self.volume.access(self.policy.as_mut(), extent, direction);
        }
        let counts = if direction == Direction::Read { &mut self.reads } else { &mut self.writes };
        *counts.entry(extent).or_default() += times;
    }

    pub fn read(&mut self, extents: impl IntoIterator<Item = u32>, times: u32) {
        extents.into_iter().for_each(|extent| self.access(extent, Direction::Read, times));
    }

    fn write(&mut self, extents: impl IntoIterator<Item = u32>, times: u32) {
        extents.into_iter().for_each(|extent| self.access(extent, Direction::Write, times));
    }

    /// Lets time pass without guest requests; carries out and returns every move, after a call of `each`.
    fn idle_for(&mut self, time: Nanos, mut each: impl FnMut(&Rig, u32, DeviceId)) -> Vec<(u32, DeviceId)> {
        let (until, mut all) = (self.volume.now + time, Vec::new());
        while self.volume.now < until {
            for job in self.moves() {
                let Move::Migrate { extent, target } = job else { panic!("{job:?}") };
                if self.volume.devices[target.index()].free == 0 {
                    self.policy.done(&job, Outcome::Stopped);
                    continue;
                }
                each(self, extent.0, target);
                self.carry_out(extent.0, target);
                self.policy.done(&job, Outcome::Finished);
                all.push((extent.0, target));
            }
        }
        all
    }

    pub fn reorganize(&mut self) -> Vec<(u32, DeviceId)> {
        self.idle_for(Nanos::from_secs(20), |_, _, _| {})
    }

    fn moves(&mut self) -> Vec<Move> {
        let mut plan = Plan::default();
        let next = self.policy.plan(&self.volume.view(), &mut plan);
        assert!(plan.moves.is_empty() || plan.yields, "it moves in idle time only");
        self.volume.now = next.max(self.volume.now + Nanos::from_millis(1));
        let now = self.volume.now;
        let (free, later): (Vec<_>, Vec<_>) = self.freeing.drain(..).partition(|(at, _)| *at <= now);
        self.freeing = later;
        free.into_iter().for_each(|(_, device)| self.volume.devices[device.index()].free += 1);
        plan.moves
    }

    fn carry_out(&mut self, extent: u32, target: DeviceId) {
        let source = self.volume.home(extent).expect("only what has a home moves");
        assert_ne!(source, target);
        self.volume.settle(extent, target);
        if self.lag > Nanos::ZERO {
            self.volume.devices[source.index()].free -= 1;
            self.freeing.push((self.volume.now + self.lag, source));
        }
    }

    fn class(&self, extent: u32) -> DeviceClass {
        self.volume.devices[self.volume.home(extent).expect("allocated").index()].class
    }

    fn on(&self, class: DeviceClass) -> Vec<u32> {
        (0..self.extents()).filter(|&extent| self.class(extent) == class).collect()
    }

    fn extents(&self) -> u32 {
        self.volume.view().homes.extents()
    }

    /// The potential of the head of `reorganize.rs`, by the requests of this rig.
    fn potential(&self, mark: u32) -> u32 {
        let is_hot = |counts: &HashMap<u32, u32>, extent| counts.get(&extent).is_some_and(|&count| count > 3);
        let misplaced = |&extent: &u32| match (is_hot(&self.reads, extent), is_hot(&self.writes, extent)) {
            (_, true) => self.class(extent) == SSD,
            (true, false) => self.class(extent) == HDD,
            (false, false) => false,
        };
        let misplaced = (0..self.extents()).filter(misplaced).count() as u32;
        let ssds = self.volume.devices.iter().filter(|device| device.class == SSD);
        2 * misplaced + ssds.map(|device| mark.saturating_sub(device.free)).sum::<u32>()
    }
}

/// The disk of a volume with an SSD and a disk.
const HDD_OF_TWO: DeviceId = DeviceId(1);
const TWO_AND_TWO: [(DeviceClass, u32); 4] = [(SSD, 100), (SSD, 100), (HDD, 400), (HDD, 400)];

#[test]
fn new_extents_are_striped_in_any_write_order() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 40);
    let homes: Vec<u16> = (0..40).map(|extent| rig.volume.home(extent).unwrap().0).collect();
    assert_eq!(homes, (0..40).map(|extent| extent % 4).collect::<Vec<u16>>());
    let mut backwards = Rig::new(USUAL, &TWO_AND_TWO, 0);
    backwards.volume = Volume::new(&devices(&TWO_AND_TWO), 40);
    for extent in (0..40).rev() {
        let device = backwards.volume.allocate(backwards.policy.as_mut(), extent);
        assert_eq!(device, DeviceId(extent as u16 % 4));
    }
    // A full device is skipped.
    rig.volume.devices[1].free = 0;
    let next = Occasion::New { extent: ExtentId(5), write: None };
    assert_eq!(rig.policy.place(&next, &rig.volume.view()).new_home(), Some(DeviceId(2)));
}

/// A closed loop of one stream: each device works as long as its share of the bytes takes. New data arrives
/// with each look, or only with every fourth: guests with long requests wait for the slowest device before
/// the next requests.
#[test]
fn new_data_follows_the_bandwidth_of_the_devices() {
    let speed = [500.0, 250.0, 100.0, 150.0];
    for looks in [1, 4] {
        let large = TWO_AND_TWO.map(|(class, _)| (class, 90_000));
        let mut rig = Rig::new("working-set,window=1h,water-mark=0%", &large, 0);
        rig.volume = Volume::new(&devices(&large), 200_000);
        let (mut extent, mut rng) = (0, Rng::new(3));
        for _ in 0..1_000 / looks {
            // Time that the busiest device takes for its part of the extents.
            let mut work = [0.0; 4];
            for _ in 0..40 * looks {
                let device = rig.volume.allocate(rig.policy.as_mut(), extent);
                extent += 1;
                complete_write(rig.policy.as_mut(), device, 1, KIB * 128, 1.0);
                work[device.index()] += 1.0 / speed[device.index()];
            }
            let longest = work.iter().fold(0.0, |a: f64, &b| a.max(b));
            for _ in 0..looks {
                for (device, work) in rig.volume.devices.iter_mut().zip(work) {
                    device.in_flight = u32::from(rng.chance(work / longest));
                }
                let (before, _) = (rig.volume.now, rig.moves());
                rig.volume.now = before + Nanos::from_millis(20);
            }
        }
        for (device, speed) in speed.into_iter().enumerate() {
            let share = figure(rig.policy.as_ref(), DeviceId(device as u16), "stripe_share");
            assert!((share - speed / 1000.0).abs() < 0.03, "device {device} has {share} in {looks}");
        }
    }
}

#[test]
fn ssd_receives_read_hot_and_disk_write_hot_extents() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    rig.read(0..20, 4);
    rig.read(20..40, 3);
    rig.write(40..60, 4);
    rig.write(60..80, 3);
    let before = rig.on(SSD);
    rig.reorganize();
    assert!((0..20).all(|extent| rig.class(extent) == SSD));
    assert!((40..60).all(|extent| rig.class(extent) == HDD));
    let lukewarm =
        |extents: &[u32]| extents.iter().copied().filter(|e| !(40..60).contains(e) && *e >= 20).collect();
    let (before, after): (Vec<u32>, Vec<u32>) = (lukewarm(&before), lukewarm(&rig.on(SSD)));
    assert_eq!(before, after, "what is lukewarm or cold stays");
}

#[test]
fn extent_hot_in_both_tables_follows_both_setting() {
    for (both, class) in [("hdd", HDD), ("ssd", SSD)] {
        let mut rig = Rig::new(&format!("{USUAL},both={both}"), &TWO_AND_TWO, 8);
        rig.read(0..8, 4);
        rig.write(0..8, 4);
        let moved = rig.reorganize();
        assert_eq!(rig.on(class).len(), 8);
        assert_eq!(moved.len(), 4, "none moves there and back");
    }
}

#[test]
fn cold_data_leaves_an_ssd_only_below_the_water_mark_and_only_to_the_mark() {
    for (mark, stays) in [(0, 50), (50, 50), (60, 40), (70, 30)] {
        let mut rig = Rig::new(&with_mark(format!("{mark}%")), &TWO_AND_TWO, 200);
        rig.lag = Nanos::from_secs(12);
        // Lukewarm extents stay.
        rig.read((0..80).filter(|extent| extent % 4 < 2), 2);
        rig.reorganize();
        rig.idle_for(Nanos::from_secs(40), |_, _, _| panic!("it was over"));
        for ssd in [0, 1] {
            assert_eq!(rig.volume.devices[ssd].slots - rig.volume.devices[ssd].free, stays, "mark of {mark}");
        }
        assert!((0..80).filter(|extent| extent % 4 < 2).all(|extent| rig.class(extent) == SSD));
    }
}

/// The search continues from plan to plan, around the whole volume.
#[test]
fn cold_data_is_found_anywhere_in_large_volume() {
    let mut rig = Rig::new(&with_mark("10%"), &[(SSD, 300), (HDD, 60_000)], 50_000);
    assert_eq!(rig.volume.devices[0].free, 0);
    let cold = 49_000..49_040;
    rig.read((0..600).filter(|extent| extent % 2 == 0), 2);
    for extent in cold.clone() {
        rig.volume.settle(2 * (extent - 49_000), HDD_OF_TWO);
        rig.volume.settle(extent, DeviceId(0));
    }
    let moved: Vec<u32> = rig.reorganize().into_iter().map(|(extent, _)| extent).collect();
    assert_eq!(moved, cold.take(30).collect::<Vec<_>>());
}

#[test]
fn hottest_extents_move_first_if_ssd_room_is_short() {
    let mut rig = Rig::new(USUAL, &[(SSD, 20), (HDD, 400)], 30);
    // Fifteen extents are on the SSD, with room for five more.
    rig.read((0..30).filter(|extent| extent % 2 == 1), 5);
    rig.read([3, 7, 11, 15, 19], 1);
    let mut moved: Vec<u32> = rig.reorganize().into_iter().map(|(extent, _)| extent).collect();
    moved.sort_unstable();
    assert_eq!(moved, [3, 7, 11, 15, 19]);
}

/// On a full SSD, hot extents wait for slots of cold extents, free only from the next checkpoint on.
#[test]
fn hot_extents_wait_for_slots_of_cold_extents() {
    let mut rig = Rig::new(&with_mark("20%"), &[(SSD, 20), (HDD, 400)], 40);
    rig.lag = Nanos::from_secs(8);
    assert_eq!(rig.volume.devices[0].free, 0);
    let hot: Vec<u32> = (0..40).filter(|&extent| rig.class(extent) == HDD).take(12).collect();
    rig.read(hot.iter().copied(), 4);
    rig.idle_for(Nanos::from_secs(300), |_, _, _| {});
    assert!(hot.iter().all(|&extent| rig.class(extent) == SSD));
    assert_eq!(rig.volume.devices[0].free, 4);
}

#[test]
fn every_move_lowers_potential_until_reorganization_ends() {
    let mut all = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let slots = rng.between(20, 120) as u32;
        let mark = rng.below(u64::from(slots)) as u32;
        let text = with_mark((KIB * 128 * u64::from(mark)).0);
        let count = rng.between(1, 4) as usize;
        let classes: Vec<_> =
            (0..2 * count).map(|i| if i % 2 == 0 { (SSD, slots) } else { (HDD, 500) }).collect();
        let mut rig = Rig::new(&text, &classes, rng.between(10, 500) as u32);
        let requests = rng.below(2_000);
        // Some extents are requested more often.
        for _ in 0..requests {
            let extent = (rng.below(u64::from(rig.extents())) * rng.below(100) / 100) as u32;
            rig.access(extent, if rng.chance(0.6) { Direction::Read } else { Direction::Write }, 1);
        }
        let mut lowest = rig.potential(mark);
        let moved = rig.idle_for(Nanos::from_secs(5), |rig, extent, target| {
            let before = rig.potential(mark);
            let mut after = Rig::clone_homes(rig);
            after.carry_out(extent, target);
            let after = after.potential(mark);
            assert!(after < before, "seed {seed}: extent {extent} to {target}: {before} → {after}");
            lowest = after;
        });
        assert_eq!(rig.potential(mark), lowest);
        assert!(rig.idle_for(Nanos::from_secs(5), |_, _, _| {}).is_empty(), "seed {seed}: it was over");
        all += moved.len();
    }
    assert!(all > 5_000, "{all} moves");
}

impl Rig {
    /// A copy of the volume, with another policy.
    fn clone_homes(rig: &Rig) -> Rig {
        let all = rig
            .volume
            .devices
            .iter()
            .map(|device| braid_policy::DeviceView { free: device.slots, ..*device });
        let mut volume = Volume::new(&all.collect::<Vec<_>>(), rig.extents() as usize);
        (0..rig.extents())
            .for_each(|extent| volume.settle(extent, rig.volume.home(extent).expect("allocated")));
        let policy = parse("stripe", &rig.volume.devices).expect("no settings");
        let (reads, writes) = (rig.reads.clone(), rig.writes.clone());
        Rig { volume, policy, reads, writes, freeing: Vec::new(), lag: Nanos::ZERO }
    }
}

#[test]
fn reorganization_begins_within_one_second_of_idleness() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    let mut busy_until = Nanos::ZERO;
    for _ in 0..300 {
        rig.read(0..20, 1);
        let (before, moves) = (rig.volume.now, rig.moves());
        assert!(moves.is_empty(), "guests are at work");
        (busy_until, rig.volume.now) = (before, before + Nanos::from_millis(20));
    }
    // A long request: the system is not idle.
    rig.volume.devices[3].in_flight = 1;
    assert!(rig.idle_for(Nanos::from_secs(3), |_, _, _| {}).is_empty());
    rig.volume.devices[3].in_flight = 0;
    let since = rig.volume.now;
    while rig.moves().is_empty() {}
    assert!(rig.volume.now <= since + Nanos::from_secs(1) && since > busy_until);
}

#[test]
fn unchanged_state_is_not_reorganized_again() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    rig.read(0..20, 8);
    assert!(!rig.reorganize().is_empty());
    // An extent moved by hand stays, because no request has come since.
    let away = (0..20).find(|&extent| rig.class(extent) == SSD).expect("all are there");
    rig.volume.settle(away, DeviceId(2));
    assert!(rig.idle_for(Nanos::from_secs(100), |_, _, _| {}).is_empty());
    // One more similar request changes nothing either; a new hot set does.
    rig.read([1], 1);
    assert!(rig.reorganize().is_empty());
    rig.read(40..60, 8);
    assert!(rig.reorganize().iter().any(|&(extent, _)| extent == away));
}

#[test]
fn returning_guest_interrupts_reorganization_until_idle() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    rig.read(0..40, 4);
    let first = loop {
        let moves = rig.moves();
        if !moves.is_empty() {
            break moves;
        }
    };
    let Move::Migrate { extent, target } = first[0] else { panic!("{first:?}") };
    rig.carry_out(extent.0, target);
    rig.policy.done(&first[0], Outcome::Finished);
    // The guest comes back, and the engine cancels the other moves.
    rig.read([70], 1);
    first[1..].iter().for_each(|job| rig.policy.done(job, Outcome::Stopped));
    assert!(rig.moves().is_empty(), "it is not idle");
    assert_eq!(rig.reorganize().len(), first.len() - 1);
}

/// Every move fails, as on a failing device.
#[test]
fn failed_moves_are_retried_a_bounded_number_of_times() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    rig.read(0..40, 4);
    let mut tried = 0;
    for _ in 0..1_000 {
        for job in rig.moves() {
            tried += 1;
            rig.policy.done(&job, Outcome::Failed);
        }
    }
    assert!((20..=80).contains(&tried), "{tried}");
}

#[test]
fn as_many_reorganizations_as_allowed() {
    for (allowed, moves) in [(0, false), (1, true)] {
        let mut rig = Rig::new(&format!("{USUAL},reorganizations={allowed}"), &TWO_AND_TWO, 80);
        rig.read(0..20, 4);
        assert_eq!(!rig.reorganize().is_empty(), moves);
        rig.read(40..60, 4);
        assert!(rig.reorganize().is_empty());
    }
}

#[test]
fn learned_counts_survive_restart_and_damaged_state_is_harmless() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    rig.read(0..20, 4);
    rig.write(40..60, 5);
    let state = rig.policy.save(&rig.volume.view());
    let restarted = |state: &[u8]| {
        let mut policy = parse(USUAL, &rig.volume.devices).expect("as before");
        policy.restore(state, &rig.volume.view());
        policy
    };
    let policy = restarted(&state);
    let explain = |policy: &dyn Policy, extent| policy.explain(ExtentId(extent), &rig.volume.view());
    assert!(explain(policy.as_ref(), 2).contains("read 4 and written 0"));
    assert!(explain(policy.as_ref(), 41).contains("read 0 and written 5"));
    assert_eq!(policy.save(&rig.volume.view()), state, "saved again, it is the same");
    // Arbitrary bytes, and any prefix of a valid state.
    let mut rng = Rng::new(1);
    for length in 0..state.len() {
        restarted(&state[..length]);
        let mut bad = state.clone();
        (0..5).for_each(|_| bad[rng.below(state.len() as u64) as usize] = rng.below(256) as u8);
        restarted(&bad);
        rng.fill(&mut bad);
        restarted(&bad);
    }
}

#[test]
fn saved_state_is_bounded_and_keeps_latest_extents() {
    let slots = 200_000;
    let devices = devices(&[(SSD, slots), (HDD, slots)]);
    let mut policy = parse("working-set,window=1h,rows=150K", &devices).expect("it is right");
    let volume = Volume::new(&devices, slots as usize);
    for extent in 0..slots {
        for _ in 0..3 {
            volume.access(policy.as_mut(), extent, Direction::Read);
            volume.access(policy.as_mut(), extent, Direction::Write);
        }
    }
    let state = policy.save(&volume.view());
    assert!(
        state.len() <= braid_policy::LONGEST_STATE.as_usize() && state.len() > 250_000,
        "{}",
        state.len()
    );
    let mut again = parse("working-set,window=1h", &devices).expect("it is right");
    again.restore(&state, &volume.view());
    let last = again.explain(ExtentId(slots - 1), &volume.view());
    assert!(last.contains("read 3 and written 3"), "{last}");
    assert!(policy.memory() < 2 * 150_000 * 180, "{}", policy.memory());
}

#[test]
fn fruitless_planning_is_limited_to_ten_per_second() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 40);
    rig.read(0..8, 5);
    assert!(!rig.reorganize().is_empty());
    let (until, mut looks) = (rig.volume.now + Nanos::from_secs(60), 0);
    while rig.volume.now < until {
        assert!(rig.moves().is_empty());
        looks += 1;
    }
    assert!(looks <= 600, "{looks}");
}

#[test]
fn reads_of_different_blocks_make_an_extent_hot_only_if_extents_are_counted() {
    for (text, class) in [(USUAL.to_owned(), HDD), (format!("{USUAL},count=extent"), SSD)] {
        let mut rig = Rig::new(&text, &TWO_AND_TWO, 40);
        assert_eq!(rig.class(2), HDD);
        rig.volume.now += Nanos::from_millis(1);
        for block in 0..4 {
            let piece = Piece {
                extent: ExtentId(2),
                range: KIB * (4 * block)..KIB * (4 * block + 4),
                first_block: BlockId(64 + block),
                blocks: 1,
                request: braid_policy::ByteRange::new(KIB * (4 * (64 + block)), KIB * 4),
                whole: None,
            };
            rig.policy.place(&Occasion::ReadMiss(piece), &rig.volume.view());
        }
        rig.reorganize();
        assert_eq!(rig.class(2), class, "{text}");
    }
}

#[test]
fn requests_at_the_edges_of_a_volume_are_taken() {
    let mut rig = Rig::new(USUAL, &TWO_AND_TWO, 80);
    rig.volume.access_blocks(rig.policy.as_mut(), 79, 32, Direction::Read);
    rig.volume.access_blocks(rig.policy.as_mut(), 79, 0, Direction::Read);
    let mut none = Rig::new("working-set", &TWO_AND_TWO, 0);
    none.volume.now = Nanos::from_secs(5);
    assert!(none.moves().is_empty());
}
