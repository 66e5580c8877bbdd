//! Policy state on the devices: learned content for the next opening of the volume.
//!
//! The state is written every five minutes if changed, after a change of the policy, and when the volume
//! closes. Each region has two halves, written alternately. One half is durable before the other is written,
//! so a power cut in between leaves the older state.
//!
//! A lost state costs learned content alone. So a failure here fails nothing else: the failure is logged, and
//! counted by the device. A volume on small devices has no region, and its policy starts anew at each
//! opening.

use crate::Result;
use crate::buffer::buffer;
use crate::core::Extents;
use crate::devices::{Deadline, Devices, Member};
use crate::journal::images;
use braid_base::{Bytes, DeviceId, Nanos};
use braid_format::policy_state::{self, HALF, PolicyState};
use braid_format::superblock::{RegionKind, Superblock};
use braid_format::{Invalid, Uuid};
use braid_policy::{LONGEST_STATE, Origin};
use braid_runtime::{Buf, Device, Runtime, Semaphore};
use std::cell::RefCell;

/// Policy states read and written by this opening.
pub(crate) struct PolicyStates {
    newest: RefCell<Newest>,
    /// Lock: one task writes at a time.
    alone: Semaphore,
}

/// Newest state on the devices.
#[derive(Clone, Default)]
struct Newest {
    epoch: u64,
    sequence: u64,
    /// Name of the policy that wrote the state.
    policy: String,
    state: Vec<u8>,
}

/// Time between writes: a power cut forgets at most five minutes of learning. A state is up to 255 KiB, so
/// the rate is less than 1 KiB/s.
const SAVE_EVERY: Nanos = Nanos::from_secs(300);

const _: () = assert!(LONGEST_STATE.as_usize() <= policy_state::MOST_STATE);

impl PolicyStates {
    /// Reads the newest valid state from the current devices. Without a valid state, the result is an empty
    /// state of the volume's policy.
    pub async fn read<D: Device>(members: &[Member<D>], superblock: &Superblock) -> PolicyStates {
        let policy = superblock.policy.split(',').next().unwrap_or_default().to_owned();
        let mut newest = Newest { policy, ..Newest::default() };
        for (device, region) in images(superblock, RegionKind::PolicyState) {
            let member = &members[device.index()];
            if !member.is_current() {
                continue;
            }
            for place in [region, region + HALF] {
                match read_half(member, place, superblock.volume).await {
                    Ok(found) if (found.epoch, found.sequence) > (newest.epoch, newest.sequence) => {
                        newest = found
                    }
                    Ok(_) => {}
                    Err(problem) => tracing::info!(%device, "no policy state at byte {}: {problem}", place.0),
                }
            }
        }
        PolicyStates { newest: RefCell::new(newest), alone: Semaphore::new(1) }
    }
}

async fn read_half<D: Device>(
    member: &Member<D>,
    at: Bytes,
    volume: Uuid,
) -> std::result::Result<Newest, String> {
    let buf = buffer(HALF).await;
    member.read(at, &buf, Deadline::Only).await.map_err(|error| error.to_string())?;
    buf.with_bytes(|bytes| match policy_state::decode(bytes, volume) {
        // The half was not written yet.
        Err(Invalid::Absent) => Ok(Newest::default()),
        Err(invalid) => Err(invalid.to_string()),
        Ok(PolicyState { epoch, sequence, policy, state }) => {
            Ok(Newest { epoch, sequence, policy, state: state.to_vec() })
        }
    })
}

impl<D: Device> Devices<D> {
    /// True if the volume has a region for the policy's state.
    pub fn keeps_policy_state(&self) -> bool {
        !images(&self.superblock(), RegionKind::PolicyState).is_empty()
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Restores the policy's state if the newest state was saved by the same policy. The policy must know all
    /// extra copies before.
    pub fn restore_policy(&self) {
        let newest = self.policy.states.newest.borrow();
        self.with_policy(|policy, view| match policy.name() == newest.policy {
            true if newest.state.is_empty() => {}
            true => policy.restore(&newest.state, view),
            false => tracing::info!(
                policy = policy.name(),
                saved = newest.policy,
                "the state of another policy is ignored"
            ),
        });
    }

    /// Saves the policy's state every five minutes until the volume closes.
    pub async fn keep_policy_state(&self) {
        while !self.jobs.are_ending() {
            self.durable.pause(self.rt.now() + SAVE_EVERY, || false).await;
            if !self.jobs.are_ending() {
                self.save_policy().await;
            }
        }
    }

    /// Makes the policy's state durable if changed.
    pub async fn save_policy(&self) {
        if !self.store.devices.keeps_policy_state() {
            return;
        }
        let _alone = self.policy.states.alone.acquire(1).await;
        let Some(next) = self.next_state() else { return };
        let bytes = {
            let Newest { epoch, sequence, policy, state } = next.clone();
            let written = PolicyState { epoch, sequence, policy, state: &state };
            policy_state::encode(self.store.devices.superblock().volume, &written)
        };
        let buf = buffer(Bytes::of_len(bytes.len())).await;
        buf.copy_from_slice(Bytes::ZERO, &bytes);
        let half = HALF * (next.sequence % 2);
        let places = self.store.devices.places(RegionKind::PolicyState);
        let mut written = false;
        for (device, region) in places {
            if self.store.member(device).is_written() {
                match self.write_half(device, region + half, &buf).await {
                    Ok(()) => written = true,
                    Err(error) => tracing::warn!(%error, "the policy's state was not saved"),
                }
            }
        }
        let mut newest = self.policy.states.newest.borrow_mut();
        match written {
            true => *newest = next,
            // The number may be on a device, and is not used again. The next number goes to the same half:
            // the other half may hold the only state.
            false => newest.sequence += 2,
        }
    }

    /// Has the state written to a new region even if unchanged.
    pub fn move_policy_state(&self) {
        self.policy.states.newest.borrow_mut().policy.clear();
    }

    /// Next state to write; `None` if equal to the newest state. Panics if the policy saves more than
    /// [`LONGEST_STATE`].
    fn next_state(&self) -> Option<Newest> {
        let (policy, state) = self.with_policy(|policy, view| (policy.name(), policy.save(view)));
        assert!(state.len() <= LONGEST_STATE.as_usize(), "policy {policy} saves {} bytes", state.len());
        let newest = self.policy.states.newest.borrow();
        let epoch = self.store.devices.superblock().epoch;
        let next = Newest { epoch, sequence: newest.sequence + 1, policy: policy.to_owned(), state };
        (newest.policy != next.policy || newest.state != next.state).then_some(next)
    }

    async fn write_half(&self, device: DeviceId, at: Bytes, buf: &Buf) -> Result<()> {
        let member = self.store.member(device);
        self.durable.device_write(member, at, buf, Origin::Background).await?;
        self.durable.flush_member(member, "the policy's state").await
    }
}
