//! Programs that commit, and a search for their records after a loss. Each program writes a record, waits
//! until the record is durable, and writes the next record.

use crate::demo::stage::Stage;
use braid_control::{Error, ErrorKind, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a record: the size of a database page.
const RECORD: usize = 4096;
/// Places for records in the file of a program. New records overwrite old records: the file does not grow,
/// and a commit changes no metadata of the file system.
const PLACES: u64 = 2048;
const SECOND: Duration = Duration::from_secs(1);
/// Longest wait for commits in flight if the demo fails: a hung volume must not hold up the demo.
const LAST_COMMIT: Duration = Duration::from_secs(5);
/// An odd number with scattered multiples (Knuth's).
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Running programs. Dropping the value ends the programs after their commits in flight, so that the file
/// system can be unmounted; the wait ends after 5 s.
pub struct Writers {
    threads: Vec<JoinHandle<io::Result<()>>>,
    log: Arc<Log>,
}

/// Acknowledgements of all programs, and the signal to stop.
struct Log {
    start: Instant,
    stop: AtomicBool,
    /// For each program, the time of the acknowledgement of each commit, since `start`.
    acknowledged: Vec<Mutex<Vec<Duration>>>,
}

/// Result of a search for acknowledged records.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Kept {
    /// Number of acknowledged commits that are present, and number of lost ones.
    pub commits: u64,
    pub lost: u64,
    /// Time from the acknowledgement of the first lost commit to the last acknowledgement of all programs.
    pub lost_time: Duration,
}

/// Path of the file of a program.
fn path_of(directory: &Path, writer: usize) -> PathBuf {
    directory.join(format!("program-{writer}"))
}

fn place_of(number: u64) -> u64 {
    (number.wrapping_mul(SCATTER) >> 32) % PLACES
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD / 8)
}

