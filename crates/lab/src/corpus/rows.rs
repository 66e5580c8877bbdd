//! Who is compared, and in which cells.

use super::cell::{Cell, Start};
use super::heat::{Costs, Writes, belongs_on_ssd};
use super::write::{EXTENT, Written};
use crate::{DeviceSetup, Load, OWN, Result, Script, Setup, Size, WarmUp};
use braid_base::{Bytes, DeviceClass, DeviceId, Nanos};
use braid_policy::DeviceView;
use std::ops::Range;
use std::sync::Arc;

/// One of those that are compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What it is called: a policy with its settings, or an oracle's name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// What a row is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A policy.
    Policy,
    /// A static split of this many per cent on the SSD.
    Split(u32),
    /// Data stays where the cell says that it lies.
    Untouched,
    /// A static layout that knows the measured requests. Does not compete.
    Heat,
    /// A cache that knows all requests. Does not compete.
    Clairvoyant,
}

/// Policies that place data by their own rule in every cell.
const RULES: [&str; 8] = ["static", "stripe", "ssd-only", "hdd-only", "cache", "hystor", "raid1", "pass"];
/// Policies that keep two copies of everything.
const MIRRORS: [&str; 2] = ["raid1", "pass"];

/// A row by its name: one of the usual ones, or a policy as `name,key=value,…`.
///
/// # Errors
/// If there is no such policy, or it has no such setting.
pub fn named(name: &str) -> Result<Row> {
    if let Some(row) = usual().into_iter().find(|row| row.name == name) {
        return Ok(row);
    }
    let view = |id, class| DeviceView::empty(DeviceId(id), class, u32::MAX);
    let views = [view(0, DeviceClass::Ssd), view(1, DeviceClass::Hdd)];
    braid_policy::parse(name, &views)?;
    Ok(policy(name))
}

fn policy(name: &str) -> Row {
    Row { name: name.to_owned(), kind: Kind::Policy }
}

/// All policies, splits and oracles.
pub fn usual() -> Vec<Row> {
    let policies = [
        "equi",
        "wardrop",
        "working-set",
        "ssd-first",
        "exclusive",
        "inclusive",
        "hystor",
        "cache,evict=lru",
        "cache,evict=s3-fifo",
        "cache,mode=write-back,evict=lru",
        "cache,mode=write-back,evict=s3-fifo",
        "pass",
        "raid1",
        "stripe",
        "ssd-only",
        "hdd-only",
    ];
    let mut rows: Vec<Row> = policies.into_iter().map(policy).collect();
    let split =
        |tenth: u32| Row { name: format!("static,ssd={}%", tenth * 10), kind: Kind::Split(tenth * 10) };
    rows.extend((1..10).map(split));
    let oracle = |name: &str, kind| Row { name: name.to_owned(), kind };
    rows.push(oracle("untouched", Kind::Untouched));
    rows.push(oracle("static-heat", Kind::Heat));
    rows.push(oracle("clairvoyant", Kind::Clairvoyant));
    rows
}

impl Row {
    /// Whether it may be the best of a cell: it does not know the load beforehand.
    pub fn competes(&self) -> bool {
        !matches!(self.kind, Kind::Heat | Kind::Clairvoyant)
    }

    /// The name of its policy without settings.
    pub fn policy(&self) -> &str {
        self.name.split(',').next().unwrap_or_default()
    }

    /// Why a cell has no room for it; none if it has.
    pub fn not_applicable(&self, room: &Room) -> Option<String> {
        let Room { extents, ssd_slots, .. } = *room;
        let free = ssd_slots.saturating_sub(SPARE);
        let most = match self.kind {
            Kind::Split(percent) => extents * u64::from(percent) / 100,
            Kind::Policy if self.policy() == "ssd-only" || self.is_mirror() => extents,
            _ => return None,
        };
        (most > free).then(|| format!("needs {most} extents on the SSD, which has {free}"))
    }

    fn is_mirror(&self) -> bool {
        MIRRORS.contains(&self.policy())
    }

