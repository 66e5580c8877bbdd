//! Opens a volume in attempts. An attempt is a row of stages, each made from the stage before:
//!
//! | stage | what is known | what was refused |
//! |---|---|---|
//! | [`Found`] | superblocks, the state of each device | foreign, older and too few devices |
//! | [`Judged`] | adopted disk, dirty spans, image | another host, lost dirty data |
//! | [`Recovered`] | map, journal, pending log | damage, lost acknowledged writes |
//! | [`Accepted`] | losses, policy | only copies on absent devices, changed disk, unknown policy |
//! | [`Entered`] | the opening owns the devices | more lost extents than at the attempt before |
//!
//! Nothing is written before the last stage.

use super::again::Attempted;
use super::{Accepted, Attempts, Entered, Found, Judged, OpenOptions, Recovered};
use crate::core::Core;
use crate::{Recovery, Result};
use braid_runtime::{Device, Runtime};
use std::rc::Rc;

/// Opens a volume as [`Volume::open`](crate::Volume::open) does: in attempts, until a complete set of devices
/// is found.
pub(crate) async fn open<R: Runtime, D: Device>(
    rt: R,
    devices: Vec<Rc<D>>,
    mut options: OpenOptions,
) -> Result<(Rc<Core<R, D>>, Recovery)> {
    let mut given = devices;
    let mut attempts = Attempts::default();
    loop {
        match attempt(&rt, given.clone(), &options, &attempts).await {
            Ok(opened) => return Ok(opened),
            // Each attempt has one device less, or resynchronises one more.
            Err(refusal) => attempts.begin_again(refusal, &mut given, &mut options)?,
        }
    }
}

/// Opens the volume, with the findings of earlier attempts. Each stage may refuse the volume.
async fn attempt<R: Runtime, D: Device>(
    rt: &R,
    devices: Vec<Rc<D>>,
    options: &OpenOptions,
    attempts: &Attempts,
) -> Attempted<(Rc<Core<R, D>>, Recovery), D> {
    let found = Found::read(rt, devices, options, attempts).await?;
    let judged = Judged::read(rt, found, options, attempts).await?;
    let recovered = Recovered::read(rt, judged, options, attempts).await?;
    let accepted = Accepted::read(rt, recovered, options).await?;
    let entered = Entered::write(rt, accepted, options, attempts).await?;
    Ok(entered.start(options).await?)
}
