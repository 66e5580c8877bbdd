//! Attacks on the choice between undecided copies with bad places, beside a slow or late device, and while a
//! volume closes: unreadable places despite a good copy, and guests that are refused.

use crate::deadlines::hang;
use crate::rig::{filled, open, open_with, sound};
use crate::undecided_attacks::{Crashed, crashed, run, slowly, value};
use crate::undecided_faults::{BLOCK, value_of};
use braid_base::{Bytes, KIB, MIB, Nanos};
use braid_engine::{Durability, Export, OpenOptions, Readahead};
use braid_format::superblock::DeviceState;
use braid_runtime::Runtime;
use braid_sim::{Bad, Disk, FaultPlan, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// After a crash, with a second device that has become slow, and answers every request in two seconds.
async fn with_a_slow_second(world: &World) -> Crashed {
    let it = crashed(world, KIB * 128, false, |_, _| ()).await;
    while it.volume.status().behind > MIB * 52 {
        it.sleep(5).await;
    }
    it.disks[1].faults().set(slowly(2000));
    while it.volume.status().devices[1].state != DeviceState::Slow {
        it.sleep(100).await;
    }
    assert!(it.volume.status().behind > MIB * 8, "the resync has not come to the last extent");
    it
}

/// The second device is slow, and has a block that is unreadable in the home.
#[test]
fn unreadable_home_block_is_read_from_slow_device() {
    let read = run(1, async |world| {
        let it = with_a_slow_second(&world).await;
        it.disks[0].spoil(it.home + BLOCK * 5..it.home + BLOCK * 6, Bad::UntilWritten);
        it.read(5).await
    });
    assert_eq!(read, Ok(value(5)));
}

/// The home cannot take a write of a whole block; the second device is slow, and can.
#[test]
fn write_rejected_by_home_goes_to_slow_second_device() {
    let (written, read) = run(2, async |world| {
        let it = with_a_slow_second(&world).await;
        it.disks[0].spoil(it.home + BLOCK * 5..it.home + BLOCK * 6, Bad::ForEver);
        let bytes = filled(&it.arena, BLOCK, 222);
        let at = it.last + BLOCK * 5;
        let written = it.volume.write(at, &bytes, Durability::Fua).await;
        it.be_sound();
        it.sleep(120_000).await;
        let again = it.volume.write(at, &bytes, Durability::Fua).await;
        (written.and(again).map_err(|error| error.to_string()), it.read(5).await)
    });
    assert_eq!((written, read), (Ok(()), Ok(222)));
}

/// The second device is silent. The home takes eight seconds, less than the minute allowed to a device with
/// an only copy.
#[test]
fn read_waits_for_only_answering_device() {
    let read = run(3, async |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(1000));
        // The volume cannot do without the device.
        let (_, first) = it.volume.explain(Bytes::ZERO).expect("it is sound").home.expect("it is sound");
        let bad = FaultPlan { bad_writes: Some(first..first + BLOCK), ..FaultPlan::default() };
        it.disks[0].faults().set(bad);
        it.write(Bytes::ZERO, 222, Durability::Fua).await;
        hang(&it.disks[1]);
        it.sleep(12_000).await;
        assert_eq!(it.volume.outdated_devices(), []);
        it.disks[0].faults().set(slowly(8000));
        it.read(3).await
    });
    assert_eq!(read, Ok(value(3)));
}

/// The home is silent, and is not failed, because it alone has a write. The second device is sound.
#[test]
fn read_of_silent_home_is_served_by_second_device() {
    let read = run(12, async |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(1000));
        let second = it.volume.explain(Bytes::ZERO).expect("it is sound").second.expect("it is sound");
        let bad = FaultPlan { bad_writes: Some(second.1..second.1 + BLOCK), ..slowly(1000) };
        it.disks[1].faults().set(bad);
        it.write(Bytes::ZERO, 222, Durability::Fua).await;
        it.disks[1].faults().set(slowly(1000));
        hang(&it.disks[0]);
        let read = it.read(3).await;
        assert_eq!(it.volume.outdated_devices(), []);
        read
    });
    assert_eq!(read, Ok(value(3)));
}

/// The second device fails one read, of a block outside the guest's request, and the home has a bad place
/// there.
#[test]
fn single_failed_read_loses_no_unrequested_block() {
    let read = run(4, async |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        let bad = Some(it.second + BLOCK * 20..it.second + BLOCK * 21);
        it.disks[1].faults().set(FaultPlan { bad_reads: bad, ..slowly(100) });
        it.disks[0].spoil(it.home + BLOCK * 20..it.home + BLOCK * 21, Bad::UntilWritten);
        assert_eq!(it.read(3).await, Ok(value(3)));
        it.be_sound();
        it.sleep(120_000).await;
        it.read(20).await
    });
    assert_eq!(read, Ok(value(20)));
}

