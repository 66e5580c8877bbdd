//! `braid policy`: reads or changes the policy that places a volume's data, with or without a daemon.

use crate::admin::client::Client;
use crate::admin::protocol::Request;
use crate::device::spec::DeviceSpec;
use crate::members::finding::find;
use crate::members::open::{Purpose, handles, lacks_all, open_members, open_options};
use crate::report::changes::PolicyReport;
use crate::state::lasting::Lasting;
use crate::state::lock::VolumeLock;
use crate::state::noted::with_notes;
use crate::state::state_dir::{StateDir, VolumeName};
use crate::volume::at_rest;
use crate::volume::ring::on_ring;
use crate::{Error, ErrorKind, Result};
use braid_base::DeviceId;
use braid_engine::Volume;
use braid_policy::DeviceView;

/// Returns the policy of a volume: from its daemon, or from its devices if no daemon serves the volume.
pub fn policy(state: &StateDir, name: &VolumeName) -> Result<PolicyReport> {
    match Client::connect(state, name) {
        Ok(mut client) => client.policy(),
        Err(error) if error.kind() == ErrorKind::NotServed => {
            let (_lock, record) = VolumeLock::take_known(state, name, "read")?;
            let found = find(state, &record)?;
            let policy = found.policy.clone().ok_or_else(|| lacks_all(&record, &found))?;
            Ok(PolicyReport { name: name.to_string(), policy })
        }
        Err(error) => Err(error),
    }
}

/// Changes the policy. No data is copied now: data moves to its new places in the background while the volume
/// is served.
pub fn set_policy(state: &StateDir, name: &VolumeName, text: &str) -> Result<PolicyReport> {
    match Client::connect(state, name) {
        Ok(mut client) => client.call(Request::SetPolicy { policy: text.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotServed => {
            let (_lock, record) = VolumeLock::take_known(state, name, "changed")?;
            let policy = on_ring(async |ring| {
                let members = open_members(ring, state, &record, Purpose::Use(&[])).await?;
                let list = &members.list;
                let lasting = Lasting::of(state, &record);
                let options = with_notes(open_options(&record, list, &lasting), state, &record);
                let (volume, _) = Volume::open(ring.clone(), handles(list), options)
                    .await
                    .map_err(|error| members.explain(error))?;
                let changed = volume.set_policy(text).await.map_err(Error::of_policy);
                let policy = volume.policy();
                at_rest::close(state, &record, &members, &volume, &lasting).await?;
                changed.map(|()| policy)
            })?;
            Ok(PolicyReport { name: name.to_string(), policy })
        }
        Err(error) => Err(error),
    }
}

/// Checks a policy for devices that are not open yet.
///
/// # Errors
/// `Usage`: names the setting, the value and the remedy.
pub fn check_policy(text: &str, devices: &[DeviceSpec]) -> Result<()> {
    let view =
        |(place, spec): (usize, &DeviceSpec)| DeviceView::empty(DeviceId(place as u16), spec.class, SLOTS);
    let views: Vec<DeviceView> = devices.iter().enumerate().map(view).collect();
    braid_policy::parse(text, &views).map(drop).map_err(|e| Error::new(ErrorKind::Usage, e.to_string()))
}

/// Number of slots of a stand-in device: any number will do to read a policy's settings.
const SLOTS: u32 = 1 << 20;
