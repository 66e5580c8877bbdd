use crate::engine_subject::{Engine, campaign};
use crate::*;
use braid_base::{KIB, MIB, Nanos};
use braid_engine::Bug;
use braid_sim::{Blank, DiskOptions, Disturbance, Errors, Mix, States};
use std::time::Duration;

fn env(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or(default.to_owned())
}

fn named(name: &str) -> Option<(Campaign, Engine)> {
    let t = "probe";
    let n = 1;
    let mirror = Engine { copies: 2, ..Engine::wardrop() };
    let chaos2 = Engine { chaos: true, ..mirror.clone() };
    let base = |d: Vec<Disturbance>, go_on: f64| {
        let mut c = campaign("probe", t, n);
        if !d.is_empty() {
            c.setup.workload.errors = Errors::Tolerated;
        }
        c.setup.disturbances = d;
        c.states.go_on = go_on;
        c
    };
    use Disturbance::*;
    Some(match name {
        "wardrop" => (base(vec![], 0.2), Engine::wardrop()),
        "chaos" => (base(vec![], 0.2), Engine { chaos: true, ..Engine::wardrop() }),
        "chaos2" => (base(vec![], 0.2), chaos2),
        "turn" => campaigns::in_turn(t, n),
        "turncp" => {
            let (c, e) = campaigns::in_turn(t, n);
            (c, Engine { checkpoints: true, ..e })
        }
        "turn2" => campaigns::in_turn_of_two(t, n),
        "turn3" => campaigns::in_turn_of_three(t, n),
        "turn2cp" => {
            let (c, e) = campaigns::in_turn_of_two(t, n);
            (c, Engine { checkpoints: true, ..e })
        }
        "cpm" => campaigns::checkpoints(t, n, mirror),
        "cpwb" => campaigns::checkpoints(t, n, Engine::write_back()),
        "cprc" => campaigns::checkpoints(t, n, Engine::read_cache()),
        "regions" => campaigns::bad_regions(t, n, 1),
        "regions2" => campaigns::bad_regions(t, n, 2),
        "discards" => campaigns::discards(t, n, 1),
        "discards2" => campaigns::discards(t, n, 2),
        "clones" => campaigns::clones(t, n, 2),
        "clones1" => campaigns::clones(t, n, 1),
        "torn" => campaigns::in_turn_of_two_torn(t, n),
        "idle" => campaigns::idle_spans(t, n),
        "old" => campaigns::old_copies(t, n),
        "idleturn" => campaigns::idle_spans_in_turn(t, n),
        "large" => campaigns::checkpoints(t, n, Engine::of_large_map()),
        "largeturn" => {
            let (c, e) = campaigns::in_turn(t, n);
            (c, Engine { checkpoints: true, map_group: Some(1), extent_size: KIB * 4, size: MIB * 2, ..e })
        }
        "largefail" => (base(vec![WriteErrors, FlushErrors], 0.5), Engine::of_large_map()),
        "disc" => {
            let mut c = base(vec![ReadErrors], 1.0);
            let w = &mut c.setup.workload;
            (w.clients, w.requests, w.largest, w.bursts_every) = (2, 40, KIB * 64, Nanos::from_secs(7));
            w.mix = Mix { read: 5, write: 15, fua: 0, flush: 40, discard: 40, zero: 0, prefetch: 0 };
            c.setup.spans = vec![1];
            c.states = States { every: 3, outcomes: 4, killed: 0.0, ..c.states };
            (c, Engine { policy: "raid1".to_owned(), checkpoints: false, size: KIB * 400, ..mirror })
        }
        "adopted" => (campaigns::adopted("probe", t, n), campaigns::adopting(Engine::write_back())),
        "adoptedturn" => campaigns::adopted_in_turn(t, n, Engine::write_back()),
        "huge2" => campaigns::huge_extents(t, n, mirror),
        "stalled" => campaigns::stalled_caches(t, n, Engine::write_back()),
        "early" => {
            let mut c = base(vec![], 1.0);
            c.states.killed = 0.4;
            (c, Engine::wardrop())
        }
        "early2" => {
            let mut c = base(vec![], 1.0);
            c.states.killed = 0.4;
            (c, mirror)
        }
        "faults2" => (base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5), mirror),
        "faults1" => (base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5), Engine::wardrop()),
        "faultsc" => (
            base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5),
            Engine { chaos: true, past: false, ..Engine::wardrop() },
        ),
        "faults2c" => {
            (base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5), Engine { chaos: true, past: false, ..mirror })
        }
        "many2" => {
            (base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5), Engine { copies: 2, ..Engine::random(5) })
        }
        "faultsrc" => (base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5), Engine::read_cache()),
        "faultswb" => (
            base(Disturbance::OF_FAILING_DISKS.to_vec(), 0.5),
            Engine { past: false, ..Engine::write_back() },
        ),
        "move2" => {
            let mut c = base(vec![LossyFlushes], 1.0);
            c.setup.disks.push(DiskOptions::ssd(MIB * 5));
            (c, Engine { chaos: true, past: false, ..mirror })
        }
        "move2w" => {
            let mut c = base(vec![LossyFlushes], 1.0);
            c.setup.disks.push(DiskOptions::ssd(MIB * 5));
            (c, mirror)
        }
        "mirrorcache" => (
            base(vec![MissingDevice, WriteErrors], 0.7),
            Engine { copies: 2, past: false, ..Engine::read_cache() },
        ),
        "pass" => (
            base(vec![MissingDevice, WriteErrors, PolicyChanges], 0.5),
            Engine { policy: "pass,window=64KiB,max-lag=160KiB,idle=2ms,base=100us".to_owned(), ..mirror },
        ),
        "passmiss" => (
            base(vec![MissingDevice], 0.5),
            Engine { policy: "pass,window=64KiB,max-lag=160KiB,idle=2ms,base=100us".to_owned(), ..mirror },
        ),
        "wb" => (
            base(vec![MissingDevice, WriteErrors, PolicyChanges], 0.5),
            Engine { policy: "raid1,write-behind,limit=48KiB".to_owned(), ..mirror },
        ),
        "config" => (base(vec![PolicyChanges], 0.3), Engine::random(5)),
        "idle2" => {
            let mut c = base(vec![], 0.2);
            c.setup.workload.pause = Nanos::from_secs(20);
            c.setup.workload.clients = 8;
            c.setup.workload.mix =
                Mix { read: 5, write: 30, fua: 20, flush: 30, discard: 10, zero: 0, prefetch: 0 };
            (c, chaos2)
        }
        "lossyrc" => (base(vec![LossyFlushes], 0.8), Engine { past: false, ..Engine::read_cache() }),
        "fmc2" => {
            let mut c = base(vec![LossyFlushes], 1.0);
            c.setup.disks.push(DiskOptions::ssd(MIB * 5).with_blank(Blank::Garbage(1)));
            c.setup.workload.largest = KIB * 16;
            (c, Engine { copies: 2, past: false, ..Engine::read_cache() })
        }
        _ => return None,
    })
}

