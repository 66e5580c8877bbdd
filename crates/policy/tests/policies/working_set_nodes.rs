//! `working-set` on nodes: extents move within a node as far as there is room, and new data goes to devices
//! with short queues.

use crate::volume::{HDD, SSD, Volume, complete_write, devices, figure};
use braid_base::{DeviceClass, DeviceId, KIB, Nanos, NodeId};
use braid_policy::{Direction, Move, Plan, parse};

const EXTENTS: u32 = 400;

/// The first plan for nodes with a disk and an SSD of `slots` slots each; all extents are striped evenly and
/// read often. Returns the source and target node of each move. Also returns, by node, the number of extents
/// on the disk, and the free slots of the SSD.
fn plan(slots: &[u32]) -> (Vec<(NodeId, NodeId)>, Vec<u32>, Vec<u32>) {
    let ssds = slots.iter().map(|&slots| (DeviceClass::Ssd, slots));
    let mut devices =
        devices(&ssds.chain(slots.iter().map(|_| (DeviceClass::Hdd, 1000))).collect::<Vec<_>>());
    for (place, device) in devices.iter_mut().enumerate() {
        device.node = Some(NodeId((place % slots.len()) as u16));
    }
    let mut policy =
        parse("working-set,water-mark=0%,window=1h,stripe=even", &devices).expect("both classes");
    let mut volume = Volume::new(&devices, EXTENTS as usize);
    for extent in 0..EXTENTS {
        volume.allocate(&mut *policy, extent);
    }
    for extent in 0..EXTENTS {
        volume.now += Nanos::from_millis(1);
        for _ in 0..4 {
            volume.access(&mut *policy, extent, Direction::Read);
        }
    }
    let node = |device: DeviceId| devices[device.index()].node.expect("all are on nodes");
    let room: Vec<u32> = volume.devices[..slots.len()].iter().map(|ssd| ssd.free).collect();
    let mut on_disks = vec![0; slots.len()];
    for home in (0..EXTENTS).filter_map(|extent| volume.home(extent)) {
        if devices[home.index()].class == DeviceClass::Hdd {
            on_disks[node(home).index()] += 1;
        }
    }
    let mut plan = Plan::default();
    while plan.moves.is_empty() {
        assert!(volume.now < Nanos::from_secs(60), "it begins in idle time");
        volume.now = policy.plan(&volume.view(), &mut plan).max(volume.now + Nanos::from_millis(1));
    }
    let ends = |job: &Move| match *job {
        Move::Migrate { extent, target } => (node(volume.home(extent.0).expect("allocated")), node(target)),
        ref other => panic!("{other:?}"),
    };
    (plan.moves.iter().map(ends).collect(), on_disks, room)
}

#[test]
fn moves_stay_within_node_if_each_node_has_room() {
    let (moves, on_disks, room) = plan(&[100, 200, 300, 400]);
    assert!(on_disks.iter().zip(&room).all(|(wanted, room)| wanted <= room), "{on_disks:?}, {room:?}");
    assert_eq!(moves.len() as u32, on_disks.iter().sum::<u32>(), "all that lies on disks is read often");
    assert!(moves.iter().all(|(source, target)| source == target));
}

#[test]
fn extent_leaves_full_node_after_all_moves_within_nodes() {
    let (moves, on_disks, room) = plan(&[160, 400]);
    let without_room = (on_disks[0] - room[0]) as usize;
    assert!(room[0] > 0 && without_room > 0, "{on_disks:?}, {room:?}");
    let (inside, between) = moves.split_at(moves.len() - without_room);
    assert!(inside.iter().all(|(source, target)| source == target));
    assert_eq!(between, vec![(NodeId(0), NodeId(1)); without_room]);
}

/// Regression: behind a network the only request of an SSD may be in transit. By activity alone the SSD
/// counted as saturated, while nearly all requests of a checkpoint were on the disks. The checkpoint had 80 %
/// of the bandwidth of all devices.
#[test]
fn device_with_shorter_queue_gets_larger_stripe_share() {
    let share_of_ssd = |in_flight: [u32; 2]| {
        let devices = devices(&[(DeviceClass::Ssd, 90_000), (DeviceClass::Hdd, 90_000)]);
        let mut policy = parse("working-set,window=1h,water-mark=0%", &devices).expect("both classes");
        let mut volume = Volume::new(&devices, 100_000);
        let (mut extent, mut plan) = (0, Plan::default());
        for _ in 0..200 {
            for _ in 0..10 {
                volume.allocate(&mut *policy, extent);
                extent += 1;
            }
            // Both write the same amount, whatever their share.
            for device in [SSD, HDD] {
                complete_write(&mut *policy, device, 5, KIB * 128, 1.0);
            }
            volume.devices.iter_mut().zip(in_flight).for_each(|(device, queue)| device.in_flight = queue);
            policy.plan(&volume.view(), &mut plan);
            volume.now += Nanos::from_millis(20);
        }
        figure(&*policy, SSD, "stripe_share")
    };
    assert!((share_of_ssd([8, 8]) - 0.5).abs() < 0.001);
    // Queues count one more than the requests: 2 and 16, beside a mean of 9: 1 + 0.2 × 7/11 and 1 − 0.2 ×
    // 7/25.
    let (short, long) = (1.127, 0.944);
    assert!((share_of_ssd([1, 15]) - short / (short + long)).abs() < 0.001);
    assert!((share_of_ssd([15, 1]) - long / (short + long)).abs() < 0.001);
}
