//! A policy written in Python, as the engine asks a policy.
//!
//! Each question takes the interpreter's lock and turns numbers into objects: some microseconds a request, a
//! hundred times the cost of a built-in policy. An exception or an invalid answer ends the simulation. Until
//! the simulation has ended, nothing is placed or moved.

use crate::signals::Raised;
use braid_base::{BlockId, Bytes, DeviceClass, DeviceId, ExtentId, KIB, Nanos};
use braid_lab::{Error, ErrorKind, MadePolicy};
use braid_policy::{
    ByteRange, Completion, DeviceView, Direction, ExtraCopy, Home, Occasion, Origin, Outcome, Plan, Policy,
    View,
};
use numpy::IntoPyArray;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// A class of policies, or another callable: its call makes a policy for each simulation.
pub fn made(class: Py<PyAny>, raised: Raised) -> MadePolicy {
    MadePolicy::new(move || {
        let mut made = None;
        raised.go_on(|py| {
            made = Some(InPython::new(class.bind(py), raised.clone())?);
            Ok(())
        });
        let stopped = || Error::new(ErrorKind::Stopped, "the policy could not be made");
        made.map(|policy| Box::new(policy) as Box<dyn Policy>).ok_or_else(stopped)
    })
}

/// A policy in Python, with the state kept on its behalf.
struct InPython {
    object: Py<PyAny>,
    name: &'static str,
    raised: Raised,
    /// Optional questions answered by the policy.
    completed: bool,
    done: bool,
    extra_changed: bool,
    evicts: bool,
    /// Present extra copies, with the number of each in `queues`.
    extras: BTreeMap<BlockId, (ExtraCopy, u64)>,
    /// By device: extra copies in the order in which they were made.
    queues: Vec<BTreeSet<(u64, BlockId)>>,
    count: u64,
}

/// Names of classes, kept until the process ends: one for each class.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

fn lasting(name: String) -> &'static str {
    let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let lasting: &'static str = Box::leak(name.into_boxed_str());
    names.insert(lasting);
    lasting
}

impl InPython {
    fn new(class: &Bound<'_, PyAny>, raised: Raised) -> PyResult<InPython> {
        let py = class.py();
        let (object, base) = (class.call0()?, py.import("braid.policies")?.getattr("Policy")?);
        if !object.is_instance(&base)? {
            return Err(PyTypeError::new_err(
                "a policy is an instance of a class that is derived from braid.Policy",
            ));
        }
        let of = object.get_type();
        let answers = |question: &str| PyResult::Ok(!of.getattr(question)?.is(&base.getattr(question)?));
        Ok(InPython {
            name: lasting(of.name()?.to_string()),
            raised,
            completed: answers("completed")?,
            done: answers("done")?,
            extra_changed: answers("extra_changed")?,
            evicts: answers("evict")?,
            object: object.unbind(),
            extras: BTreeMap::new(),
            queues: Vec::new(),
            count: 0,
        })
    }

