//! A report as a sentence: is the data safe. The same verdict colours the page and answers `/healthz`.

use braid_base::Bytes;
use braid_control::{DeviceReport, Durability, Error, RestingReport, StatusReport, VolumeReport};
use serde::Serialize;

/// Severity, from good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Not served.
    Idle,
    /// Nothing to do.
    Good,
    /// A further failure may lose data, or a promise is weaker than usual.
    Warning,
    /// Data is lost, cannot be flushed or cannot be reached.
    Bad,
}

/// A verdict about one volume.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Verdict {
    /// Name of the volume.
    pub name: String,
    pub level: Level,
    /// The verdict in one or two words.
    pub word: &'static str,
    /// The verdict in a sentence.
    pub sentence: String,
    /// False if `/healthz` reports the volume. Agrees with the exit status of `braid status NAME`.
    pub is_whole: bool,
    /// Further findings, with remedies.
    pub notes: Vec<String>,
}

/// Verdict about all volumes of the machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Health {
    pub level: Level,
    pub word: &'static str,
    pub sentence: String,
    /// True if every volume is whole.
    pub is_whole: bool,
    /// Verdicts about the volumes, by name.
    pub volumes: Vec<Verdict>,
}

impl Health {
    /// Combines the verdicts: the worst volume speaks for all.
    pub fn of(volumes: Vec<Verdict>) -> Health {
        let Some(worst) = volumes.iter().rev().max_by_key(|verdict| verdict.level) else {
            let sentence = "There are no volumes on this machine: braid create --help.".to_owned();
            return Health { level: Level::Idle, word: "No volumes", sentence, is_whole: true, volumes };
        };
        let number = |level| volumes.iter().filter(|verdict| verdict.level == level).count();
        let sentence = match (volumes.len(), number(Level::Good), number(Level::Idle)) {
            (1, ..) => worst.sentence.clone(),
            (count, _, 0) if worst.level == Level::Good => {
                format!("All {count} volumes: the data is in place.")
            }
            (_, good, idle) if worst.level == Level::Good => {
                format!("{good} served, where the data is in place; {idle} not served.")
            }
            (count, good, _) => {
                format!("{}: {} ({good} of {count} volumes are well.)", worst.name, worst.sentence)
            }
        };
        let is_whole = volumes.iter().all(|verdict| verdict.is_whole);
        Health { level: worst.level, word: worst.word, sentence, is_whole, volumes }
    }
}

/// Judges the report of a volume, or the failure to get one.
pub(crate) fn judge(name: &str, report: Result<&VolumeReport, &Error>) -> Verdict {
    let verdict = |level, word, sentence, is_whole, notes| Verdict {
        name: name.to_owned(),
        level,
        word,
        sentence,
        is_whole,
        notes,
    };
    match report {
        Ok(VolumeReport::Served(status)) => {
            let (level, word, sentence) = served(status);
            verdict(level, word, sentence, status.exit_status() == 0, notes(status))
        }
        Ok(VolumeReport::Resting(resting)) => {
            let (level, word, sentence) = at_rest(resting);
            verdict(level, word, sentence, resting.exit_status() == 0, Vec::new())
        }
        Ok(VolumeReport::Silent(silent)) if silent.is_opening() => {
            verdict(Level::Warning, "Opening", capital(&silent.error), false, Vec::new())
        }
        Ok(VolumeReport::Silent(silent)) => {
            verdict(Level::Bad, "No answer", capital(&silent.error), false, Vec::new())
        }
        Err(error) => verdict(Level::Bad, "Unknown", capital(error), false, Vec::new()),
    }
}