    /// Its simulation in a cell; two for a row that has two variants, of which the better one counts. None
    /// for one that the engine does not run.
    ///
    /// # Errors
    /// A model that is none.
    pub(super) fn setups(
        &self,
        cell: &Cell,
        written: &Written,
        script: &Arc<Script>,
        seed: u64,
    ) -> Result<Vec<Setup>> {
        let base = base(cell, written, script, seed);
        let room = Room::of(cell, written.script.span);
        let begins = |setup: Setup| match cell.start {
            Start::Disks => Setup { prefill_policy: Some("hdd-only".to_owned()), ..setup },
            Start::Striped => Setup { prefill_policy: Some(room.evenly()), ..setup },
            Start::Address => Setup { prefill_ssd: Some(room.by_address()), ..setup },
            Start::Left(policy) => Setup { prefill_policy: Some(policy.to_owned()), ..setup },
        };
        let with = |policy: &str| Setup { policy: policy.to_owned(), ..base.clone() };
        Ok(match self.kind {
            Kind::Clairvoyant => Vec::new(),
            // `stripe` never moves what lies elsewhere.
            Kind::Untouched => vec![begins(with("stripe"))],
            Kind::Heat => {
                let costs = [&Costs::of_model(cell.ssd)?, &Costs::of_model(cell.hdd)?];
                let measured = || script.entries[written.warm..].iter().map(|entry| &entry.request);
                let most = room.ssd_slots.saturating_sub(SPARE) as usize;
                let known = |writes| belongs_on_ssd(measured(), (room.extents, EXTENT, most), costs, writes);
                let listed = [Writes::Buffered, Writes::Through].map(known);
                listed.into_iter().map(|ssd| Setup { prefill_ssd: Some(ssd), ..with("stripe") }).collect()
            }
            Kind::Policy | Kind::Split(_) if RULES.contains(&self.policy()) => {
                let fill = if self.policy() == "hystor" { "hdd-only" } else { OWN };
                let copies = if self.is_mirror() { 2 } else { 1 };
                vec![Setup { prefill_policy: Some(fill.to_owned()), copies, ..with(&self.name) }]
            }
            Kind::Policy | Kind::Split(_) => vec![begins(with(&self.name))],
        })
    }
}

/// What all rows have in common.
fn base(cell: &Cell, written: &Written, script: &Arc<Script>, seed: u64) -> Setup {
    let device = |class, model: &str, count, percent: f64| DeviceSetup {
        class,
        size: Size::Share(percent / 100.0),
        model: model.to_owned(),
        count,
        nodes: None,
        group: None,
    };
    let disk = HDD_PERCENT / cell.disks as f64;
    let devices = vec![
        device(DeviceClass::Ssd, cell.ssd, 1, f64::from(cell.ssd_percent)),
        device(DeviceClass::Hdd, cell.hdd, cell.disks, disk),
    ];
    let setup = Setup::new(devices, "hdd-only", Load::Script(script.clone()));
    let interval = if cell.change == super::Change::None { Nanos::from_secs(3600) } else { INTERVAL };
    Setup {
        seed,
        extent_size: EXTENT,
        cache_extents: 0,
        warm_up: WarmUp::Requests(written.warm as u64),
        interval: Some(interval),
        ..setup
    }
}

/// Room on all disks together, per cent of the data: enough for the data, and for a second copy of what
/// moves.
const HDD_PERCENT: f64 = 140.0;
/// Length of an interval of a load that changes.
pub const INTERVAL: Nanos = Nanos::from_millis(250);
/// Slots that a volume keeps spare on a device, and uses itself.
const SPARE: u64 = 5;
/// One in so many slots of an SSD is free at the start: policies want room.
const FREE: u64 = 10;

/// How many extents there are, and slots for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Of the data.
    pub extents: u64,
    /// Of the SSD.
    pub ssd_slots: u64,
    /// Of each disk.
    pub hdd_slots: u64,
}

impl Room {
    /// In a cell whose load ends at `span`.
    pub fn of(cell: &Cell, span: Bytes) -> Room {
        let extents = span.0.div_ceil(EXTENT.0);
        let slots = |share: f64| (extents as f64 * share).ceil() as u64;
        let hdd_slots = slots(HDD_PERCENT / 100.0 / cell.disks as f64);
        Room { extents, ssd_slots: slots(f64::from(cell.ssd_percent) / 100.0), hdd_slots }
    }

    /// Extents on the SSD at the start, where it has any.
    fn filled(&self) -> u64 {
        let slots = self.ssd_slots.saturating_sub(SPARE);
        (slots - slots / FREE).min(self.extents)
    }

    /// The policy that takes as many extents from everywhere.
    fn evenly(&self) -> String {
        let millionths = (u128::from(self.filled()) * 1_000_000).div_ceil(u128::from(self.extents.max(1)));
        format!("static,ssd={}%", millionths as f64 / 1e4)
    }

    fn by_address(&self) -> Vec<Range<Bytes>> {
        std::iter::once(Bytes::ZERO..EXTENT * self.filled()).collect()
    }
}