    /// Asks, unless an exception was raised before.
    fn ask<T>(&self, question: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Option<T> {
        let mut answer = None;
        self.raised.go_on(|py| {
            answer = Some(question(self.object.bind(py))?);
            Ok(())
        });
        answer
    }

    fn device(&self, block: BlockId) -> Option<u16> {
        self.extras.get(&block).map(|(copy, _)| copy.device.0)
    }
}

impl Policy for InPython {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> braid_policy::Placement<'a> {
        let asked = |object: &Bound<'_, PyAny>| {
            let py = object.py();
            let shown = Py::new(py, Shown::of(occasion, view, |block| self.device(block)))?;
            let answer = object.call_method1("place", (shown, VolumeView::bare(view)))?;
            if answer.is_none() {
                return Ok(braid_policy::Placement::KEEP);
            }
            let placement = answer.extract::<PyRef<'_, Placement>>()?.0;
            let named = placement.new_home().or(placement.extra);
            named.map_or(Ok(()), |device| known(device, view.devices))?;
            Ok(placement)
        };
        self.ask(asked).unwrap_or(braid_policy::Placement::KEEP)
    }

    fn completed(&mut self, io: &Completion) {
        if !self.completed || io.origin == Origin::Background {
            return;
        }
        let direction = match io.direction {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Flush => "flush",
        };
        let told = (io.device.0, direction, io.len.0, io.latency.as_secs_f64(), io.origin == Origin::Probe);
        self.ask(|object| object.call_method1("completed", told).map(drop));
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        plan.revise = true;
        let asked = |object: &Bound<'_, PyAny>| {
            let py = object.py();
            let shown = VolumeView::whole(py, view, &self.extras)?;
            let answer = object.call_method1("plan", (shown,))?;
            let mut moves = Vec::new();
            if !answer.is_none() {
                for part in answer.try_iter()? {
                    let job = part?.extract::<PyRef<'_, Move>>()?.0;
                    check(&job, view)?;
                    moves.push(job);
                }
            }
            let period: f64 = object.getattr("period")?.extract()?;
            if !(0.001..=86_400.0).contains(&period) {
                return Err(PyValueError::new_err(format!(
                    "period = {period}: use seconds from 0.001 to 86400"
                )));
            }
            Ok((moves, Nanos((period * 1e9) as u64)))
        };
        let (moves, period) = self.ask(asked).unwrap_or((Vec::new(), Nanos::from_secs(1)));
        plan.moves.extend(moves);
        view.now + period
    }

    fn done(&mut self, job: &braid_policy::Move, outcome: Outcome) {
        if self.done {
            let outcome = match outcome {
                Outcome::Finished => "finished",
                Outcome::Stopped => "stopped",
                Outcome::Failed => "failed",
            };
            self.ask(|object| object.call_method1("done", (Move(*job), outcome)).map(drop));
        }
    }

    fn extra_slots(&self, device: &DeviceView) -> u32 {
        let asked = |object: &Bound<'_, PyAny>| {
            let share: f64 = object.call_method1("extra_share", (Device::of(device),))?.extract()?;
            if !(0.0..=1.0).contains(&share) {
                return Err(PyValueError::new_err(format!("an extra_share of {share}: use 0 to 1")));
            }
            Ok((share * f64::from(device.slots)) as u32)
        };
        self.ask(asked).unwrap_or(0)
    }

    fn evict(&mut self, device: DeviceId, _view: &View) -> Option<BlockId> {
        if !self.evicts {
            let is_clean = |block: &BlockId| self.extras.get(block).is_some_and(|(copy, _)| !copy.dirty);
            return self.queues.get(device.index())?.iter().map(|(_, block)| *block).find(is_clean);
        }
        let asked = |object: &Bound<'_, PyAny>| {
            let answer: Option<u64> = object.call_method1("evict", (device.0,))?.extract()?;
            match answer.map(BlockId) {
                Some(block) if self.device(block) != Some(device.0) => {
                    let problem =
                        format!("block {} has no copy on device {}: name one that has", block.0, device.0);
                    Err(PyValueError::new_err(problem))
                }
                answer => Ok(answer),
            }
        };
        self.ask(asked).flatten()
    }

    fn extra_changed(&mut self, block: BlockId, before: Option<ExtraCopy>, now: Option<ExtraCopy>) {
        let number = match self.extras.remove(&block) {
            Some((copy, number)) => {
                self.queues[copy.device.index()].remove(&(number, block));
                number
            }
            None => {
                self.count += 1;
                self.count
            }
        };
        if let Some(copy) = now {
            let queue = copy.device.index();
            self.queues.resize_with(self.queues.len().max(queue + 1), BTreeSet::new);
            self.queues[queue].insert((number, block));
            self.extras.insert(block, (copy, number));
        }
        if self.extra_changed {
            let told = |copy: Option<ExtraCopy>| copy.map(|copy| (copy.device.0, copy.dirty));
            self.ask(|object| {
                object.call_method1("extra_changed", (block.0, told(before), told(now))).map(drop)
            });
        }
    }

    fn explain(&self, _extent: ExtentId, _view: &View) -> String {
        format!("{}, a policy in Python, does not say", self.name)
    }
}

