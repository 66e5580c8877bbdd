//! Open pages that wait for events. A reader that is two frames behind loses its connection; a browser
//! connects again by itself.

use axum::body::Bytes;
use braid_control::VolumeName;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Frames that wait for a reader.
const WAITING: usize = 2;
/// Most readers at a time: half of the connections, so that a scrape always has a place.
const MOST_READERS: usize = 32;

/// Readers of events.
#[derive(Default)]
pub(crate) struct Readers(Mutex<Vec<Reader>>);

struct Reader {
    /// The volume that the reader wants in full; none for all volumes.
    volume: Option<VolumeName>,
    frames: Sender<Bytes>,
}

impl Readers {
    /// Adds a reader; none if there are too many.
    pub fn add(&self, volume: Option<VolumeName>, first: Bytes) -> Option<Receiver<Bytes>> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| !reader.frames.is_closed());
        if readers.len() >= MOST_READERS {
            return None;
        }
        let (frames, receiver) = channel(WAITING);
        frames.try_send(first).expect("a new channel has room");
        readers.push(Reader { volume, frames });
        Some(receiver)
    }

    /// Returns the volumes that readers want.
    pub fn wanted(&self) -> Vec<Option<VolumeName>> {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| !reader.frames.is_closed());
        let mut wanted: Vec<_> = readers.iter().map(|reader| reader.volume.clone()).collect();
        wanted.sort();
        wanted.dedup();
        wanted
    }

    /// Sends a frame to each reader, and drops readers that are behind.
    pub fn send(&self, frames: &BTreeMap<Option<VolumeName>, Bytes>) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| {
            let frame = frames.get(&reader.volume);
            frame.is_none_or(|frame| reader.frames.try_send(frame.clone()).is_ok())
        });
    }
}
