//! `braid recover`: continues a volume without its SSDs, from the disk that keeps epochs. The recovery is
//! either permanent, or read-only for a first look.

use crate::members::open::{
    Member, Purpose, handles, names, open_members, open_members_to_read, open_options,
};
use crate::report::ranges::{LostRange, MissingRange, lost_ranges};
use crate::served::address::{Encryption, NbdAddress, check_local, nbd_uri};
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::random_owner;
use crate::state::state_dir::{StateDir, VolumeName, VolumeRecord};
use crate::volume::at_rest;
use crate::volume::check::check_known;
use crate::volume::ring::{in_world, on_ring};
use crate::{Error, ErrorKind, Result};
use braid_base::{Bytes, DeviceId};
use braid_engine::{Export, OpenOptions, Past, PastState, Volume};
use braid_nbd::{Server, ServerConfig};
use braid_runtime::Runtime;
use braid_uring::{Listener, Ring};
use serde::{Deserialize, Serialize};

/// Result of a recovery.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecoverReport {
    /// The volume.
    pub name: String,
    /// The epoch at whose end the volume had its present content.
    pub epoch: u64,
    /// End of the epoch in seconds since 1970, by the clock of the serving machine; null if that machine did
    /// not note the time. The disk does not know how much longer the SSDs were in use.
    pub epoch_ended_unix_seconds: Option<f64>,
    /// Time since the end of the epoch, whether or not the volume was in use since: not the age of the lost
    /// writes.
    pub age_seconds: Option<f64>,
    /// True if, as far as this host knows, the disk was out of use while the SSDs were still in use. No bound
    /// of the policy then holds for the lost writes.
    pub outdated: bool,
    /// The devices that were excluded, by place.
    pub given_up: Vec<String>,
    /// Ranges with newer bytes on a missing device, in whole spans: all losses lie within these ranges.
    pub only_on_missing: Vec<MissingRange>,
    /// Bytes of the volume that are in the disk's journal and not yet applied to their places: only Braid
    /// finds them in the journal.
    pub unapplied_bytes: u64,
    /// Ranges in a damaged part of the journal: they read as errors until their whole extents are written or
    /// discarded.
    pub lost: Vec<LostRange>,
    /// True if the volume had been recovered before. The volume then has the content of that recovery, with
    /// all later writes of guests.
    pub recovered_before: bool,
}

/// Time at which the content of the journal is applied to its places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apply {
    /// Before the recovery returns.
    Now,
    /// While the volume is served.
    WhileServed,
}

/// A volume that is served read-only from its disk alone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LookReport {
    /// What a recovery would report.
    #[serde(flatten)]
    pub recovered: RecoverReport,
    /// The URIs of its NBD exports.
    pub nbd_uris: Vec<String>,
}

/// Recovers a volume without its SSDs from its disk: the whole volume as it was at the end of the newest
/// epoch.
///
/// Later writes are lost, and so is the content of the missing devices, even if the devices come back. The
/// volume can be served at once. The content of the journal is applied to its places while the volume is
/// served, or before this function returns ([`Apply`]). Until all of it is applied, the recovery may be
/// repeated.
///
/// # Errors
/// `Busy` while the volume is served; `Degraded` if no device is missing, or the disk alone is not a state of
/// the volume: nothing was changed then.
pub fn recover(state: &StateDir, name: &VolumeName, apply: Apply) -> Result<RecoverReport> {
    let (_lock, record) = VolumeLock::take_known(state, name, "recovered")?;
    let newer = newer_on_missing(state, &record);
    on_ring(async |ring| {
        let members = open_members(ring, state, &record, Purpose::Recovery).await?;
        let list = &members.list;
        let distrust = missing(name, list)?;
        let lasting = Lasting::of(state, &record);
        let open = open_options(&record, list, &lasting);
        let options = OpenOptions { recover: true, distrust, owner: random_owner(), ..open };
        let (volume, recovery) = Volume::open(ring.clone(), handles(list), options)
            .await
            .map_err(|error| members.explain(error))?;
        let applied = match apply {
            Apply::Now => volume.complete_recovery().await,
            Apply::WhileServed => Ok(()),
        };
        let size = volume.size();
        at_rest::close(state, &record, &members, &volume, &lasting).await?;
        applied?;
        let status = volume.status();
        let past = recovery.adopted.expect("an opening that was to recover has done so, or failed");
        Ok(RecoverReport {
            unapplied_bytes: status.unapplied.unwrap_or_default().0,
            lost: lost_ranges(&status),
            ..report(ring, &record, list, past, size, newer)
        })
    })
}