fn known(device: DeviceId, devices: &[DeviceView]) -> PyResult<()> {
    if device.index() < devices.len() {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "device {}: the volume has devices 0 to {}",
        device.0,
        devices.len() - 1
    )))
}

/// Refuses a move of data without a home.
fn check(job: &braid_policy::Move, view: &View) -> PyResult<()> {
    let extents = view.homes.extents();
    let range = match job {
        braid_policy::Move::Migrate { extent, target } => {
            known(*target, view.devices)?;
            view.range_of_extent(*extent)
        }
        braid_policy::Move::Promote { range, target } => {
            known(*target, view.devices)?;
            *range
        }
        braid_policy::Move::Demote { range } | braid_policy::Move::WriteBack { range } => *range,
        braid_policy::Move::Probe { device, .. } => return known(*device, view.devices),
        _ => return Ok(()),
    };
    let end = view.extent_size * u64::from(extents);
    if range.is_empty() || range.end > end {
        let problem = format!("bytes {} to {}: the volume has {}", range.start.0, range.end.0, end.0);
        return Err(PyValueError::new_err(problem));
    }
    Ok(())
}

/// Bytes of a guest's request, and their place.
#[pyclass(frozen, get_all, name = "Occasion", module = "braid")]
pub struct Shown {
    kind: &'static str,
    extent: u32,
    start: u64,
    length: u64,
    first_block: u64,
    blocks: u32,
    home: Option<u16>,
    extra: Option<u16>,
}

impl Shown {
    fn of(occasion: &Occasion<'_>, view: &View, extra: impl Fn(BlockId) -> Option<u16>) -> Shown {
        let (kind, extent) = match occasion {
            Occasion::New { extent, .. } => ("new", *extent),
            Occasion::Write(piece) => ("write", piece.extent),
            Occasion::ReadHit(piece) => ("read-hit", piece.extent),
            Occasion::ReadMiss(piece) => ("read-miss", piece.extent),
        };
        let begin = view.range_of_extent(extent).start;
        let piece = occasion.piece();
        let (start, length) = match piece {
            Some(piece) => (begin + piece.range.start, piece.range.end - piece.range.start),
            None => (begin, Bytes::ZERO),
        };
        let first_block = piece.map_or(BlockId(begin / view.block_size), |piece| piece.first_block);
        Shown {
            kind,
            extent: extent.0,
            start: start.0,
            length: length.0,
            first_block: first_block.0,
            blocks: piece.map_or(0, |piece| piece.blocks),
            home: view.homes.home(extent).map(|device| device.0),
            extra: piece.and_then(|_| extra(first_block)),
        }
    }
}

/// A device at one moment.
#[pyclass(frozen, get_all, name = "Device", module = "braid")]
struct Device {
    id: u16,
    is_ssd: bool,
    slots: u32,
    free: u32,
    in_flight: u32,
    read_latency: Option<f64>,
}

impl Device {
    fn of(device: &DeviceView) -> Device {
        Device {
            id: device.id.0,
            is_ssd: device.class == DeviceClass::Ssd,
            slots: device.slots,
            free: device.free,
            in_flight: device.in_flight,
            read_latency: device.read_latency.map(Nanos::as_secs_f64),
        }
    }
}

/// The volume at one moment.
#[pyclass(frozen, get_all, name = "View", module = "braid")]
struct VolumeView {
    now: f64,
    extent_size: u64,
    block_size: u64,
    extents: u32,
    devices: Vec<Py<Device>>,
    homes: Option<Py<PyAny>>,
    extras: Option<Py<PyAny>>,
}

impl VolumeView {
    /// View on the path of a request: without questions whose cost grows with the volume.
    fn bare(view: &View) -> VolumeView {
        let device = |view| Python::attach(|py| Py::new(py, Device::of(view)));
        VolumeView {
            now: view.now.as_secs_f64(),
            extent_size: view.extent_size.0,
            block_size: view.block_size.0,
            extents: view.homes.extents(),
            devices: view.devices.iter().filter_map(|view| device(view).ok()).collect(),
            homes: None,
            extras: None,
        }
    }

