//! Campaigns for finding planted bugs.

use super::chosen::{SEEDS, seeds};
use crate::campaigns;
use crate::engine_subject::{Engine, campaign};
use braid_base::{KIB, MIB, Nanos};
use braid_engine::Bug;
use braid_sim::{Campaign, DiskOptions, Disturbance, Errors, Mix, States};

/// Guests with many batches of the journal.
const BUSY_JOURNAL: Mix = Mix { read: 5, write: 30, fua: 20, flush: 30, discard: 10, zero: 0, prefetch: 0 };

/// Returns the campaign for a bug.
pub fn hunt(bug: Bug) -> (Campaign, Engine) {
    let (campaign, engine) = hunt_shared(bug).unwrap_or_else(|| hunt_alone(bug));
    // Trials of earlier failures run elsewhere.
    (Campaign { name: "planted", seeds: seeds(bug), shortening: 0, ..campaign }, engine)
}

/// Campaigns that the engine must also pass without any bug.
fn hunt_shared(bug: Bug) -> Option<(Campaign, Engine)> {
    let test = "every_planted_bug_is_found";
    Some(match bug {
        Bug::AreaNotFlushed => campaigns::in_turn_of_two_torn(test, SEEDS),
        Bug::ClearedWhileWriting => campaigns::idle_spans(test, SEEDS),
        Bug::OneMapImage => {
            let (campaign, engine) = campaigns::in_turn(test, SEEDS);
            (campaign, Engine { checkpoints: true, ..engine })
        }
        Bug::ReturnedWithoutCheckpoint => campaigns::in_turn_of_two(test, SEEDS),
        Bug::LossNotDoubted => campaigns::idle_spans_in_turn(test, SEEDS),
        Bug::OlderReturnTaken => campaigns::old_copies(test, SEEDS),
        Bug::FirstOfTwoTaken => campaigns::clones(test, SEEDS, 2),
        _ => return None,
    })
}