/// The verdict about a served volume. The first rule that holds decides.
fn served(status: &StatusReport) -> (Level, &'static str, String) {
    if let Some(failure) = &status.failure {
        let sentence = format!(
            "No flush can succeed any more: {failure}. Check the device, stop the daemon, and serve the \
             volume again."
        );
        return (Level::Bad, "Failed", sentence);
    }
    if status.lost_bytes > 0 {
        let sentence = format!("{} read as errors: their only copy is gone.", Bytes(status.lost_bytes));
        return (Level::Bad, "Data lost", sentence);
    }
    let not_in_use = |device: &&DeviceReport| !matches!(device.state.as_str(), "active" | "draining");
    let faulty: Vec<_> = status.devices.iter().filter(not_in_use).collect();
    if let [first, rest @ ..] = &faulty[..] {
        let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
        let sentence = format!(
            "{} ({}) is {}{more}: a further failure may lose data.",
            first.device, first.path, first.state
        );
        return (Level::Warning, "Degraded", sentence);
    }
    if status.behind_bytes > 0 {
        let sentence = format!("A copy of up to {} is being brought up to date.", Bytes(status.behind_bytes));
        return (Level::Warning, "Catching up", sentence);
    }
    if let Some(failure) = &status.epoch_failure {
        let sentence = format!("No epoch can end, and the disk may lack more than max-lag: {failure}.");
        return (Level::Warning, "Degraded", sentence);
    }
    match status.durability {
        Durability::None => {
            (Level::Warning, "In memory", "A device is memory: nothing survives the daemon.".to_owned())
        }
        Durability::DaemonCrash => {
            let sentence =
                "Everything is in place. Devices are emulated: a power cut may lose flushed data.".to_owned();
            (Level::Warning, "Emulated", sentence)
        }
        Durability::PowerCut => whole(status),
    }
}

fn whole(status: &StatusReport) -> (Level, &'static str, String) {
    let costs = |device: &&DeviceReport| device.loss_bytes > 0;
    match status.devices.iter().filter(costs).max_by_key(|device| device.loss_bytes) {
        None => (
            Level::Good,
            "Safe",
            "Everything is in place, and the loss of any one device costs nothing.".into(),
        ),
        Some(device) => {
            let sentence = format!(
                "Everything is in place. The loss of {} would cost up to {}.",
                device.device,
                Bytes(device.loss_bytes)
            );
            (Level::Good, "Whole", sentence)
        }
    }
}

fn at_rest(resting: &RestingReport) -> (Level, &'static str, String) {
    let name = &resting.name;
    if let Some(problem) = &resting.cannot_end {
        return (Level::Bad, "No answer", capital(problem));
    }
    if resting.is_attached_dead() {
        let sentence = format!(
            "The daemon died, and requests to its block device or mount fail. To remove both: braid detach \
             {name}."
        );
        return (Level::Bad, "Dead mount", sentence);
    }
    if resting.temporary {
        let sentence =
            format!("The daemon of a temporary volume died. To remove the rest: braid forget {name}.");
        return (Level::Idle, "Left over", sentence);
    }
    if resting.ended_unclean {
        let sentence = match resting.pending_log {
            Some(_) => "The last daemon was killed. Its unflushed writes are kept for the next start.",
            None => "The last daemon was killed: unflushed writes may be lost.",
        };
        return (Level::Warning, "Not served", format!("{sentence} To go on: braid serve {name}."));
    }
    (Level::Idle, "Not served", format!("Closed cleanly. To serve the volume: braid serve {name}."))
}

/// Findings that do not decide the verdict.
fn notes(status: &StatusReport) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(lack) = &status.policy_lacks {
        notes.push(format!("{lack}, or add such a device: the volume uses the devices it has."));
    }
    if let Some(why) = &status.pending_log_failure {
        notes.push(format!("A crash of the daemon loses what is not flushed: {why}."));
    }
    if status.over_committed_bytes > 0 {
        notes.push(format!(
            "The volume's files may outgrow the free space of their file systems by {}: free some space.",
            Bytes(status.over_committed_bytes)
        ));
    }
    if let Some(failure) = &status.unapplied_failure {
        notes.push(format!("Bytes of a recovered epoch cannot be applied: {failure}."));
    }
    for device in &status.devices {
        if let Some(error) = &device.last_error {
            notes.push(format!("{}: the latest failed request: {error}", device.device));
        }
    }
    notes
}

/// The message of an error as a sentence.
fn capital(error: &impl ToString) -> String {
    let text = error.to_string();
    let mut rest = text.chars();
    let first = rest.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + rest.as_str()
}