    fn whole(
        py: Python<'_>,
        view: &View,
        extras: &BTreeMap<BlockId, (ExtraCopy, u64)>,
    ) -> PyResult<VolumeView> {
        let extents = (0..view.homes.extents()).map(ExtentId);
        let homes: Vec<i32> =
            extents.map(|extent| view.homes.home(extent).map_or(-1, |home| i32::from(home.0))).collect();
        let extras: BTreeMap<u64, (u16, bool)> =
            extras.iter().map(|(block, (copy, _))| (block.0, (copy.device.0, copy.dirty))).collect();
        Ok(VolumeView {
            homes: Some(homes.into_pyarray(py).into_any().unbind()),
            extras: Some(extras.into_pyobject(py)?.into_any().unbind()),
            ..VolumeView::bare(view)
        })
    }
}

/// Where bytes go.
#[pyclass(frozen, module = "braid")]
pub struct Placement(braid_policy::Placement<'static>);

#[pymethods]
impl Placement {
    /// A new extent gets its home on this device.
    #[staticmethod]
    fn on(device: u16) -> Placement {
        Placement(braid_policy::Placement::on(DeviceId(device)))
    }

    /// The read blocks get a copy on this device.
    #[staticmethod]
    fn cached(device: u16) -> Placement {
        Placement(braid_policy::Placement::cached(Some(DeviceId(device))))
    }

    /// The write goes to a copy on this device alone; the copy is then dirty.
    #[staticmethod]
    fn write_back(device: u16) -> Placement {
        Placement(braid_policy::Placement::write_back(DeviceId(device)))
    }

    /// The request goes to the home alone, past a clean copy.
    #[staticmethod]
    fn alone() -> Placement {
        Placement(braid_policy::Placement { home: Home::Alone, ..braid_policy::Placement::KEEP })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A piece of background work.
#[pyclass(frozen, module = "braid")]
pub struct Move(braid_policy::Move);

#[pymethods]
impl Move {
    /// An extent gets a new home.
    #[staticmethod]
    fn migrate(extent: u32, target: u16) -> Move {
        Move(braid_policy::Move::Migrate { extent: ExtentId(extent), target: DeviceId(target) })
    }

    /// Blocks covered whole by a range get clean copies.
    #[staticmethod]
    fn promote(start: u64, length: u64, target: u16) -> PyResult<Move> {
        Ok(Move(braid_policy::Move::Promote { range: range(start, length)?, target: DeviceId(target) }))
    }

    /// The copies of all blocks of a range go; dirty ones are written back first.
    #[staticmethod]
    fn demote(start: u64, length: u64) -> PyResult<Move> {
        Ok(Move(braid_policy::Move::Demote { range: range(start, length)? }))
    }

    /// The dirty copies in a range are written to their homes, and stay, clean.
    #[staticmethod]
    fn write_back(start: u64, length: u64) -> PyResult<Move> {
        Ok(Move(braid_policy::Move::WriteBack { range: range(start, length)? }))
    }

    /// A device is asked how fast a read is now.
    #[staticmethod]
    fn probe(device: u16) -> Move {
        let (direction, len) = (Direction::Read, KIB * 4);
        Move(braid_policy::Move::Probe { device: DeviceId(device), direction, len })
    }

    /// The extent of a migration; None for other moves.
    #[getter]
    fn extent(&self) -> Option<u32> {
        match self.0 {
            braid_policy::Move::Migrate { extent, .. } => Some(extent.0),
            _ => None,
        }
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn range(start: u64, length: u64) -> PyResult<ByteRange> {
    let end = start.checked_add(length);
    let end =
        end.ok_or_else(|| PyValueError::new_err("a range ends beyond 2^64 bytes: use a smaller one"))?;
    Ok(ByteRange { start: Bytes(start), end: Bytes(end) })
}
