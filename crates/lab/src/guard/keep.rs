//! Guard of a simulated volume: gives ghosts the guests' requests, and switches the volume's mode.

use super::{BATCH, Ghosts, Homes, Like, LikeDevice, Scale, Verdict, Watch};
use crate::guests::Guests;
use crate::outcome::ModeSwitch;
use crate::rig::{DeviceKind, Reached};
use crate::{Setup, Size};
use braid_base::Bytes;
use braid_engine::Export;
use braid_runtime::Runtime;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Actions of the guard.
#[derive(Default)]
pub(crate) struct GuardActions {
    pub switches: Vec<ModeSwitch>,
    /// Why modes were left out, or the guard ended.
    pub notes: Vec<String>,
}

impl GuardActions {
    /// Notes for the reader.
    pub fn told(&self) -> Vec<String> {
        let to = |to: &ModeSwitch| format!("{} at {:.0} s", to.policy, to.seconds);
        let switches: Vec<String> = self.switches.iter().map(to).collect();
        let told =
            (!switches.is_empty()).then(|| format!("its mode was switched: {}", switches.join(", then ")));
        self.notes.iter().cloned().chain(told).collect()
    }
}

/// Most requests in a batch.
const ROOM: usize = 1 << 18;

/// Guards a volume until the world ends, if its policy has modes.
pub(crate) async fn keep(
    guests: Rc<Guests<Reached>>,
    setup: Setup,
    kinds: Rc<[DeviceKind]>,
    kept: Rc<RefCell<GuardActions>>,
) {
    let (modes, mut present) = guests.volume.modes(1);
    if modes.is_empty() {
        return;
    }
    if setup.network.is_some() {
        let why = "mode=auto keeps one mode on devices of other machines: simulations beside the volume have no \
                   network";
        return kept.borrow_mut().notes.push(why.to_owned());
    }
    let mut ghosts = Ghosts::new(&like(&guests, &setup, &kinds), &modes, || Duration::ZERO);
    let begun = guests.rt.now();
    *guests.watch.borrow_mut() = Some(Watch::new(begun, 0, Scale::WHOLE, ROOM));
    loop {
        guests.rt.sleep(BATCH).await;
        let batch = guests.watch.borrow_mut().as_mut().and_then(|watch| watch.take(guests.rt.now()));
        let Some(batch) = batch else { continue };
        let Verdict { switch, left_out, .. } = ghosts.serve(&batch, present);
        for (mode, error) in left_out {
            kept.borrow_mut().notes.push(format!("mode=auto excludes {}: {error}", modes[mode]));
        }
        if let Some(mode) = switch {
            guests.volume.switch_mode(mode);
            present = mode;
            let seconds = (guests.rt.now() - begun).as_secs_f64();
            kept.borrow_mut().switches.push(ModeSwitch { seconds, policy: modes[mode].clone() });
        }
    }
}

/// Description of the volume in its present state.
fn like(guests: &Guests<Reached>, setup: &Setup, kinds: &[DeviceKind]) -> Like {
    let size = guests.volume.size();
    let device = |kind: &DeviceKind| LikeDevice {
        class: kind.class,
        spec: kind.spec.clone(),
        size: Size::Bytes(kind.size),
    };
    let mut homes = Homes::default();
    let mut at = Bytes::ZERO;
    while at < size {
        let range = at..(at + setup.extent_size).min(size);
        at = range.end;
        if let Some(device) = guests.volume.home(range.start) {
            homes.add(range, kinds[device.index()].class);
        }
    }
    Like {
        scale: Scale::WHOLE,
        size,
        extent_size: setup.extent_size,
        block_size: setup.block_size,
        cache_extents: setup.cache_extents,
        readahead: setup.readahead,
        ahead: setup.ahead,
        devices: kinds.iter().map(device).collect(),
        is_measured: false,
        homes,
        seed: setup.seed,
    }
}
