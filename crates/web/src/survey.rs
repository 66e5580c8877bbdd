//! Reports of all volumes, shared by all readers.
//!
//! A daemon is asked at most once at a time, on a blocking thread, and a report serves all readers for
//! [`FRESH`]. Readers wait [`PATIENCE`] for an answer, and [`NO_PATIENCE`] for a daemon that was silent
//! before. A daemon that hangs occupies one thread, and delays the reports of all volumes once.

use crate::daemons::Daemons;
use braid_control::{Error, ErrorKind, Request, Result, SilentReport, VolumeName, VolumeReport};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

/// Age up to which a report serves further readers: less than the second between events.
const FRESH: Duration = Duration::from_millis(900);
/// Longest wait for an answer. A daemon answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for an answer of a daemon that did not answer the question before.
const NO_PATIENCE: Duration = Duration::from_millis(200);
/// Longest wait for a change: the patience of the admin client, and its connection.
const CHANGE_PATIENCE: Duration = Duration::from_secs(150);
/// Longest wait for a map or an explanation, and its place in the line.
const LOOK_PATIENCE: Duration = Duration::from_secs(15);
/// Most maps and explanations asked for at a time; each occupies a thread until its daemon answers, or the
/// admin client gives up.
pub(crate) const MOST_LOOKS: usize = 8;
/// Age up to which a map serves further readers. The daemon's own map may be as old.
const FRESH_MAP: Duration = Duration::from_secs(4);
/// Most maps kept: some 300 KiB each.
const MOST_MAPS: usize = 16;
/// Most changes at a time; each occupies a thread until its daemon answers.
pub(crate) const MOST_CHANGES: usize = 16;
/// Most volumes of a machine in the dashboard; each may occupy a thread.
pub(crate) const MOST_VOLUMES: usize = 256;

/// A report that several readers share, or its failure.
pub(crate) type Shared = Result<Arc<VolumeReport>>;

/// The daemons, with their latest reports.
pub(crate) struct Survey {
    daemons: Arc<dyn Daemons>,
    asked: Mutex<BTreeMap<VolumeName, Asked>>,
    named: Mutex<Option<watch::Receiver<Option<Names>>>>,
    changes: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    maps: Mutex<Vec<KeptMap>>,
}

/// A map that further readers may get.
struct KeptMap {
    name: VolumeName,
    request: Request,
    at: Instant,
    map: Arc<Value>,
}

/// The latest question to a daemon.
struct Asked {
    answer: watch::Receiver<Option<Answer>>,
    /// The end of all readers' patience.
    deadline: Instant,
    /// The answer before, for readers that have run out of patience.
    before: Option<Shared>,
}

#[derive(Clone)]
struct Answer {
    at: Instant,
    report: Shared,
}

#[derive(Clone)]
struct Names {
    at: Instant,
    names: Result<Vec<VolumeName>>,
}

impl Survey {
    pub fn new(daemons: Arc<dyn Daemons>) -> Survey {
        Survey {
            daemons,
            asked: Mutex::default(),
            named: Mutex::default(),
            changes: Arc::new(Semaphore::new(MOST_CHANGES)),
            looks: Arc::new(Semaphore::new(MOST_LOOKS)),
            maps: Mutex::default(),
        }
    }

    /// Returns the names of all volumes, up to [`MOST_VOLUMES`].
    ///
    /// # Errors
    /// Failures to read the state directory; `Io` if the file system does not answer in time.
    pub async fn names(&self) -> Result<Vec<VolumeName>> {
        let mut receiver = self.ask_names();
        let deadline = Instant::now() + PATIENCE;
        let found = timeout_at(deadline, receiver.wait_for(Option::is_some)).await;
        match found {
            Ok(Ok(found)) => found.as_ref().expect("waited for").names.clone(),
            Ok(Err(_)) | Err(_) => Err(Error::new(
                ErrorKind::Io,
                format!("the state directory did not answer within {PATIENCE:?}: see the kernel's log"),
            )),
        }
    }

