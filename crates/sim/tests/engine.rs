//! The engine against the crash model: power cuts at device operations, then every byte against the oracle.
//!
//! `BRAID_CRASH_SEEDS=n` runs n seeds of each campaign at every cut point (`make crash SEEDS=n`).

mod chaos;

use braid_base::{Bytes, KIB, MIB, Nanos, Rng};
use braid_engine::{CreateOptions, OpenOptions, Result, Volume, create};
use braid_format::Uuid;
use braid_runtime::Runtime;
use braid_sim::{Blank, Campaign, Disk, DiskOptions, Mix, Points, Subject, Workload, World};
use chaos::Chaos;

/// The engine under one policy.
#[derive(Clone)]
struct Engine {
    policy: &'static str,
    /// Replaces the policy by one that does everything that a policy may do, at random.
    chaos: bool,
    extent_size: Bytes,
    copies: u8,
    /// Checkpoints at random times, more often than the journal asks for.
    checkpoints: bool,
}

const WARDROP: Engine = Engine {
    policy: "wardrop,period=20ms,hot=50",
    chaos: false,
    extent_size: Bytes(32 << 10),
    copies: 1,
    checkpoints: true,
};

impl Engine {
    async fn start(self, world: World, disks: Vec<Disk>) -> Result<Volume<World, Disk>> {
        let names = (0..disks.len()).map(|i| format!("disk {i}")).collect();
        let options = OpenOptions { cache_extents: 6, ..OpenOptions::new(names) };
        let (volume, _) = Volume::open(world.clone(), disks, options).await?;
        if self.chaos {
            volume.replace_policy(Box::new(Chaos::new(world.fork_rng())));
        }
        if self.checkpoints {
            let (volume, rt, mut rng) = (volume.clone(), world.clone(), world.fork_rng());
            world.spawn(async move {
                loop {
                    rt.sleep(Nanos(rng.below(60_000_000))).await;
                    if volume.checkpoint().await.is_err() {
                        break;
                    }
                }
            });
        }
        Ok(volume)
    }
}

impl Subject for Engine {
    type Export = Volume<World, Disk>;

    async fn create(self, world: World, disks: Vec<Disk>) -> Result<Volume<World, Disk>> {
        let mut identity = [0; 16];
        Rng::new(world.seed()).fill(&mut identity);
        let mut options = CreateOptions::new("crash", Uuid(identity));
        options.size = Some(MIB + KIB * 200);
        options.extent_size = self.extent_size;
        options.copies = self.copies;
        options.policy = self.policy.to_owned();
        options.overwrite = true;
        create(&disks, &options).await?;
        self.start(world, disks).await
    }

    async fn open(self, world: World, disks: Vec<Disk>) -> Result<Volume<World, Disk>> {
        self.start(world, disks).await
    }
}

fn campaign(name: &'static str, seeds: u64) -> Campaign {
    let asked: Option<u64> =
        std::env::var("BRAID_CRASH_SEEDS").ok().map(|n| n.parse().expect("BRAID_CRASH_SEEDS is a number"));
    Campaign {
        command: name,
        seeds: 0..asked.unwrap_or(seeds),
        points: if asked.is_some() { Points::All } else { Points::Spread(60) },
        disks: vec![
            DiskOptions::ssd(MIB * 5).with_blank(Blank::Garbage(1)),
            DiskOptions::hdd(MIB * 6).with_blank(Blank::Garbage(1)),
        ],
        workload: Workload::default(),
    }
}

fn run(campaign: &Campaign, engine: &Engine) {
    match campaign.run(engine) {
        Ok(report) => println!("{report:?}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn wardrop_loses_nothing_flushed() {
    let command = "cargo test -p braid-sim --test engine wardrop_loses_nothing_flushed -- --nocapture";
    run(&campaign(command, 10), &WARDROP);
}

#[test]
fn any_legal_decision_of_a_policy_loses_nothing_flushed() {
    let command = "cargo test -p braid-sim --test engine any_legal_decision_of_a_policy -- --nocapture";
    run(&campaign(command, 14), &Engine { chaos: true, ..WARDROP });
}

#[test]
fn two_required_copies_lose_nothing_flushed() {
    let command = "cargo test -p braid-sim --test engine two_required_copies -- --nocapture";
    run(&campaign(command, 8), &Engine { chaos: true, copies: 2, ..WARDROP });
}

#[test]
fn large_extents_with_small_writes_lose_nothing_flushed() {
    // Parts of 16 KiB: every first write to a part must make zeros of the rest.
    let command = "cargo test -p braid-sim --test engine large_extents_with_small_writes -- --nocapture";
    let mut campaign = campaign(command, 6);
    campaign.workload.largest = KIB * 9;
    run(&campaign, &Engine { extent_size: KIB * 256, ..WARDROP });
}

#[test]
fn a_journal_that_goes_round_many_times_loses_nothing_flushed() {
    let command = "cargo test -p braid-sim --test engine a_journal_that_goes_round -- --nocapture";
    let mut campaign = campaign(command, 2);
    campaign.workload.requests = 2_000;
    campaign.workload.largest = KIB * 8;
    campaign.workload.mix = Mix { read: 5, write: 20, fua: 30, flush: 40, discard: 15, zero: 0, prefetch: 0 };
    run(&campaign, &Engine { checkpoints: false, ..WARDROP });
}
