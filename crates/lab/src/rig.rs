//! The devices and the volume of a simulation, filled and ready.
//!
//! Creating, filling and opening the volume takes no simulated time: the devices' timing is off until the
//! load begins. After the fill the volume is closed and reopened, so the policy starts as after any restart:
//! with the data in place, and without a memory of the fill.

use crate::fill;
use crate::network::Nodes;
use crate::sizes::sizes;
use crate::sweep::Gauge;
use crate::verify::Verifier;
use crate::{DeviceSetup, Error, Result, Setup};
use braid_base::{Bytes, DeviceClass, DeviceId, Nanos, NodeId, Rng, SECTOR};
use braid_emulated::{Emulated, Networked};
use braid_engine::{CreateOptions, Export, OpenOptions, Volume, create};
use braid_format::Uuid;
use braid_format::superblock::Layout;
use braid_model::Spec;
use braid_policy::DeviceView;
use braid_runtime::{Geometry, Runtime};
use braid_sim::{Hollow, Payload, World};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// A simulated device: a model's timing over storage without bytes.
pub(crate) type SimulatedDevice = Rc<Emulated<World, Rc<Hollow>>>;

/// A simulated device with its network path, as seen by the volume.
pub(crate) type Reached = Networked<World, SimulatedDevice>;

/// Interval between checks for the first image of the volume on a disk.
const LOOK: Nanos = Nanos::from_millis(100);

/// Policy of the volume's creation and opening, before a policy without a name becomes active.
const UNTIL_MADE: &str = "stripe";

/// A volume, and handles to its devices.
pub(crate) struct Rig {
    pub volume: Volume<World, Reached>,
    pub devices: Vec<SimulatedDevice>,
    /// Nodes of the devices, if any.
    pub nodes: Option<Nodes>,
    /// Description of each device.
    pub kinds: Vec<DeviceKind>,
    /// The policy that placed the prefilled data, with its settings.
    pub filled_by: Option<String>,
}

/// Description of a device.
pub(crate) struct DeviceKind {
    pub class: DeviceClass,
    /// The model's own name.
    pub model: String,
    pub spec: Spec,
    pub size: Bytes,
    /// Size of the real device.
    pub capacity: Bytes,
    /// Node of the device; `None` for the host.
    pub node: Option<NodeId>,
}

/// Needs of the load, as far as known beforehand.
pub(crate) struct Need {
    /// End of the load's addresses.
    pub span: Option<Bytes>,
    /// Ranges that the load expects to be written.
    pub filled: Option<Vec<Range<Bytes>>>,
    /// Amount of data: the base of shares.
    pub data: Option<Bytes>,
    /// Model of each device, if not found by name.
    pub specs: Option<Vec<Spec>>,
}

/// Devices with their sizes.
pub(crate) struct Sized {
    kinds: Vec<DeviceSetup>,
    pub specs: Vec<Spec>,
    pub sizes: Vec<Bytes>,
    options: CreateOptions,
}

impl Sized {
    /// Devices of a setup, for a load with these needs.
    ///
    /// # Errors
    /// If the devices are invalid.
    pub fn of(setup: &Setup, need: &Need) -> Result<Sized> {
        let (kinds, specs): (Vec<DeviceSetup>, Vec<Spec>) = models(setup, need)?.into_iter().unzip();
        let options = options(setup, need, &kinds)?;
        let sizes = sizes(setup, &kinds, need, &options)?;
        Ok(Sized { kinds, specs, sizes, options })
    }
}

