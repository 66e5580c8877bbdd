use super::*;
use braid_base::Rng;
use std::collections::BTreeMap;

const DEVICES: u16 = 3;

/// Model of [`Extras`], as simple as possible.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<BlockId, (DeviceId, Extra)>,
    /// Taken block slots without a block.
    taken: Vec<(DeviceId, SlotNumber, u16)>,
    divided: BTreeMap<u32, DeviceId>,
}

impl Model {
    fn used_in(&self, slot: SlotNumber) -> usize {
        let held = self.blocks.values().filter(|(_, extra)| extra.slot == slot).count();
        held + self.taken.iter().filter(|(_, s, _)| *s == slot).count()
    }

    fn check(&self, extras: &Extras) {
        let all: BTreeMap<BlockId, Extra> = extras.all().collect();
        assert_eq!(all, self.blocks.iter().map(|(b, (_, e))| (*b, *e)).collect());
        assert_eq!(extras.len(), self.blocks.len());
        assert_eq!(extras.dirty(), self.blocks.values().filter(|(_, e)| e.dirty).count());
        for device in (0..DEVICES).map(DeviceId) {
            let divided = self.divided.values().filter(|d| **d == device).count();
            assert_eq!(extras.divided(device) as usize, divided);
            let held = self.blocks.values().filter(|(d, _)| *d == device).count();
            let taken = self.taken.iter().filter(|(d, ..)| *d == device).count();
            let all = divided * extras.places as usize;
            assert_eq!(extras.spare(device), (all - held - taken, all - held));
            let dirty = self.blocks.values().filter(|(d, e)| *d == device && e.dirty).count();
            assert_eq!(extras.dirty_on(device), dirty);
        }
        for (&block, (_, extra)) in &self.blocks {
            assert_eq!(extras.get(block), Some(*extra));
            assert_eq!(extras.at(extra.slot, extra.place), Some((block, extra.dirty)));
        }
        let (mut from, mut clean) = (0, Vec::new());
        while let Some((next, slot, blocks)) = extras.next_clean_slot(from) {
            assert!(blocks.iter().all(|b| self.blocks[b].1.slot == slot && !self.blocks[b].1.dirty));
            clean.push(slot.0);
            from = next;
        }
        clean.sort_unstable();
        let has_dirty = |slot: u32| self.blocks.values().any(|(_, e)| e.slot.0 == slot && e.dirty);
        let expected = self.divided.keys().filter(|&&s| !has_dirty(s) && self.used_in(SlotNumber(s)) > 0);
        assert_eq!(clean, expected.copied().collect::<Vec<_>>());
    }
}

fn step(extras: &mut Extras, model: &mut Model, rng: &mut Rng, places: u64) {
    let device = DeviceId(rng.below(u64::from(DEVICES)) as u16);
    let block = BlockId(rng.below(400) << rng.below(30));
    match rng.below(8) {
        0 => {
            let slot = SlotNumber(1 + u32::from(device.0) * 1000 + rng.below(40) as u32);
            model.divided.entry(slot.0).or_insert_with(|| {
                assert!(extras.divide(device, slot));
                device
            });
        }
        1..=4 => {
            let wanted = 1 + rng.below(5) as usize;
            let taken = extras.take(device, wanted);
            let free = |slot: u32| model.used_in(SlotNumber(slot)) < places as usize;
            let any_free = model.divided.iter().any(|(&slot, d)| *d == device && free(slot));
            assert_eq!(taken.is_some(), any_free);
            let Some((slot, taken)) = taken else { return };
            assert!((1..=wanted).contains(&taken.len()) && u64::from(taken.end) <= places);
            assert_eq!(model.divided.get(&slot.0), Some(&device));
            for place in taken {
                let is_used = |(_, e): &(DeviceId, Extra)| (e.slot, e.place) == (slot, place);
                assert!(!model.blocks.values().any(is_used) && !model.taken.contains(&(device, slot, place)));
                model.taken.push((device, slot, place));
            }
        }
        5 if model.blocks.contains_key(&block) || rng.chance(0.4) => {
            let Some((_, extra)) = model.blocks.get_mut(&block) else { return };
            extra.dirty = rng.chance(0.5);
            extras.set(block, Some(*extra));
        }
        5 | 6 => {
            if model.blocks.contains_key(&block) {
                let (device, extra) = model.blocks.remove(&block).unwrap();
                extras.set(block, None);
                model.taken.push((device, extra.slot, extra.place));
            } else if let Some((device, slot, place)) = model.taken.pop() {
                let extra = Extra { slot, place, dirty: rng.chance(0.5) };
                extras.set(block, Some(extra));
                model.blocks.insert(block, (device, extra));
            }
        }
        _ if !model.taken.is_empty() => {
            let at = rng.below(model.taken.len() as u64) as usize;
            let (_, slot, place) = model.taken.swap_remove(at);
            let is_last = model.used_in(slot) == 0;
            assert_eq!(extras.release(slot, place), is_last.then_some(slot));
            if is_last {
                model.divided.remove(&slot.0);
            }
        }
        _ => {}
    }
}