/// Serves the state of the disk alone read-only, by NBD, until the process is told to stop. Nothing on the
/// disk changes: [`recover`] can follow, or the SSDs can come back. Calls `ready` when the server accepts
/// connections.
///
/// # Errors
/// As [`recover`]. `Usage` if other machines reach an address: the reader has no TLS.
pub fn look(
    state: &StateDir,
    name: &VolumeName,
    nbd: &[NbdAddress],
    ready: impl FnOnce(&LookReport),
) -> Result<()> {
    check_local(nbd)?;
    let (_lock, record) = VolumeLock::take_known(state, name, "recovered")?;
    let newer = newer_on_missing(state, &record);
    in_world(async |world| {
        let ring = &world.ring;
        let members = open_members_to_read(ring, state, &record).await?;
        let list = &members.list;
        missing(name, list)?;
        let (past, past_state) =
            Past::open(ring, handles(list), &names(list)).await.map_err(|error| members.explain(error))?;
        let (size, journaled) = (past.size(), past.journaled());
        let lost = past.damaged().iter().map(LostRange::of).collect();
        let server = Server::new(ring.clone(), past, ServerConfig::new(name.as_str(), &world.arena))?;
        let usual = [NbdAddress::Unix(state.nbd_socket(name))];
        let mut nbd_uris = Vec::new();
        for address in if nbd.is_empty() { &usual[..] } else { nbd } {
            let listener = match address {
                NbdAddress::Unix(path) => Listener::bind_unix(ring, path),
                NbdAddress::Tcp(address) => Listener::bind_tcp(ring, *address),
            }?;
            nbd_uris.push(nbd_uri(name, listener.local_address(), Encryption::None));
            let server = server.clone();
            ring.spawn(async move { server.serve(listener).await });
        }
        let recovered = RecoverReport {
            unapplied_bytes: journaled.0,
            lost,
            ..report(ring, &record, list, past_state, size, newer)
        };
        ready(&LookReport { recovered, nbd_uris });
        if let Err(error) = world.signals.recv().await {
            tracing::info!(%error, "no signals: stopping");
        }
        server.shutdown().await;
        Ok(())
    })
}

/// Returns the missing devices; an error if none is missing.
fn missing(name: &VolumeName, members: &[Member]) -> Result<Vec<DeviceId>> {
    let missing: Vec<_> =
        members.iter().filter(|member| member.device.is_none()).map(|member| member.id).collect();
    if missing.is_empty() {
        let problem = format!("volume '{name}' lacks no device: braid serve {name}");
        return Err(Error::new(ErrorKind::Degraded, problem));
    }
    Ok(missing)
}

/// Returns the ranges with losses, in whole spans; `None` if the ranges are unknown, since too many devices
/// are missing or the map is damaged. A recovery does not need the ranges.
fn newer_on_missing(state: &StateDir, record: &VolumeRecord) -> Option<Vec<MissingRange>> {
    match check_known(state, record) {
        Ok(report) if report.fatal.is_empty() => Some(report.only_on_missing),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(%error, "the extent of the loss is unknown");
            None
        }
    }
}

fn report(
    ring: &Ring,
    record: &VolumeRecord,
    members: &[Member],
    past: PastState,
    size: Bytes,
    newer: Option<Vec<MissingRange>>,
) -> RecoverReport {
    let PastState { device, epoch, ended, goes_on } = past;
    let age = ring.calendar().zip(ended).map(|(now, ended)| now.saturating_sub(ended));
    let age_seconds = age.map(|age| age.as_secs_f64());
    let others = members.iter().map(|member| member.id).filter(|&id| id != device);
    let given_up: Vec<String> = others.map(|id| id.to_string()).collect();
    let anywhere =
        |device: &String| MissingRange { device: device.clone(), offset_bytes: 0, length_bytes: size.0 };
    let only_on_missing = match goes_on {
        // The earlier recovery excluded the content of the missing devices.
        true => Vec::new(),
        false => newer.unwrap_or_else(|| given_up.iter().take(1).map(anywhere).collect()),
    };
    RecoverReport {
        name: record.name.to_string(),
        epoch,
        epoch_ended_unix_seconds: ended.map(|ended| ended.as_secs_f64()),
        age_seconds,
        outdated: !goes_on && record.outdated().contains(&device),
        given_up,
        only_on_missing,
        unapplied_bytes: 0,
        lost: Vec::new(),
        recovered_before: goes_on,
    }
}