impl Writers {
    /// Makes the files of `count` programs in a directory, and starts the programs.
    pub fn start(directory: &Path, count: usize) -> Result<Writers> {
        let failed = |e| Error::io(format_args!("writing in {}", directory.display()), &e);
        for writer in 0..count {
            let file = File::create(path_of(directory, writer)).map_err(failed)?;
            file.write_all_at(&vec![0; RECORD * PLACES as usize], 0).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        let acknowledged = (0..count).map(|_| Mutex::default()).collect();
        let log = Arc::new(Log { start: Instant::now(), stop: AtomicBool::new(false), acknowledged });
        let start = |writer| {
            let (log, path) = (log.clone(), path_of(directory, writer));
            std::thread::spawn(move || log.commit_to(&path, writer))
        };
        Ok(Writers { threads: (0..count).map(start).collect(), log: log.clone() })
    }

    /// Commits so far.
    pub fn commits(&self) -> u64 {
        self.log.commits()
    }

    /// Counts commits for `time`. Every second `tell` receives the commits of the second. Returns the
    /// measured time in seconds, and commits per second.
    ///
    /// # Errors
    /// Errors of `tell`, or an interruption.
    pub fn watch(
        &self,
        stage: &Stage,
        time: Duration,
        mut tell: impl FnMut(u64) -> Result<()>,
    ) -> Result<(f64, f64)> {
        let (start, first) = (Instant::now(), self.commits());
        let mut before = first;
        while start.elapsed() < time {
            stage.sleep(SECOND)?;
            let now = self.commits();
            tell(now - before)?;
            before = now;
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok((seconds, (before - first) as f64 / seconds))
    }

    /// Ends the programs after their commits in flight. I/O errors of the programs are ignored, because the
    /// demo removes the disk beneath the programs.
    pub fn end(mut self) -> Commits {
        self.log.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
        let acknowledged = self.log.acknowledged.iter();
        Commits(
            acknowledged.map(|times| times.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect(),
        )
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.log.stop.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while !self.threads.iter().all(JoinHandle::is_finished) && start.elapsed() < LAST_COMMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Log {
    fn commit_to(&self, path: &Path, writer: usize) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        for number in 1.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            file.write_all_at(&record(number), place_of(number) * RECORD as u64)?;
            file.sync_data()?;
            let times = self.acknowledged[writer].lock();
            times.unwrap_or_else(PoisonError::into_inner).push(self.start.elapsed());
        }
        Ok(())
    }

    fn commits(&self) -> u64 {
        let count = |times: &Mutex<Vec<Duration>>| times.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.acknowledged.iter().map(|times| count(times) as u64).sum()
    }
}

/// Times of the acknowledged commits, for each program.
pub struct Commits(Vec<Vec<Duration>>);

impl Commits {
    /// Looks for the records in the files in `directory`.
    ///
    /// # Errors If a file is unreadable, a record is torn, or a file equals no earlier state: an older record
    /// is missing, and a newer record is present.
    pub fn look_for(&self, directory: &Path) -> Result<Kept> {
        let last = self.0.iter().flatten().max().copied().unwrap_or_default();
        let mut kept = Kept::default();
        for (writer, times) in self.0.iter().enumerate() {
            let path = path_of(directory, writer);
            let bytes = std::fs::read(&path).map_err(|e| Error::io(path.display(), &e))?;
            let newest = newest_of(&bytes)
                .map_err(|wrong| Error::new(ErrorKind::Corrupt, format!("{}: {wrong}", path.display())))?;
            let acknowledged = times.len() as u64;
            kept.commits += newest.min(acknowledged);
            kept.lost += acknowledged.saturating_sub(newest);
            if let Some(&first_lost) = times.get(newest as usize) {
                kept.lost_time = kept.lost_time.max(last.saturating_sub(first_lost));
            }
        }
        Ok(kept)
    }
}

/// Returns the number of the newest record in a file. Fails if a record is torn, or if a place lacks its
/// newest record up to this number.
fn newest_of(bytes: &[u8]) -> std::result::Result<u64, String> {
    let mut found = Vec::new();
    for (place, bytes) in bytes.chunks_exact(RECORD).enumerate() {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let number = words.next().unwrap_or_default();
        if words.any(|word| word != number) {
            return Err(format!("record {place} is torn"));
        }
        found.push(number);
    }
    let newest = found.iter().max().copied().unwrap_or_default();
    let mut wanted = vec![0; found.len()];
    for number in 1..=newest {
        wanted[place_of(number) as usize] = number;
    }
    match (0..).zip(found.iter().zip(&wanted)).find(|(_, (found, wanted))| found != wanted) {
        None => Ok(newest),
        Some((place, (found, wanted))) => Err(format!(
            "record {newest} is there, and at place {place} there is {found} in place of {wanted}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content of a file after `records` records.
    fn file(records: u64) -> Vec<u8> {
        let mut bytes = vec![0; RECORD * PLACES as usize];
        for number in 1..=records {
            let at = place_of(number) as usize * RECORD;
            bytes[at..at + RECORD].copy_from_slice(&record(number));
        }
        bytes
    }

    #[test]
    fn newest_record_is_found_and_missing_older_record_fails() {
        for records in [0, 1, 700, 5000] {
            assert_eq!(newest_of(&file(records)), Ok(records));
        }
        let mut wrong = file(700);
        let at = place_of(600) as usize * RECORD;
        wrong[at..at + RECORD].fill(0);
        assert!(newest_of(&wrong).is_err());
        let mut torn = file(700);
        torn[at + 9] ^= 1;
        assert!(newest_of(&torn).is_err());
    }

    #[test]
    fn missing_acknowledged_commits_count_as_lost() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(path_of(directory.path(), 0), file(700)).unwrap();
        std::fs::write(path_of(directory.path(), 1), file(901)).unwrap();
        let seconds = |count: u64| (1..=count).map(Duration::from_secs).collect();
        let kept = Commits(vec![seconds(750), seconds(900)]).look_for(directory.path()).unwrap();
        assert_eq!(kept, Kept { commits: 1600, lost: 50, lost_time: Duration::from_secs(900 - 701) });
    }

    #[test]
    fn writers_commit_until_ended() {
        let directory = tempfile::tempdir().unwrap();
        let writers = Writers::start(directory.path(), 2).unwrap();
        while writers.commits() < 100 {
            std::thread::yield_now();
        }
        let commits = writers.end();
        let all: usize = commits.0.iter().map(Vec::len).sum();
        assert_eq!(
            commits.look_for(directory.path()).unwrap(),
            Kept { commits: all as u64, ..Kept::default() }
        );
    }
}