fn trial(name: &str) -> fn(u64) {
    match name {
        "epochs" => epochs::lose_ssd,
        "recovery" => recovery_campaign::recover_at_work,
        "badplaces" => recovery_campaign::recover_with_bad_places,
        "two" => adopted_two_ssds::lose_one_of_two_ssds,
        "devices" => device_campaign::live_and_crash,
        "ssd" => |seed| drop(outlives_ssd::lives_end_with_the_ssd(seed * 10..seed * 10 + 10)),
        "unread" => unread_journal::one_journal_is_not_read,
        "slow" => fence::two_openings_on_slow_disks,
        "lost" => |_| lost_parts::parts_that_are_good_and_parts_that_are_lost_survive_power_cuts(),
        "wait" => |_| fence::an_opening_that_waits_for_the_other_one_loses_nothing_that_was_promised(),
        "list" => outlives_ssd::power_fails_while_a_list_is_written,
        "fence" => |_| fence::no_flush_succeeds_once_another_opening_has_been_noticed(),
        "lapses" => lapses::end_of_resync,
        _ => panic!("no {name}"),
    }
}

fn apply(c: &mut Campaign, e: &mut Engine) {
    for set in env("SET", "").split(';').filter(|s| !s.is_empty()) {
        let (k, v) = set.split_once('=').unwrap();
        let f = || v.parse::<f64>().unwrap();
        let u = || v.parse::<u64>().unwrap();
        match k {
            "bursts" => c.setup.workload.bursts_every = Nanos::from_millis(u()),
            "every" => c.states.every = u(),
            "outcomes" => c.states.outcomes = u(),
            "killed" => c.states.killed = f(),
            "go" => c.states.go_on = f(),
            "req" => c.setup.workload.requests = u(),
            "clients" => c.setup.workload.clients = u(),
            "largest" => c.setup.workload.largest = KIB * u(),
            "pause" => c.setup.workload.pause = Nanos::from_micros(u()),
            "spans" => c.setup.spans = v.split('+').map(|s| s.parse().unwrap()).collect(),
            "ext" => e.extent_size = KIB * u(),
            "block" => e.block_size = KIB * u(),
            "cache" => e.cache_extents = u() as usize,
            "cp" => e.checkpoints = u() == 1,
            "cpp" => e.checkpoint_pause = Nanos::from_micros(u()),
            "deaths" => c.states.deaths = f(),
            "pol" => c.setup.workload.largest = c.setup.workload.largest,
            "group" => e.map_group = Some(u() as u32),
            "chaos" => e.chaos = u() == 1,
            "past" => e.past = u() == 1,
            "copies" => e.copies = u() as u8,
            "size" => e.size = KIB * u(),
            "stale" => c.setup.stale_openings = u() as usize,
            "policy" => e.policy = v.replace('~', "="),
            "ssd" => c.setup.disks.push(DiskOptions::ssd(MIB * u())),
            "mix" => {
                let n: Vec<u64> = v.split('+').map(|s| s.parse().unwrap()).collect();
                c.setup.workload.mix = Mix {
                    read: n[0],
                    write: n[1],
                    fua: n[2],
                    flush: n[3],
                    discard: n[4],
                    zero: n[5],
                    prefetch: 0,
                };
            }
            "dist" => {
                c.setup.disturbances = v.split('+').map(|s| s.parse().unwrap()).collect();
                c.setup.workload.errors = Errors::Tolerated;
            }
            _ => panic!("{k}"),
        }
    }
    let _ = States::default();
}

