//! The daemons of this machine, as the dashboard uses them.

use braid_control::{Client, Request, Result, StateDir, VolumeName, VolumeReport, volume_report};
use serde_json::Value;

/// Access to the daemons of all volumes. Every function may block for seconds.
pub trait Daemons: Send + Sync + 'static {
    /// Returns the names of all volumes, sorted.
    fn names(&self) -> Result<Vec<VolumeName>>;

    /// Returns the report of a volume, served or not.
    fn report(&self, name: &VolumeName) -> Result<VolumeReport>;

    /// Sends a request to the daemon of a volume, and returns the reply.
    fn call(&self, name: &VolumeName, request: Request) -> Result<Value>;
}

impl Daemons for StateDir {
    fn names(&self) -> Result<Vec<VolumeName>> {
        StateDir::names(self)
    }

    fn report(&self, name: &VolumeName) -> Result<VolumeReport> {
        volume_report(self, name)
    }

    fn call(&self, name: &VolumeName, request: Request) -> Result<Value> {
        Client::connect(self, name)?.call(request)
    }
}
