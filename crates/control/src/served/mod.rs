//! A volume as its daemon serves it: what admin verbs, the guard, recordings and reports may see and do. The
//! life of the daemon stands above, in [`crate::serve`].
//!
//! ```text
//! devices.rs     add, fail, replace, return a device   notes.rs       notes in the state directory
//! resize.rs      another size under the guests        rejoin.rs      return of remote devices
//! frontends.rs   NBD, file, vhost-user, recording      attachment.rs  the volume as a file
//! status.rs      counters of the engine, as reports    end.rs         the request to end, and its result
//! certificates.rs  TLS of NBD, read anew when files change
//! block.rs       the volume as a ublk block device     via.rs         ways to attach
//! examine.rs     where data lies, and its heat        extent_map.rs  the last map
//! detacher.rs    the process that detaches at the end
//! ```

pub(crate) mod address;
pub(crate) mod attachment;
pub(crate) mod block;
pub(crate) mod catch_up;
pub(crate) mod certificates;
pub(crate) mod detacher;
pub(crate) mod devices;
pub(crate) mod end;
pub(crate) mod examine;
mod extent_map;
pub(crate) mod first_of;
pub(crate) mod frontends;
pub(crate) mod notes;
pub(crate) mod options;
pub(crate) mod rejoin;
mod resize;
pub(crate) mod status;
pub(crate) mod via;

use crate::device::open::OpenDevice;
use crate::members::open::{Member, Members};
use crate::report::changes::PolicyReport;
use crate::report::types::{ExplainReport, StatusReport};
use crate::state::lasting::Lasting;
use crate::state::state_dir::{DeviceRecord, StateDir, VolumeName, VolumeRecord};
use crate::{Error, Result};
use braid_base::{Bytes, DeviceId, Nanos};
use braid_engine::{ResizableVolume, Volume};
use braid_runtime::{Runtime, Semaphore};
use braid_uring::Ring;
use catch_up::CatchUp;
use end::End;
use extent_map::ExtentMap;
use frontends::Frontends;
use status::{explain_report, status_report};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A served volume.
pub(crate) struct ServedVolume {
    ring: Ring,
    name: VolumeName,
    state: StateDir,
    volume: ResizableVolume<Ring, OpenDevice>,
    /// Memory that outlives this process: the pending log.
    lasting: Lasting,
    members: RefCell<Vec<Member>>,
    /// Devices that the administrator excluded: they return by command only.
    excluded: RefCell<BTreeSet<DeviceId>>,
    /// Devices that the record in the state directory calls outdated; `None` if unknown.
    noted: RefCell<Option<Vec<DeviceId>>>,
    /// Paths of the opened devices, until they are in the record.
    places: RefCell<Vec<(usize, DeviceRecord)>>,
    /// Serialises changes of `noted` and `places`.
    noting: Semaphore,
    /// Serialises additions of devices.
    adding: Semaphore,
    catch_up: CatchUp,
    map: ExtentMap,
    frontends: Frontends,
    end: End,
    started: Nanos,
}

/// Time between two checks whether a worker thread has ended.
const POLL: Nanos = Nanos::from_millis(2);

impl ServedVolume {
    /// Composes an opened volume and its frontends.
    pub fn new(
        ring: &Ring,
        state: &StateDir,
        name: &VolumeName,
        members: Members,
        volume: ResizableVolume<Ring, OpenDevice>,
        lasting: Lasting,
        frontends: Frontends,
    ) -> ServedVolume {
        ServedVolume {
            ring: ring.clone(),
            name: name.clone(),
            state: state.clone(),
            volume,
            lasting,
            members: RefCell::new(members.list),
            excluded: RefCell::default(),
            noted: RefCell::default(),
            places: RefCell::new(members.records),
            noting: Semaphore::new(1),
            adding: Semaphore::new(1),
            catch_up: CatchUp::default(),
            map: ExtentMap::default(),
            frontends,
            end: End::default(),
            started: ring.now(),
        }
    }

    /// Returns the ring of the daemon.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the name of the volume.
    pub fn name(&self) -> &VolumeName {
        &self.name
    }

    /// Returns the volume of the engine. A change of the size replaces the volume.
    pub fn volume(&self) -> Volume<Ring, OpenDevice> {
        self.volume.volume()
    }

    /// Closes the volume.
    pub async fn close(&self) -> braid_engine::Result<()> {
        self.volume.close().await
    }

    /// Returns the ways to the volume.
    pub fn frontends(&self) -> &Frontends {
        &self.frontends
    }

    /// Returns the end of the daemon.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Reads the record of the volume.
    pub fn record(&self) -> Result<VolumeRecord> {
        self.state.load(&self.name)
    }

    /// Returns an open device; `None` while the device is missing.
    pub fn device(&self, device: DeviceId) -> Option<OpenDevice> {
        self.members.borrow().iter().find(|member| member.id == device)?.device.clone()
    }

    /// Returns the path of a device; the last known path if the device is missing.
    pub fn name_of(&self, device: DeviceId) -> Option<String> {
        let members = self.members.borrow();
        members.iter().find(|member| member.id == device).map(|member| member.name.clone())
    }

    /// Returns the paths of devices with requests in flight that the device has not answered.
    pub fn owing(&self) -> Vec<String> {
        let (owing, members) = (self.volume().owing(), self.members.borrow());
        let owing = members.iter().filter(|member| owing.contains(&member.id));
        owing.map(|member| member.name.clone()).collect()
    }

    /// Returns the status of the volume and its frontends, without the guard.
    pub fn status(&self) -> StatusReport {
        let uptime = self.ring.now().saturating_sub(self.started);
        let status = self.volume().status();
        let (caught_up_bytes_per_second, behind_left_seconds) =
            self.catch_up.rate(self.ring.now(), status.behind.saturating_sub(status.deferred));
        self.frontends.status(StatusReport {
            caught_up_bytes_per_second,
            behind_left_seconds,
            pending_log: self.lasting.path().filter(|_| self.volume().has_pending_log()),
            pending_log_failure: self.lasting.failure(self.volume().has_pending_log()),
            ..status_report(self.name.as_str(), uptime, status, &self.members.borrow())
        })
    }

    /// Explains where the byte at `offset` lies, and why.
    pub fn explain(&self, offset: Bytes) -> Result<ExplainReport> {
        let explanation = self.volume().explain(offset)?;
        let (policy, status) = (self.volume().policy(), self.volume().status());
        Ok(explain_report(self.name.as_str(), policy, explanation, &status, &self.members.borrow()))
    }

    /// Returns the policy.
    pub fn policy(&self) -> PolicyReport {
        PolicyReport { name: self.name.to_string(), policy: self.volume().policy() }
    }

    /// Changes the policy. No data is copied now.
    ///
    /// # Errors
    /// `Usage` for a policy that is unknown or does not fit.
    pub async fn set_policy(&self, text: &str) -> Result<PolicyReport> {
        self.volume().set_policy(text).await.map_err(Error::of_policy)?;
        tracing::info!("policy {}", self.volume().policy());
        Ok(self.policy())
    }

    /// Runs `work` in a thread of its own: `work` may wait for a device or a file system, and guests do not
    /// wait.
    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let working = std::thread::spawn(work);
        while !working.is_finished() {
            self.ring.sleep(POLL).await;
        }
        working.join().expect("work in a thread of its own does not panic")
    }
}
