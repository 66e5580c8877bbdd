//! The system under test.

use crate::campaign::Setup;
use crate::{Disk, World};
use braid_base::{Bytes, Rng};
use braid_engine::{Export, Result as EngineResult};
use std::ops::Range;

/// A system that creates an export on disks, and opens the export again.
pub trait Subject: Clone + 'static {
    /// The interface of guests.
    type Export: Export;

    /// Returns the subject of one seed. `prepare` may change the setup of the campaign, and choose its own
    /// configuration. The same random numbers give the same configuration.
    fn prepare(&self, _rng: &mut Rng, _setup: &mut Setup) -> Self {
        self.clone()
    }

    /// Creates a new volume. The volume is durable on return: no cut or disturbance comes earlier.
    fn create(self, world: World, disks: Vec<Disk>) -> impl Future<Output = EngineResult<Self::Export>>;

    /// Opens the volume on these disks, after a crash or not. A disk may be missing, or be an old copy of
    /// itself, if the campaign has such disturbances.
    fn open(self, world: World, disks: Vec<Disk>) -> impl Future<Output = EngineResult<Self::Export>>;

    /// Returns the subject at the beginning of an opening. If the opening ends early, this subject opens the
    /// volume in the next life, with the notes that the machine keeps beside its disks.
    fn begun(&self) -> Self {
        self.clone()
    }

    /// Returns the subject that opens the volume in the next life if this life ends now, with the notes that
    /// the machine keeps beside its disks.
    fn noted(&self, _export: &Self::Export) -> Self {
        self.clone()
    }

    /// Closes the volume. On success, all writes acknowledged earlier are durable.
    fn close(self, export: Self::Export) -> impl Future<Output = EngineResult<()>> {
        async move { export.flush().await }
    }

    /// Changes the policy while guests work.
    fn change_policy(self, _export: Self::Export, _rng: Rng) -> impl Future<Output = EngineResult<()>> {
        async { Ok(()) }
    }

    /// Compares state that no guest sees: the copies with each other, the slots with the map. Guests are at
    /// rest; background work may be in progress.
    ///
    /// # Errors
    /// The inconsistency, as a sentence.
    fn audit(self, _export: Self::Export) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// Returns, for each disk, the metadata that is dispensable for an opening if the other metadata is
    /// sound.
    fn regions(&self, export: &Self::Export) -> Vec<Vec<Range<Bytes>>> {
        self.metadata(export)
    }

    /// Returns, for each disk, the ranges with detectable damage: places for rot and lost writes.
    fn metadata(&self, _export: &Self::Export) -> Vec<Vec<Range<Bytes>>> {
        Vec::new()
    }
}
