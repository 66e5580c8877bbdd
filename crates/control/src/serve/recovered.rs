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
            "the previous daemon died: {changes_of_log} changes of volume '{name}' that no journal has were \
             recovered from its pending log"
        );
    }
    if let Some(why) = log_refused {
        tracing::warn!(
            "the pending log of volume '{name}' is ignored: {why}; the volume is in the state after a power \
             cut"
        );
    }
    if *flush_had_failed {
        tracing::error!(
            code = "flush-failed",
            "a flush of volume '{name}' had failed before its daemon died: writes since the last good flush \
             may be lost, and an error of the first flush reports the loss"
        );
    }
    if !lost.is_empty() {
        tracing::error!(
            code = "data-lost",
            "{} extents of volume '{name}' lay on an excluded or failed device: reads of these extents fail \
             until the extents are written, in whole parts, or discarded",
            lost.len()
        );
    }
    if *changed_elsewhere {
        tracing::warn!(
            "the disk that volume '{name}' adopted was changed while the volume was not served: its cached \
             copies are dropped"
        );
    }
    if *spans > 0 {
        tracing::info!("copies may differ in {spans} spans of volume '{name}': resynchronising them");
    }
    if *extras_forgotten > 0 {
        tracing::info!(
            "{extras_forgotten} cached blocks of volume '{name}' may be older than their homes: dropped"
        );
    }
    if *pages_from_one_image > 0 {
        tracing::warn!(
            "{pages_from_one_image} map pages are valid in one image only: stop the volume, then braid \
             check {name}"
        );
    }
}