#[test]
fn extras_match_model_of_two_plain_maps() {
    for (seed, places) in [1, 2, 7, 32].into_iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        let (mut extras, mut model) = (Extras::new(DEVICES.into(), places), Model::default());
        for i in 0..8_000 {
            step(&mut extras, &mut model, &mut rng, places);
            if i % 200 == 0 {
                model.check(&extras);
            }
        }
        model.check(&extras);
    }
}

/// Recovery meets block slots in the order of pages and records, not in the order of their allocation.
#[test]
fn extras_loaded_in_any_order_match_model() {
    for seed in 0..20 {
        let (mut rng, places) = (Rng::new(seed), 1 + Rng::new(seed).below(9));
        let (mut extras, mut model) = (Extras::new(DEVICES.into(), places), Model::default());
        for _ in 0..300 {
            let device = DeviceId(rng.below(u64::from(DEVICES)) as u16);
            let slot = SlotNumber(1 + u32::from(device.0) * 1000 + rng.below(30) as u32);
            let extra = Extra { slot, place: rng.below(places) as u16, dirty: rng.chance(0.5) };
            let block = BlockId(rng.below(1 << 40));
            let is_free = extras.at(slot, extra.place).is_none();
            assert_eq!(extras.load(device, block, extra), is_free);
            if !is_free {
                let held = extras.at(slot, extra.place).unwrap().0;
                assert_eq!(extras.places_of(held), [model.blocks[&held].1]);
                if rng.chance(0.3) {
                    extras.unload(slot, extra.place);
                    model.blocks.remove(&held);
                }
                continue;
            }
            model.blocks.insert(block, (device, extra));
        }
        extras.finish_loading();
        model.divided = model.blocks.values().map(|(d, e)| (e.slot.0, *d)).collect();
        model.check(&extras);
        for _ in 0..1_000 {
            step(&mut extras, &mut model, &mut rng, places);
        }
        model.check(&extras);
    }
}

#[test]
fn block_slot_outside_extent_slot_is_not_loaded() {
    let mut extras = Extras::new(1, 8);
    let extra = Extra { slot: SlotNumber(5), place: 8, dirty: true };
    assert!(!extras.load(DeviceId(0), BlockId(1), extra));
}

/// At the sizes of a new volume, and at every size of the cache: growth does not double the tables.
#[test]
fn a_cached_block_takes_at_most_15_5_bytes() {
    let mut extras = Extras::new(1, 32);
    let mut next = 0;
    for slot in 1..8_000 {
        assert!(extras.divide(DeviceId(0), SlotNumber(slot)));
        while let Some((slot, places)) = extras.take(DeviceId(0), 5) {
            for place in places {
                extras.set(BlockId(next), Some(Extra { slot, place, dirty: false }));
                next += 7919;
            }
        }
        if slot > 1_000 {
            let bytes = extras.memory() as f64 / extras.len() as f64;
            assert!(bytes <= 15.5, "{bytes} at {slot}");
        }
    }
}

#[test]
fn block_slots_are_taken_in_adjacent_runs() {
    let mut extras = Extras::new(1, 8);
    let (device, first, second) = (DeviceId(0), SlotNumber(3), SlotNumber(9));
    assert!(extras.divide(device, first) && extras.divide(device, second));
    assert_eq!(extras.take(device, 5), Some((first, 0..5)));
    assert_eq!(extras.take(device, 8), Some((second, 0..8)), "more than the first extent slot has left");
    assert_eq!(extras.take(device, 8), Some((first, 5..8)), "all that is left");
    assert_eq!(extras.take(device, 1), None);
    for place in [1, 4, 5, 7] {
        assert_eq!(extras.release(first, place), None);
    }
    for place in [0, 2] {
        assert_eq!(extras.release(second, place), None);
    }
    assert_eq!(extras.take(device, 4), Some((first, 4..6)), "the longest run");
    assert_eq!(extras.take(device, 1), Some((first, 1..2)), "of what has been free for longest");
}
