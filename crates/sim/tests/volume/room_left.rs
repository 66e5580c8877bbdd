//! The default size of a volume: the room for other policies, and whether these policies fit as promised.

use crate::rig::{Rig, open, options, refused, sound};
use braid_base::{Bytes, MIB};
use braid_engine::{CreateOptions, ErrorKind, Fit, Left, create, planned_slots, room_left};
use braid_format::superblock::{Layout, Superblock};
use braid_sim::{Disk, DiskOptions, World};

const EXTENT: Bytes = Bytes(128 << 10);

/// Devices by their sizes in MiB.
#[derive(Clone, Copy)]
struct Mix {
    ssds: &'static [u64],
    hdds: &'static [u64],
}

impl Mix {
    fn disks(&self, world: &World) -> Vec<Disk> {
        let ssds = self.ssds.iter().map(|&size| DiskOptions::ssd(MIB * size));
        let hdds = self.hdds.iter().map(|&size| DiskOptions::hdd(MIB * size));
        ssds.chain(hdds).map(|options| Disk::new(world, options)).collect()
    }
}

const PAIR: Mix = Mix { ssds: &[64], hdds: &[128] };
const SMALL_SSD: Mix = Mix { ssds: &[24], hdds: &[160, 160] };
const TWO_SSDS: Mix = Mix { ssds: &[48, 32], hdds: &[96] };

fn of(policy: &str, copies: u8) -> CreateOptions {
    let policy = policy.to_owned();
    CreateOptions { policy, copies, size: None, left: Left::ForPolicies, ..options(1) }
}

async fn made(world: &World, mix: Mix, options: &CreateOptions) -> (Vec<Disk>, Superblock) {
    let disks = mix.disks(world);
    let superblock = create(&sound(&disks), options).await.expect("the devices are fit");
    (disks, superblock)
}

/// The size of a volume on devices, and the slots of the devices.
fn size(mix: Mix, options: CreateOptions) -> (Bytes, Vec<u64>) {
    let world = World::new(1);
    world.clone().block_on(async move {
        let (disks, superblock) = made(&world, mix, &options).await;
        let slots = planned_slots(&sound(&disks), &options).expect("it was made");
        (superblock.volume_size, slots.into_iter().map(u64::from).collect())
    })
}

/// Slots of a device for extents, without the slots kept for moves.
fn usable(slots: u64) -> u64 {
    slots - (slots / 100).max(4)
}

#[test]
fn default_size_leaves_fifth_or_all_of_ssds() {
    for policy in ["equi", "stripe", "wardrop", "working-set", "static,ssd=50%", "ssd-first", "exclusive"] {
        let (found, slots) = size(PAIR, of(policy, 1));
        let fifth = slots[0] / 5;
        assert_eq!(found, EXTENT * (usable(slots[0]) - fifth + usable(slots[1])), "{policy}");
        let (found, slots) = size(SMALL_SSD, of(policy, 1));
        assert!(usable(slots[0]) * 8 <= usable(slots[1]) + usable(slots[2]));
        assert_eq!(found, EXTENT * (usable(slots[1]) + usable(slots[2])), "{policy}");
    }
    let (found, slots) = size(TWO_SSDS, of("equi", 1));
    let left = slots[0] / 5 + slots[1] / 5;
    assert_eq!(found, EXTENT * (slots.iter().map(|&slots| usable(slots)).sum::<u64>() - left));
    // Each extent has a copy on the SSD.
    let (found, slots) = size(PAIR, of("equi", 2));
    assert_eq!(found, EXTENT * (usable(slots[0]) - slots[0] / 5));
}

#[test]
fn mirrors_single_class_and_explicit_size_leave_no_room() {
    let ssds = Mix { ssds: &[64, 64], hdds: &[] };
    let hdds = Mix { ssds: &[], hdds: &[64, 64] };
    let cases =
        [("raid1", 2, PAIR), ("pass", 2, PAIR), ("equi", 1, ssds), ("stripe", 1, hdds), ("equi", 2, ssds)];
    for (policy, copies, mix) in cases {
        let options = of(policy, copies);
        let all = CreateOptions { left: Left::Nothing, ..options.clone() };
        assert_eq!(size(mix, options), size(mix, all), "{policy}");
    }
    // A policy that uses one class leaves no room in the class, as the other class is free.
    let (found, slots) = size(PAIR, of("ssd-only", 1));
    assert_eq!(found, EXTENT * usable(slots[0]));
    let (found, slots) = size(PAIR, of("hdd-only", 1));
    assert_eq!(found, EXTENT * usable(slots[1]));
    let (found, _) = size(PAIR, CreateOptions { size: Some(MIB * 180), ..of("equi", 1) });
    assert_eq!(found, MIB * 180);
}

fn text(fit: &Fit) -> &'static str {
    if fit.policy == "static" { "static,ssd=50%" } else { fit.policy }
}

async fn judge(volume: &Rig, fit: &Fit, what: &str) {
    match fit.fits {
        true => volume.set_policy(text(fit)).await.unwrap_or_else(|error| panic!("{what}: {error}")),
        false => assert_eq!(refused(volume.set_policy(text(fit)).await).kind(), ErrorKind::Invalid, "{what}"),
    }
}

#[test]
fn only_policies_reported_as_fitting_can_be_set() {
    let single = Mix { ssds: &[64], hdds: &[] };
    let tail = vec![Layout::Head, Layout::Tail];
    let cases = [
        (PAIR, 1, vec![]),
        (SMALL_SSD, 1, vec![]),
        (TWO_SSDS, 1, vec![]),
        (single, 1, vec![]),
        (PAIR, 2, vec![]),
        (SMALL_SSD, 2, vec![]),
        (PAIR, 1, tail.clone()),
        (PAIR, 2, tail),
    ];
    let (mut fitting, mut unfitting) = (0, 0);
    for (mix, copies, layouts) in cases {
        for (policy, left) in
            [("equi", Left::ForPolicies), ("equi", Left::Nothing), ("ssd-only", Left::ForPolicies)]
        {
            let world = World::new(2);
            let options = CreateOptions { left, layouts: layouts.clone(), ..of(policy, copies) };
            let (fits, others) = world.clone().block_on(async move {
                let (disks, superblock) = made(&world, mix, &options).await;
                let found = room_left(&superblock);
                let volume = open(world.clone(), sound(&disks)).await.expect("it was made");
                for fit in &found.policies {
                    let what = format!("{fit:?} of {copies} copies under {policy} on {:?}", mix.ssds);
                    judge(&volume, fit, &what).await;
                    let Some(largest) = fit.largest else { continue };
                    let smaller = CreateOptions { size: Some(largest), ..options.clone() };
                    let (disks, _) = made(&world, mix, &smaller).await;
                    let volume = open(world.clone(), sound(&disks)).await.expect("it was made");
                    judge(&volume, &Fit { fits: true, ..fit.clone() }, &what).await;
                }
                let fits = found.policies.iter().filter(|fit| fit.fits).count();
                (fits, found.policies.len() - fits)
            });
            (fitting, unfitting) = (fitting + fits, unfitting + others);
        }
    }
    assert!(fitting > 100 && unfitting > 50, "{fitting} fit, {unfitting} do not");
}
