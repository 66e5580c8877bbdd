//! Log messages about the recovery at an opening.

use crate::state::state_dir::VolumeName;
use braid_engine::Recovery;

/// Logs the replayed, lost and forgotten items of a recovery.
pub(super) fn log_recovery(name: &VolumeName, recovery: &Recovery) {
    let Recovery { pages_from_one_image, batches, records, spans, extras_forgotten, .. } = recovery;
    let Recovery { lost, changed_elsewhere, has_log, changes_of_log, log_refused, flush_had_failed, .. } =
        recovery;
    match records {
        0 => tracing::info!("volume '{name}' is open: its journal had nothing to replay"),
        _ => tracing::info!(
            "volume '{name}' is open; replayed {records} records in {batches} batches of its journal"
        ),
    }
    if *has_log {
        tracing::info!(
            "the daemon before died: {changes_of_log} changes of volume '{name}' that were in no journal are recovered from its pending log"
        );
    }
    if let Some(why) = log_refused {
        tracing::warn!(
            "the pending log of volume '{name}' does not count: {why}; it is as after a power cut"
        );
    }
    if *flush_had_failed {
        tracing::error!(
            "a flush of volume '{name}' had failed before its daemon died: what was written since the last good one may be lost, and the \
             first flush of a guest fails to say so"
        );
    }
    if !lost.is_empty() {
        tracing::error!(
            "{} extents of volume '{name}' lay on a device that was given up: they read as errors until they are written, in whole parts of them, or \
             discarded",
            lost.len()
        );
    }
    if *changed_elsewhere {
        tracing::warn!(
            "the disk that volume '{name}' adopted was changed while it was not served: what was cached of it is forgotten"
        );
    }
    if *spans > 0 {
        tracing::info!("copies may differ in {spans} spans of volume '{name}': resynchronising them");
    }
    if *extras_forgotten > 0 {
        tracing::info!(
            "{extras_forgotten} cached blocks of volume '{name}' may be older than their homes: forgotten"
        );
    }
    if *pages_from_one_image > 0 {
        tracing::warn!("{pages_from_one_image} map pages lack one image: stop, then braid check {name}");
    }
}