/// The second copy has just missed a write of another block of the extent, so the home cannot give way yet.
#[test]
fn pending_home_exchange_loses_no_unrequested_block() {
    let (first, read) = run(5, async |world| {
        let it = crashed(&world, MIB * 2, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(1000));
        // The first MiB is decided, with one missed block; the second MiB is undecided.
        assert_eq!(it.read(0).await, Ok(value(0)));
        let bad = Some(it.second + BLOCK..it.second + BLOCK * 2);
        it.disks[1].faults().set(FaultPlan { bad_writes: bad, ..slowly(1000) });
        it.write(it.last + BLOCK, 222, Durability::Fua).await;
        it.disks[1].faults().set(slowly(1000));
        it.disks[0].spoil(it.home + BLOCK * 300..it.home + BLOCK * 301, Bad::ForEver);
        let first = it.read(260).await;
        it.be_sound();
        it.sleep(120_000).await;
        (first, it.read(300).await)
    });
    assert_eq!((first, read), (Ok(value(260)), Ok(value(300))));
}

/// A block of the home is neither readable nor writable; guests read the block alone, and then with its
/// neighbours.
#[test]
fn decided_block_is_readable_with_undecided_neighbour() {
    let read = run(13, async |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(1000));
        it.disks[0].spoil(it.home + BLOCK * 10..it.home + BLOCK * 11, Bad::ForEver);
        assert_eq!(it.read(10).await, Ok(value(10)));
        let mut read = Vec::new();
        for waits in [0, 60_000] {
            it.sleep(waits).await;
            for at in [9, 10] {
                let buf = filled(&it.arena, BLOCK * 2, 0);
                let done = it.volume.read(it.last + BLOCK * at, &buf).await;
                read.push(
                    done.map(|()| buf.with_bytes(|bytes| (bytes[0], bytes[4096]))).map_err(|e| e.kind()),
                );
            }
        }
        read
    });
    let both = |at| Ok((value(at), value(at + 1)));
    assert_eq!(read, [both(9), both(10), both(9), both(10)]);
}

/// Memory holds an extent as in the home, with blocks still undecided. Then the home gives way to the second
/// copy, which has other content there.
#[test]
fn memory_cache_keeps_no_data_of_exchanged_home() {
    let (read, after) = run(14, async |world| {
        let torn = |disk: &Disk, home: Bytes| disk.poke(home + BLOCK * 5, &[222; 4096]);
        let mut it = crashed(&world, KIB * 128, false, torn).await;
        it.disks = it.disks.iter().map(|disk| disk.fork(&world)).collect();
        let with_memory =
            |options: &mut OpenOptions| (options.cache_extents, options.readahead) = (8, Readahead::First);
        let opened = open_with(world.clone(), sound(&it.disks), with_memory).await;
        it.volume = opened.expect("the disks are sound").0;
        // The extent is never alike as a whole.
        it.disks[1].spoil(it.second + BLOCK * 30..it.second + BLOCK * 31, Bad::ForEver);
        it.disks[1].faults().set(slowly(1000));
        assert_eq!(it.read(0).await, Ok(value(0)));
        let bad = FaultPlan { bad_writes: Some(it.home..it.home + BLOCK), ..FaultPlan::default() };
        it.disks[0].faults().set(bad);
        it.write(it.last, 111, Durability::Volatile).await;
        let read = it.read(5).await;
        it.be_sound();
        it.volume.flush().await.expect("both devices flush");
        it.disks = it.disks.iter().map(|disk| disk.fork(&world)).collect();
        it.volume = open(world.clone(), sound(&it.disks)).await.expect("the disks are sound");
        (read, it.read(5).await)
    });
    assert_eq!(after, read);
}

/// Each device has a place that is neither readable nor writable, in different blocks of one extent: the
/// guest asks for the block that the home has.
#[test]
fn good_home_block_is_read_despite_bad_home_neighbour() {
    let read = run(6, async |world| {
        let it = crashed(&world, KIB * 128, false, |_, _| ()).await;
        it.disks[1].faults().set(slowly(1000));
        it.disks[0].spoil(it.home + BLOCK * 10..it.home + BLOCK * 11, Bad::ForEver);
        it.disks[1].spoil(it.second + BLOCK * 20..it.second + BLOCK * 21, Bad::ForEver);
        it.read(20).await
    });
    assert_eq!(read, Ok(value(20)));
}

/// Two guests keep reading while the volume closes, each from one block to the next.
#[test]
fn steady_reads_do_not_prevent_close() {
    let closed = run(7, async |world| {
        let it = Rc::new(crashed(&world, KIB * 128, false, |_, _| ()).await);
        it.disks[1].faults().set(slowly(1000));
        let is_over = Rc::new(Cell::new(false));
        for guest in 0..2 {
            let (it, is_over, clock) = (it.clone(), is_over.clone(), world.clone());
            world.spawn(async move {
                clock.sleep(Nanos::from_millis(guest * 500)).await;
                let mut at = MIB * 32 * guest;
                while !is_over.get() {
                    let _refused_in_the_end = value_of(&it.volume, &it.arena, at).await;
                    at = (at + KIB * 128) % (MIB * 64);
                    // Without undecided blocks, nothing else lets time pass.
                    clock.sleep(Nanos::from_millis(10)).await;
                }
            });
        }
        it.sleep(1000).await;
        let closed = it.volume.close().await;
        is_over.set(true);
        closed.map_err(|error| error.to_string())
    });
    assert_eq!(closed, Ok(()));
}