/// Creates the devices and the volume, fills the volume, and leaves it open with the devices' timing on.
/// `prepare` may break a device.
pub(crate) async fn build(
    world: &World,
    setup: &Setup,
    need: &Need,
    verifier: Option<&RefCell<Verifier>>,
    gauge: &Gauge,
    prepare: impl Fn(&Hollow),
) -> Result<Rig> {
    let places = places(setup);
    let nodes = Nodes::of(setup, world, &places)?;
    let Sized { kinds, specs, sizes, options } = Sized::of(setup, need)?;
    let kind = |(((kind, size), spec), &node): (((DeviceSetup, Bytes), &Spec), &Option<NodeId>)| {
        let DeviceSetup { class, model, .. } = kind;
        DeviceKind { class, model, spec: spec.clone(), size, capacity: spec.capacity, node }
    };
    let kinds: Vec<DeviceKind> = kinds.into_iter().zip(sizes).zip(&specs).zip(&places).map(kind).collect();
    let mut rng = Rng::new(setup.seed);
    let (mut hollows, mut devices) = (Vec::new(), Vec::new());
    for (kind, spec) in kinds.iter().zip(&specs) {
        let model = spec.build(kind.size, rng.next_u64());
        let payload = if setup.verify { Payload::Tags } else { Payload::Nothing };
        let geometry =
            Geometry { size: kind.size, class: kind.class, alignment: SECTOR, memory_alignment: Bytes(1) };
        let hollow = Rc::new(Hollow::new(geometry, payload));
        prepare(&hollow);
        let device = Rc::new(Emulated::new(world.clone(), hollow.clone(), model));
        hollows.push(hollow);
        devices.push(device);
    }
    let time = |timed| {
        devices.iter().for_each(|device| device.set_timed(timed));
        nodes.iter().for_each(|nodes| nodes.network.set_timed(timed));
    };
    time(false);
    let reach = |(device, node): (&SimulatedDevice, &Option<NodeId>)| match &nodes {
        None => Networked::local(device.clone()),
        Some(nodes) => Networked::on(device.clone(), nodes.network.clone(), *node),
    };
    let reached: Vec<Reached> = devices.iter().zip(&places).map(reach).collect();
    let superblock = create(&reached, &options).await.map_err(|error| Error::setup(error.to_string()))?;
    for (place, (hollow, entry)) in hollows.iter().zip(&superblock.devices).enumerate() {
        let slots = entry.slots_area(superblock.extent_size).expect("what was created is verified");
        hollow.set_data(slots, superblock.regions_on(DeviceId(place as u16)));
    }
    let mut volume = open(world, &reached, setup).await?;
    let ranges = fill::ranges(setup, need.filled.as_deref(), volume.size());
    let filled_by = fill::fill(&volume, setup, ranges, verifier, gauge).await?;
    // The first copy to the image disk is not measured.
    while !options.layouts.is_empty() && volume.status().epoch.is_none() {
        world.sleep(LOOK).await;
    }
    volume.close().await?;
    drop(volume);
    volume = open(world, &reached, setup).await?;
    if let Some(made) = &setup.made_policy {
        volume.replace_policy(made.make()?);
    }
    time(true);
    Ok(Rig { volume, devices, nodes, kinds, filled_by })
}

/// Node of each device; `None` for the host.
fn places(setup: &Setup) -> Vec<Option<NodeId>> {
    setup.devices.iter().flat_map(|kind| (0..kind.count).map(|number| kind.node(number))).collect()
}

/// Each device with its model. The returned setups use the model's own name.
fn models(setup: &Setup, need: &Need) -> Result<Vec<(DeviceSetup, Spec)>> {
    if let Some(specs) = &need.specs {
        return Ok(setup.devices.iter().cloned().zip(specs.iter().cloned()).collect());
    }
    let mut models = Vec::new();
    for kind in &setup.devices {
        // Found once for all devices of a kind: a file may change meanwhile.
        let spec = kind.spec()?;
        let named = DeviceSetup { model: spec.name.to_string(), ..kind.clone() };
        models.extend(std::iter::repeat_n((named, spec), kind.count));
    }
    Ok(models)
}

fn options(setup: &Setup, need: &Need, kinds: &[DeviceSetup]) -> Result<CreateOptions> {
    let size = match (setup.size, need.span) {
        (Some(size), Some(span)) if size < span => {
            return Err(Error::setup(format!(
                "the volume has {size}, and the workload needs {span}: use a larger --size or a workload that needs less"
            )));
        }
        (Some(size), _) => Some(size.align_down(SECTOR)),
        (None, span) => span.map(|span| span.align_up(setup.extent_size)),
    };
    let mut options = CreateOptions::new("simulated", Uuid([0x5e; 16]));
    options.size = size;
    options.extent_size = setup.extent_size;
    options.block_size = setup.block_size;
    options.copies = setup.copies;
    options.policy = match setup.made_policy {
        Some(_) => UNTIL_MADE.to_owned(),
        None => setup.policy.clone(),
    };
    options.models = kinds.iter().map(|kind| kind.model.clone()).collect();
    options.overwrite = true;
    if keeps_epochs(&options.policy, kinds) {
        let layout = |class| if class == DeviceClass::Hdd { Layout::Tail } else { Layout::Head };
        options.layouts = kinds.iter().map(|kind| layout(kind.class)).collect();
    }
    Ok(options)
}

/// True if a policy needs a disk that keeps addresses. Errors in the policy are reported at the volume's
/// creation.
fn keeps_epochs(policy: &str, kinds: &[DeviceSetup]) -> bool {
    let view = |(id, kind): (u16, &DeviceSetup)| DeviceView::empty(DeviceId(id), kind.class, u32::MAX);
    let views: Vec<DeviceView> = (0..).zip(kinds).map(view).collect();
    braid_policy::parse(policy, &views).is_ok_and(|policy| policy.keeps_epochs())
}

async fn open(world: &World, devices: &[Reached], setup: &Setup) -> Result<Volume<World, Reached>> {
    let names = (0..devices.len()).map(|place| format!("d{place}")).collect();
    let Setup { cache_extents, readahead, ahead, .. } = *setup;
    let options = OpenOptions { cache_extents, readahead, ahead, ..OpenOptions::new(names) };
    Ok(Volume::open(world.clone(), devices.to_vec(), options).await?.0)
}