/// A campaign for this bug alone.
fn hunt_alone(bug: Bug) -> (Campaign, Engine) {
    let mut campaign = campaign("planted", "every_planted_bug_is_found", SEEDS);
    campaign.states = States { go_on: 0.2, ..campaign.states };
    // Most of these bugs need a span that guests leave idle.
    campaign.setup.spans = vec![1];
    let chaos = Engine { chaos: true, ..Engine::wardrop() };
    let mirror = Engine { copies: 2, ..Engine::wardrop() };
    let setup = &mut campaign.setup;
    let engine = match bug {
        Bug::FailedFlushForgotten => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::LossyFlushes];
            // Without extra copies: write-back would restore lost data.
            Engine { checkpoints: false, ..Engine::wardrop() }
        }
        Bug::LostWritesRead => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::LossyFlushes];
            setup.workload.mix = Mix { discard: 10, ..BUSY_JOURNAL };
            campaign.states.go_on = 0.5;
            chaos
        }
        Bug::NumberOfReaderTaken | Bug::OwnerOfReaderForgotten => {
            // Openings that fail after reading the log.
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::MissingDevice, Disturbance::WriteErrors];
            campaign.states = States { killed: 0.0, deaths: 0.8, go_on: 1.0, ..campaign.states };
            mirror
        }
        Bug::LogPublishedLate | Bug::LogForgottenEarly | Bug::OlderLogReplayed => {
            campaign.states = States { killed: 0.0, deaths: 0.8, go_on: 1.0, ..campaign.states };
            Engine { checkpoints: false, ..Engine::wardrop() }
        }
        Bug::PaddingForgotten => {
            setup.workload.largest = KIB * 9;
            Engine { extent_size: KIB * 256, ..chaos }
        }
        Bug::SecondCopyNotWritten => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::ReadErrors];
            Engine { copies: 2, ..chaos }
        }
        Bug::StaleDeviceTaken => {
            (setup.disturbances, setup.stale_openings) = (vec![Disturbance::StaleDevice], 2);
            campaign.states.go_on = 1.0;
            chaos
        }
        Bug::LateWriteForgotten => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::Stalls];
            Engine { checkpoints: false, ..Engine::wardrop() }
        }
        Bug::IntentTooLate | Bug::BehindIsRead | Bug::NoResync => Engine { copies: 2, ..chaos },
        Bug::FirstExtentBehind => {
            setup.spans = vec![2, 8, 64];
            Engine { copies: 2, ..chaos }
        }
        Bug::CacheTableNotWritten | Bug::LeftCacheEntryKept | Bug::CachePageAheadOfJournal => {
            Engine::write_back()
        }
        Bug::CleanExtrasTrusted
        | Bug::CleanExtrasNotSaved
        | Bug::CleanBlockReusedEarly
        | Bug::ForgottenExtrasLeft
        | Bug::OlderBytesPromoted
        | Bug::ExtraIntentSkipped => {
            campaign.states.go_on = 1.0;
            Engine::read_cache()
        }
        Bug::GoneExtraForgotten => {
            // Few blocks, and hardly a batch: writes to blocks evicted just before.
            setup.workload.mix =
                Mix { read: 50, write: 45, fua: 0, flush: 1, discard: 4, zero: 0, prefetch: 0 };
            setup.workload.largest = KIB * 8;
            Engine { size: KIB * 416, checkpoints: false, ..Engine::read_cache() }
        }
        Bug::JournalGapLeft => {
            // One device fails after the other has survived a crash.
            setup.workload.mix = BUSY_JOURNAL;
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances =
                vec![Disturbance::MissingDevice, Disturbance::WriteErrors, Disturbance::LossyFlushes];
            campaign.states.go_on = 1.0;
            Engine { copies: 2, checkpoints: false, ..Engine::wardrop() }
        }
        Bug::SummaryBeforeGroups => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = vec![Disturbance::WriteErrors, Disturbance::FlushErrors];
            campaign.states.go_on = 0.5;
            Engine::of_large_map()
        }
        Bug::PageWrittenOnce => {
            setup.workload.errors = Errors::Tolerated;
            setup.disturbances = Disturbance::OF_FAILING_DISKS.to_vec();
            campaign.states.go_on = 0.5;
            Engine { copies: 2, ..Engine::wardrop() }
        }
        Bug::MoveWithoutIntent => {
            // Extents move only with a third device, and the device must fail before the moved data is
            // flushed. After a guest's write, the journal marks the span as dirty in any case. So guests
            // leave most spans idle for long.
            setup.workload.errors = Errors::Tolerated;
            (setup.workload.pause, setup.workload.requests) = (Nanos::from_secs(20), 30);
            campaign.states.every = 500;
            setup.disturbances = vec![Disturbance::LossyFlushes];
            setup.disks.push(DiskOptions::ssd(MIB * 5));
            campaign.states.go_on = 1.0;
            Engine { copies: 2, ..chaos }
        }
        Bug::BehindRangeShort => {
            setup.disturbances = vec![Disturbance::MissingDevice];
            setup.workload.errors = Errors::Tolerated;
            let policy = "pass,window=64KiB,max-lag=160KiB,idle=2ms,base=100us".to_owned();
            Engine { copies: 2, policy, ..Engine::wardrop() }
        }
        Bug::WriteBackErrorIgnored => {
            setup.disturbances = vec![Disturbance::WriteErrors];
            setup.workload.errors = Errors::Tolerated;
            Engine { past: false, ..Engine::write_back() }
        }
        Bug::OpeningNotAnnounced => {
            campaign.states = States { killed: 0.4, go_on: 1.0, ..campaign.states };
            Engine::wardrop()
        }
        Bug::AheadNotDropped => {
            setup.workload.streams = 0.6;
            Engine { ahead: MIB, cache_extents: 0, ..chaos }
        }
        Bug::ShrinkingDropsDirty => {
            // Policy changes between a policy that caches guests' writes and policies with smaller caches.
            setup.disturbances = vec![Disturbance::PolicyChanges];
            let cache =
                |share: u32| format!("cache,cache={share}%,mode=write-back,dirty-high=90%,dirty-low=80%");
            let changes = vec![cache(2), cache(50), cache(100)];
            Engine { policy: cache(100), changes, ..Engine::wardrop() }
        }
        _ => chaos,
    };
    (campaign, engine)
}
