//! The guard of a simulated volume: gives ghosts what guests asked for, and switches the volume's mode.

use super::evidence::Evidence;
use super::ghost::Ghost;
use super::watch::Watch;
use crate::guests::Guests;
use crate::outcome::ModeSwitch;
use crate::rig::{Kind, Need, Reached};
use crate::{DeviceSetup, Load, Result, Setup, Size};
use braid_base::{Bytes, DeviceClass, Nanos};
use braid_engine::Export;
use braid_runtime::Runtime;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// What the guard did.
#[derive(Default)]
pub(crate) struct Kept {
    pub switches: Vec<ModeSwitch>,
    /// Why modes were left out, or the guard ended.
    pub notes: Vec<String>,
}

impl Kept {
    /// What a reader should know.
    pub fn told(&self) -> Vec<String> {
        let to = |to: &ModeSwitch| format!("{} at {:.0} s", to.policy, to.seconds);
        let switches: Vec<String> = self.switches.iter().map(to).collect();
        let told =
            (!switches.is_empty()).then(|| format!("its mode was switched: {}", switches.join(", then ")));
        self.notes.iter().cloned().chain(told).collect()
    }
}

/// The time of a batch.
const BATCH: Nanos = Nanos::from_secs(5);

/// Guards a volume until the world ends, if its policy has modes.
pub(crate) async fn keep(
    guests: Rc<Guests<Reached>>,
    setup: Setup,
    kinds: Rc<[Kind]>,
    kept: Rc<RefCell<Kept>>,
) {
    let (modes, mut present) = guests.volume.modes();
    if modes.is_empty() {
        return;
    }
    if setup.network.is_some() {
        let why = "mode=auto stays in one mode on devices of other machines: ghosts have no network";
        return kept.borrow_mut().notes.push(why.to_owned());
    }
    let mut ghosts = match ghosts(&guests, &setup, &kinds, &modes) {
        Ok(ghosts) => ghosts,
        Err(error) => return kept.borrow_mut().notes.push(format!("mode=auto has no ghosts: {error}")),
    };
    let mut evidence = Evidence::of(modes.len());
    let begun = guests.rt.now();
    *guests.watch.borrow_mut() = Some(Watch::new(begun));
    loop {
        guests.rt.sleep(BATCH).await;
        let batch = guests.watch.borrow_mut().as_mut().and_then(|watch| watch.take(guests.rt.now()));
        let Some(batch) = batch else { continue };
        ghosts.iter().flatten().for_each(|ghost| ghost.give(&batch));
        let means: Vec<Option<f64>> = ghosts
            .iter_mut()
            .zip(&modes)
            .map(|(place, mode)| match place.as_ref().map(Ghost::mean)? {
                Ok(mean) => mean,
                Err(error) => {
                    kept.borrow_mut().notes.push(format!("mode=auto leaves out {mode}: {error}"));
                    *place = None;
                    None
                }
            })
            .collect();
        if let Some(mode) = evidence.add(batch.length, &means, present) {
            guests.volume.switch_mode(mode);
            present = mode;
            let seconds = (guests.rt.now() - begun).as_secs_f64();
            kept.borrow_mut().switches.push(ModeSwitch { seconds, policy: modes[mode].clone() });
        }
    }
}

/// A ghost for each mode, with homes as they are now.
fn ghosts(
    guests: &Guests<Reached>,
    setup: &Setup,
    kinds: &[Kind],
    modes: &[String],
) -> Result<Vec<Option<Ghost>>> {
    let (filled, on_ssd) = homes(guests, setup.extent_size, kinds)?;
    let size = guests.volume.size();
    let device = |kind: &Kind| DeviceSetup {
        class: kind.class,
        size: Size::Bytes(kind.size),
        model: kind.model.clone(),
        count: 1,
        nodes: None,
        group: None,
    };
    let devices: Vec<DeviceSetup> = kinds.iter().map(device).collect();
    let ghost = |policy: &String| {
        let ghost = Setup {
            size: Some(size),
            extent_size: setup.extent_size,
            block_size: setup.block_size,
            cache_extents: setup.cache_extents,
            readahead: setup.readahead,
            ahead: setup.ahead,
            prefill_ssd: Some(on_ssd.clone()),
            seed: setup.seed,
            ..Setup::new(devices.clone(), policy.clone(), Load::Parts(Vec::new()))
        };
        Some(Ghost::new(ghost, Need { span: Some(size), filled: Some(filled.clone()), data: None }))
    };
    Ok(modes.iter().map(ghost).collect())
}

type Ranges = Vec<Range<Bytes>>;

/// What has homes, and what of it has them on SSDs.
fn homes(guests: &Guests<Reached>, extent: Bytes, kinds: &[Kind]) -> Result<(Ranges, Ranges)> {
    let size = guests.volume.size();
    let (mut filled, mut on_ssd) = (Ranges::new(), Ranges::new());
    let mut at = Bytes::ZERO;
    while at < size {
        let range = at..(at + extent).min(size);
        at = range.end;
        let Some((device, _)) = guests.volume.explain(range.start)?.home else { continue };
        if kinds[device.index()].class == DeviceClass::Ssd {
            add(&mut on_ssd, range.clone());
        }
        add(&mut filled, range);
    }
    Ok((filled, on_ssd))
}

/// Neighbours become one range.
fn add(ranges: &mut Ranges, range: Range<Bytes>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
