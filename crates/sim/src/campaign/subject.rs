//! What is put to the test.

use crate::campaign::Setup;
use crate::{Disk, World};
use braid_base::{Bytes, Rng};
use braid_engine::{Export, Result as EngineResult};
use std::ops::Range;

/// Something that makes an export on disks, and finds it again.
pub trait Subject: Clone + 'static {
    /// What guests use.
    type Export: Export;

    /// The subject of one seed: may change what the campaign sets up, and choose its own configuration. The
    /// same numbers give the same configuration.
    fn prepare(&self, _rng: &mut Rng, _setup: &mut Setup) -> Self {
        self.clone()
    }

    /// Makes a new volume. It is durable once this has ended: nothing is cut or disturbed before.
    fn create(self, world: World, disks: Vec<Disk>) -> impl Future<Output = EngineResult<Self::Export>>;

    /// Opens the volume that these disks hold, after a crash or not. A disk may be missing, or be an old copy
    /// of itself, if the campaign disturbs like that.
    fn open(self, world: World, disks: Vec<Disk>) -> impl Future<Output = EngineResult<Self::Export>>;

    /// What one opening begins with. If the opening ends early, it opens the volume in the next life, with
    /// what the machine has noted meanwhile beside its disks.
    fn begun(&self) -> Self {
        self.clone()
    }

    /// What opens the volume in the next life, when this one ends now: with what the machine has noted of it
    /// beside its disks.
    fn noted(&self, _export: &Self::Export) -> Self {
        self.clone()
    }

    /// Closes the volume. All that was acknowledged before is durable afterwards.
    fn close(self, export: Self::Export) -> impl Future<Output = EngineResult<()>> {
        async move { export.flush().await }
    }

    /// Changes the policy while guests work.
    fn change_policy(self, _export: Self::Export, _rng: Rng) -> impl Future<Output = EngineResult<()>> {
        async { Ok(()) }
    }

    /// Compares what no guest sees: the copies with each other, the slots with the map. Guests are at rest;
    /// background work may be going on.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    fn audit(self, _export: Self::Export) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// For each disk, the metadata without which an opening goes on, if the others are sound.
    fn regions(&self, export: &Self::Export) -> Vec<Vec<Range<Bytes>>> {
        self.metadata(export)
    }

    /// For each disk, the ranges whose damage the subject notices: there bytes rot, and writes get lost.
    fn metadata(&self, _export: &Self::Export) -> Vec<Vec<Range<Bytes>>> {
        Vec::new()
    }
}
