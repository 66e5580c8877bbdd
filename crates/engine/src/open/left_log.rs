//! Pending log of a dead daemon: decides whether the log belongs to the volume in its present state.

use crate::core::{Durable, Store};
use crate::journal::{Journal, LoggedChanges};
use crate::map::{NeededLog, Opening, PendingLog, clear};
use crate::planted::{Bug, planted};
use crate::{Error, ErrorKind, Recovery, Result};
use braid_base::Bytes;
use braid_format::Invalid;
use braid_format::pending_log::{HEAD_USED, Head, Loss, Seal, decode_head, records};
use braid_format::superblock::{Phase, Superblock};
use braid_policy::Origin;
use braid_runtime::{Device, LastingMemory, Runtime};
use std::rc::Rc;

/// Contents of a left pending log.
#[derive(Default)]
pub(crate) struct LeftLog {
    /// Changes, if the log counts.
    pub changes: Option<LoggedChanges>,
    /// Reason for refusing the log.
    refused: Option<String>,
    /// Unless none: a flush had failed, and no guest of a later opening has been told.
    loss: Loss,
    /// Seal of the log, if the log counts, and true if the log has owners.
    seal: Option<(Seal, bool)>,
}

impl LeftLog {
    /// Reads the log in this memory. Never fails: without a log that counts, the volume opens as after a
    /// power cut.
    pub fn read(memory: Option<&Rc<dyn LastingMemory>>, superblock: &Superblock) -> LeftLog {
        let Some(memory) = memory else { return LeftLog::default() };
        let head = match head(&**memory) {
            Ok(head) => head,
            Err(Invalid::Absent) => return LeftLog::default(),
            Err(invalid) => return LeftLog::refused(format!("its head is damaged: {invalid}")),
        };
        if let Some(why) = stranger(&head, memory.life(), superblock) {
            return LeftLog::refused(why);
        }
        let (loss, seal) = (head.loss, Some((head.seal(), head.owner.is_some())));
        if loss == Loss::Incomplete {
            return LeftLog::refused("the log had no room for all changes".to_owned());
        }
        if loss == Loss::Possible {
            let why = "a flush had failed, so the logged writes may be lost".to_owned();
            return LeftLog { loss, seal, ..LeftLog::refused(why) };
        }
        match entries(&**memory, &head) {
            Ok(changes) => LeftLog { changes: Some(changes), refused: None, loss, seal },
            Err(why) => LeftLog { loss, seal, ..LeftLog::refused(why) },
        }
    }

    fn refused(why: String) -> LeftLog {
        LeftLog { refused: Some(why), ..LeftLog::default() }
    }

    /// Returns the log, if its contents count until this opening has made them durable.
    pub fn needed(&self, memory: Option<&Rc<dyn LastingMemory>>) -> Option<NeededLog> {
        let is_needed = self.changes.is_some() || self.loss != Loss::None;
        let (memory, (seal, has_owners)) = (memory.filter(|_| is_needed)?.clone(), self.seal?);
        Some(NeededLog { memory, seal, loss: self.loss, has_owners })
    }

    /// Reports the outcome of the log.
    pub fn report(&self, recovery: &mut Recovery) {
        recovery.flush_had_failed = self.loss != Loss::None;
        if recovery.log_refused.is_none() {
            recovery.log_refused.clone_from(&self.refused);
        }
    }
}

fn head(memory: &dyn LastingMemory) -> std::result::Result<Head, Invalid> {
    let mut bytes = [0; HEAD_USED];
    memory.load(Bytes::ZERO, &mut bytes);
    decode_head(&bytes, memory.len())
}

/// Reason why a log does not belong to this volume in its present state.
fn stranger(head: &Head, life: [u8; 16], superblock: &Superblock) -> Option<String> {
    if head.volume != superblock.volume {
        return Some(format!("the log belongs to volume {}", head.volume));
    }
    if head.life != life {
        return Some("the machine has been restarted since".to_owned());
    }
    if planted(Bug::OlderLogReplayed) {
        return None;
    }
    let (last, newest) = (last_opening(superblock), head.reader.unwrap_or(head.epoch));
    if !(head.epoch..=newest.max(head.epoch)).contains(&last) {
        return Some(format!(
            "the log belongs to opening {}, and the volume was opened again since without the log (opening \
             {last})",
            head.epoch
        ));
    }
    // With equal generations, two copies of one volume were opened equally often.
    if !head.knows(superblock.owner) && !planted(Bug::NumberOfReaderTaken) {
        return Some(format!(
            "the log belongs to another opening {}: the volume was opened again since without the log, or \
             this is a copy of the volume that was opened elsewhere",
            head.epoch
        ));
    }
    None
}

/// Last generation with possible writes: an opening that was interrupted before `Open` wrote no data.
fn last_opening(superblock: &Superblock) -> u64 {
    match superblock.phase {
        Phase::Opening => superblock.devices.iter().map(|entry| entry.in_step).max().unwrap_or(0),
        _ => superblock.epoch,
    }
}

fn entries(memory: &dyn LastingMemory, head: &Head) -> std::result::Result<LoggedChanges, String> {
    let records = records(head, |at, into| memory.load(at, into));
    let records = records.map_err(|(number, invalid)| format!("entry {number} is damaged: {invalid}"))?;
    Ok(LoggedChanges { records, newest: head.newest })
}

impl<R: Runtime, D: Device> Durable<R, D> {
    /// Makes the changes of a log that counted durable, and shortens the journal, before anything else
    /// changes the map.
    pub async fn settle_left_log(&self, recovery: &Recovery) -> Result<()> {
        if !recovery.has_log {
            return Ok(());
        }
        // A batch may have been in flight, with as many changes as may be pending besides.
        loop {
            let first = self.store.state.borrow().first_extents(self.journal.most_pending());
            let Some(end) = first else { break };
            self.commit_below(end).await?;
            // No job makes room in the journal yet.
            self.checkpoint().await?;
        }
        self.commit(Origin::Background).await?;
        self.checkpoint().await
    }
}

impl Journal {
    /// Begins the log of this opening.
    pub fn begin_pending_log<D: Device>(
        &self,
        store: &Store<D>,
        memory: Option<&Rc<dyn LastingMemory>>,
        recovery: &Recovery,
    ) {
        store.state.borrow_mut().keep_left_log(None);
        let superblock = store.devices.superblock();
        let Superblock { volume, epoch, owner, .. } = *superblock;
        let is_owed = recovery.flush_had_failed;
        if is_owed {
            let text = format!(
                "volume '{}': a flush had failed before the daemon died, and writes since the last \
                 successful flush may be lost; this error reports the loss, and the next flush can succeed",
                superblock.name
            );
            self.commits.owe(Error::new(ErrorKind::Io, text));
        }
        let Some(memory) = memory else { return };
        let opening = Opening { volume, epoch, owner, newest: self.newest(), is_owed };
        match PendingLog::begin(memory.clone(), &opening, self.most_pending()) {
            Ok(log) => store.state.borrow_mut().begin_log(log),
            Err(error) => {
                clear(&**memory);
                tracing::warn!(
                    "no room for the pending log: {error}; a crash of the daemon loses acknowledged but \
                     unflushed writes"
                );
            }
        }
    }
}