    fn ask_names(&self) -> watch::Receiver<Option<Names>> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receiver) = &*named {
            let is_fresh = match &*receiver.borrow() {
                Some(names) => names.at.elapsed() < FRESH,
                None => receiver.has_changed().is_ok(),
            };
            if is_fresh {
                return receiver.clone();
            }
        }
        let (sender, receiver) = watch::channel(None);
        let daemons = self.daemons.clone();
        spawn_blocking(move || {
            let names = daemons.names().map(|mut names| {
                names.truncate(MOST_VOLUMES);
                names
            });
            sender.send_replace(Some(Names { at: Instant::now(), names }));
        });
        *named = Some(receiver.clone());
        receiver
    }

    /// Returns the report of a volume within [`PATIENCE`].
    ///
    /// # Errors
    /// `Invalid` if there is no such volume; failures of the volume's record and daemon.
    pub async fn report(&self, name: &VolumeName) -> Shared {
        if !self.names().await?.contains(name) {
            let problem = format!("there is no volume '{name}' on this machine: see braid status");
            return Err(Error::new(ErrorKind::Invalid, problem));
        }
        self.answer(name).await
    }

    /// Returns the reports of all volumes within twice [`PATIENCE`], names included.
    pub async fn all(&self) -> Result<Vec<(VolumeName, Shared)>> {
        let names = self.names().await?;
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| names.contains(name));
        // All daemons are asked before the first answer is awaited.
        for name in &names {
            self.ask(name);
        }
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            let report = self.answer(&name).await;
            all.push((name, report));
        }
        Ok(all)
    }

    /// Sends a request to the daemon of a volume.
    ///
    /// # Errors
    /// Errors of the daemon; `Io` if the daemon does not answer in time, `Busy` if many changes wait.
    pub async fn call(&self, name: VolumeName, request: Request) -> Result<Value> {
        let Ok(place) = self.changes.clone().try_acquire_owned() else {
            let problem =
                format!("{MOST_CHANGES} changes wait for their daemons, the limit: try again later");
            return Err(Error::new(ErrorKind::Busy, problem));
        };
        let daemons = self.daemons.clone();
        let (problem, deadline) = (silence(&name, CHANGE_PATIENCE), Instant::now() + CHANGE_PATIENCE);
        let reply = spawn_blocking(move || {
            let _place = place;
            daemons.call(&name, request)
        });
        match timeout_at(deadline, reply).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) | Err(_) => Err(problem),
        }
    }

    /// Asks the daemon of a volume for a map or an explanation. A fresh map serves further readers.
    ///
    /// # Errors
    /// Errors of the daemon; `Invalid` if there is no such volume; `Io` if the daemon does not answer in
    /// time; `Busy` if daemons that do not answer occupy all places.
    pub async fn look(&self, name: VolumeName, request: Request) -> Result<Arc<Value>> {
        let deadline = Instant::now() + LOOK_PATIENCE;
        let Ok(Ok(place)) = timeout_at(deadline, self.looks.clone().acquire_owned()).await else {
            let problem =
                format!("{MOST_LOOKS} questions wait for their daemons, the limit: try again later");
            return Err(Error::new(ErrorKind::Busy, problem));
        };
        if let Some(map) = self.kept_map(&name, &request) {
            return Ok(map);
        }
        let name = self.known(name.as_str()).await?;
        let (daemons, problem) = (self.daemons.clone(), silence(&name, LOOK_PATIENCE));
        let question = (name.clone(), request.clone());
        let reply = spawn_blocking(move || {
            let _place = place;
            daemons.call(&question.0, question.1)
        });
        match timeout_at(deadline, reply).await {
            Ok(Ok(reply)) => {
                let reply = Arc::new(reply?);
                if matches!(request, Request::Map { .. }) {
                    self.keep_map(name, request, reply.clone());
                }
                Ok(reply)
            }
            Ok(Err(_)) | Err(_) => Err(problem),
        }
    }

    /// Returns the name of a volume of this machine.
    ///
    /// # Errors
    /// `Usage` if the text is no name; `Invalid` if there is no such volume; errors of [`Survey::names`].
    pub async fn known(&self, name: &str) -> Result<VolumeName> {
        let name: VolumeName = name.parse()?;
        match self.names().await?.contains(&name) {
            true => Ok(name),
            false => {
                let problem = format!("there is no volume '{name}' on this machine: see braid status");
                Err(Error::new(ErrorKind::Invalid, problem))
            }
        }
    }

    fn kept_map(&self, name: &VolumeName, request: &Request) -> Option<Arc<Value>> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|kept| kept.at.elapsed() < FRESH_MAP);
        let kept = maps.iter().find(|kept| kept.name == *name && kept.request == *request);
        kept.map(|kept| kept.map.clone())
    }

    fn keep_map(&self, name: VolumeName, request: Request, map: Arc<Value>) {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|kept| kept.name != name || kept.request != request);
        if maps.len() >= MOST_MAPS {
            maps.remove(0);
        }
        maps.push(KeptMap { name, request, at: Instant::now(), map });
    }

    async fn answer(&self, name: &VolumeName) -> Shared {
        let (mut receiver, deadline) = self.ask(name);
        if let Ok(Ok(answer)) = timeout_at(deadline, receiver.wait_for(Option::is_some)).await {
            return answer.as_ref().expect("waited for").report.clone();
        }
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match asked.get(name).and_then(|asked| asked.before.clone()) {
            // The client knows more about the silence than this deadline.
            Some(report) if is_silent(&report) => report,
            _ => Ok(Arc::new(VolumeReport::Silent(SilentReport {
                name: name.to_string(),
                served: true,
                process_id: None,
                process_state: LATE.to_owned(),
                error: silence(name, PATIENCE),
            }))),
        }
    }

    /// Asks the daemon, unless an answer is fresh or awaited. Returns the place of the answer, and the end of
    /// the readers' patience.
    fn ask(&self, name: &VolumeName) -> (watch::Receiver<Option<Answer>>, Instant) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = None;
        if let Some(last) = asked.get(name) {
            let answer = last.answer.borrow().clone();
            let is_awaited = answer.is_none() && last.answer.has_changed().is_ok();
            if is_awaited || answer.as_ref().is_some_and(|answer| answer.at.elapsed() < FRESH) {
                return (last.answer.clone(), last.deadline);
            }
            before = answer.map(|answer| answer.report);
        }
        let patience = if before.as_ref().is_some_and(is_silent) { NO_PATIENCE } else { PATIENCE };
        let (sender, answer) = watch::channel(None);
        let (daemons, volume) = (self.daemons.clone(), name.clone());
        spawn_blocking(move || {
            let report = daemons.report(&volume).map(Arc::new);
            sender.send_replace(Some(Answer { at: Instant::now(), report }));
        });
        let deadline = Instant::now() + patience;
        asked.insert(name.clone(), Asked { answer: answer.clone(), deadline, before });
        (answer, deadline)
    }
}

/// State of a process whose client has not given up yet.
const LATE: &str = "unknown";

/// True if the daemon has not answered within the readers' patience, and its client still waits.
pub(crate) fn is_late(report: &Shared) -> bool {
    report.as_ref().is_ok_and(|report| {
        matches!(&**report, VolumeReport::Silent(silent) if silent.process_id.is_none() && silent.process_state == LATE)
    })
}

fn is_silent(report: &Shared) -> bool {
    report.as_ref().is_ok_and(|report| matches!(**report, VolumeReport::Silent(_)))
}

fn silence(name: &VolumeName, limit: Duration) -> Error {
    let problem = format!("the daemon of volume '{name}' did not answer within {limit:?}");
    Error::new(ErrorKind::Io, problem + ": see its state with 'braid status', and its log")
}