/// Half of the home's extent is bad, and the home takes two seconds to report each bad sector. The guest
/// asks for a block that both copies have.
#[test]
fn read_does_not_wait_for_neighbouring_bad_sectors() {
    let read = run(9, async |world| {
        let it = Rc::new(crashed(&world, MIB * 2, false, |_, _| ()).await);
        it.disks[1].faults().set(slowly(1000));
        it.disks[0].spoil(it.home + KIB * 256..it.home + KIB * 768, Bad::UntilWritten);
        it.disks[0].faults().set(slowly(2000));
        let (guest, read) = (it.clone(), Rc::new(RefCell::new(None)));
        let told = read.clone();
        world.spawn(async move {
            let result = guest.read(0).await;
            *told.borrow_mut() = Some(result);
        });
        // Longer than any request may take.
        it.sleep(120_000).await;
        let read = read.borrow().clone();
        it.be_sound();
        it.sleep(60_000).await;
        read
    });
    assert_eq!(read, Some(Ok(value(0))));
}

/// The read of the last extent after a crash now, without device 0.
async fn left_without_the_first(it: &Crashed, world: &World) -> Result<u8, String> {
    let left: Vec<Disk> = it.disks[1..].iter().map(|disk| disk.fork(world)).collect();
    let volume = open(world.clone(), sound(&left)).await.map_err(|error| error.to_string())?;
    value_of(&volume, &it.arena, it.last).await.map_err(|error| error.to_string())
}

/// The device of the homes falls silent, and is failed. The daemon dies at any time in between. All data was
/// flushed, and is on the other device. From then on, `guests` guests begin to write in other spans.
fn silent_first_device(is_undecided: bool, guests: u64) {
    let mut lost = Vec::new();
    for millis in (4000..9000).step_by(250) {
        let read = run(10, async move |world| {
            let it = Rc::new(crashed(&world, MIB * 4, false, |_, _| ()).await);
            if !is_undecided {
                it.sleep(120_000).await;
                assert_eq!(it.volume.status().behind, Bytes::ZERO);
                for span in 0..8 {
                    it.write(MIB * 4 * span + BLOCK, 222, Durability::Fua).await;
                }
                it.write(it.last + BLOCK, 222, Durability::Fua).await;
            }
            it.disks[1].faults().set(slowly(200));
            hang(&it.disks[0]);
            for guest in 0..guests {
                let (it, clock) = (it.clone(), world.clone());
                world.spawn(async move {
                    clock.sleep(Nanos::from_millis(if guest == 0 { 0 } else { 4000 + guest * 500 })).await;
                    let bytes = filled(&it.arena, BLOCK, 222);
                    let at = it.last - MIB * 4 * guest + BLOCK;
                    let _written = it.volume.write(at, &bytes, Durability::Volatile).await;
                });
            }
            it.sleep(millis).await;
            let left = left_without_the_first(&it, &world).await;
            it.be_sound();
            it.sleep(200_000).await;
            left
        });
        lost.extend((read != Ok(value(0))).then_some((millis, read)));
    }
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_silent_device_may_be_lost_while_a_guest_decides() {
    silent_first_device(true, 1);
}

#[test]
fn silent_device_can_be_lost_during_writes() {
    silent_first_device(false, 1);
    silent_first_device(false, 7);
}

/// The home cannot take a write, and gives way. Before the exchange is durable, other guests begin to write
/// in other spans, so the journal records that a copy in the first span is behind. Then the daemon dies, and
/// the former home is lost. An extent is a span, without neighbours.
#[test]
fn death_during_home_exchange_loses_no_flushed_data() {
    let mut lost = Vec::new();
    for (others, millis) in [1, 16].into_iter().flat_map(|o| (4000..9000).step_by(250).map(move |m| (o, m))) {
        let read = run(11, async move |world| {
            let it = Rc::new(crashed(&world, MIB * 4, false, |_, _| ()).await);
            it.sleep(120_000).await;
            assert_eq!(it.volume.status().behind, Bytes::ZERO);
            let bad = Some(it.home + BLOCK..it.home + BLOCK * 2);
            it.disks[0].faults().set(FaultPlan { bad_writes: bad, ..slowly(500) });
            it.disks[1].faults().set(slowly(500));
            for guest in 0..others {
                let (it, clock) = (it.clone(), world.clone());
                world.spawn(async move {
                    clock.sleep(Nanos::from_millis(guest * 250)).await;
                    let bytes = filled(&it.arena, BLOCK, 222);
                    let at = it.last - MIB * 4 * guest + BLOCK;
                    let _written = it.volume.write(at, &bytes, Durability::Volatile).await;
                });
            }
            it.sleep(millis).await;
            let left = left_without_the_first(&it, &world).await;
            it.be_sound();
            it.sleep(100_000).await;
            left
        });
        lost.extend((read != Ok(value(0))).then_some((others, millis, read)));
    }
    assert!(lost.is_empty(), "{lost:?}");
}