#[test]
fn probe() {
    let bugs = env("PROBE", "");
    let hunts = env("HUNTS", "");
    let seconds = Duration::from_secs_f64(env("SECS", "20").parse().unwrap());
    let from: u64 = env("FROM", "0").parse().unwrap();
    let all: Vec<Bug> = [
        Bug::WIP,
        Bug::ALL,
        Bug::OF_RESYNC,
        Bug::OF_ADOPTION,
        Bug::OF_EPOCHS,
        Bug::OF_DEATH,
        Bug::OF_DEVICES,
        Bug::OF_LOSS,
        Bug::OF_LIES,
    ]
    .concat();
    for bug in bugs.split(',').filter(|b| !b.is_empty()) {
        let planted = all.iter().copied().find(|b| format!("{b:?}") == bug);
        assert!(planted.is_some() || bug == "none", "{bug}");
        for hunt in hunts.split(',') {
            let start = Instant::now();
            let mut seed = from;
            plant(planted);
            let mut found = None;
            while start.elapsed() < seconds && found.is_none() {
                found = match named(hunt) {
                    Some((mut c, mut e)) => {
                        apply(&mut c, &mut e);
                        let c = Campaign { name: "none", seeds: seed..seed + 1, shortening: 0, ..c };
                        c.run(&e).err().map(|f| format!("{} life {}: {}", f.trial, f.life, f.message))
                    }
                    None => {
                        let t = trial(hunt);
                        catch_unwind(|| t(seed))
                            .err()
                            .map(|e| e.downcast_ref::<String>().cloned().unwrap_or_default())
                    }
                };
                seed += 1;
            }
            plant(None);
            let s = start.elapsed().as_secs_f32();
            match found {
                Some(text) => println!(
                    "P {bug} {hunt} FOUND {s:.1} s seed {}: {}",
                    seed - 1,
                    &text[..text.floor_char_boundary(900)]
                ),
                None => println!("P {bug} {hunt} not in {s:.1} s, {} seeds", seed - from),
            }
        }
    }
}
