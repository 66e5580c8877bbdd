//! What runs in each cell.

use crate::{Error, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_policy::DeviceView;
use serde::Serialize;

/// A row of the corpus.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub group: Group,
    /// Its policy.
    pub policy: String,
}

/// What a row is, and where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// A policy that begins with the cell's own layout.
    Policy,
    /// The cell's own layout, which stays as it is; new data goes to the disks.
    Untouched,
    /// A policy that needs two copies of everything, and begins with them.
    Mirror,
    /// A static split in a layout of its own from the beginning: which split is the best is known only
    /// afterwards.
    Split,
    /// The layout that is the best by prediction, with the knowledge of the load.
    Oracle,
    /// A cache that knows the load, on the models of the devices.
    Bound,
}

impl Group {
    /// Whether it begins with the cell's own layout, and is what a ratio is taken to.
    pub fn competes(self) -> bool {
        matches!(self, Group::Policy | Group::Untouched)
    }
}

/// Policies that begin with the cell's own layout: all that there are but `static` and `hdd-only`, which
/// leave it untouched, and those that mirror. Caches as in the literature: write-back by both rules of
/// eviction, and write-through. `exclusive` ranks pages once an hour, which no cell lasts: so also every ten
/// seconds.
const POLICIES: [&str; 18] = [
    "equi",
    "wardrop",
    "working-set",
    "hystor",
    "exclusive",
    "inclusive",
    "ssd-first",
    "stripe",
    "ssd-only",
    "cache",
    "cache,mode=write-back",
    "cache,mode=write-back,evict=s3-fifo",
    "exclusive,page=1MiB,period=10s",
    "inclusive,page=1MiB,period=10s",
    "equi,mode=auto",
    "orthus",
    "colloid",
    "most",
];
const MIRRORS: [&str; 2] = ["pass", "raid1"];
/// Splits, in per cent of the data on the SSD.
const SPLITS: [u32; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

/// The name of the row in which nothing moves.
pub(crate) const UNTOUCHED: &str = "untouched layout";
/// The name of the oracle's row.
pub(crate) const ORACLE: &str = "oracle: best static layout by prediction";

/// The name of the bound's row.
pub(crate) const BOUND: &str = "bound: clairvoyant cache";

/// All rows.
pub fn rows() -> Vec<Row> {
    let row =
        |name: &str, group, policy: &str| Row { name: name.to_owned(), group, policy: policy.to_owned() };
    let policies = POLICIES.iter().map(|policy| row(policy, Group::Policy, policy));
    let mirrors = MIRRORS.iter().map(|policy| row(policy, Group::Mirror, policy));
    let splits = SPLITS.iter().map(|percent| {
        let policy = format!("static,ssd={percent}%");
        row(&policy, Group::Split, &policy)
    });
    policies
        .chain([row(UNTOUCHED, Group::Untouched, "hdd-only")])
        .chain(mirrors)
        .chain(splits)
        .chain([row(ORACLE, Group::Oracle, "ssd-only"), row(BOUND, Group::Bound, "hdd-only")])
        .collect()
}

/// The rows to run: those that are named here, or all rows if no text is the name of a row; and a further row
/// for each other text, which is a policy.
///
/// # Errors
/// A text that is neither, or is given twice; rows of which none begins with the cell's own layout, since
/// ratios are to the best of these.
pub fn chosen(texts: &[String]) -> Result<Vec<Row>> {
    if let Some(twice) = texts.iter().enumerate().find(|(place, text)| texts[..*place].contains(text)) {
        return Err(Error::setup(format!("--row {0}: given twice: give each row once", twice.1)));
    }
    let all = rows();
    let is_named = |row: &Row| texts.contains(&row.name);
    let mut chosen: Vec<Row> = all.iter().filter(|row| is_named(row)).cloned().collect();
    if chosen.is_empty() {
        chosen.clone_from(&all);
    }
    let others = texts.iter().filter(|text| all.iter().all(|row| row.name != **text));
    chosen.extend(others.map(|text| Row::of_policy(text)).collect::<Result<Vec<_>>>()?);
    if !chosen.iter().any(|row| row.group.competes()) {
        return Err(Error::setup(format!(
            "--row {}: ratios are to the best row that begins with the cell's own layout, and none of these does: \
             add one, such as --row equi",
            texts.join(" --row ")
        )));
    }
    Ok(chosen)
}

impl Row {
    /// A row of a policy that is no row of the corpus.
    fn of_policy(text: &str) -> Result<Row> {
        let classes = [DeviceClass::Ssd, DeviceClass::Hdd];
        let views = (0..).zip(classes).map(|(id, class)| DeviceView::empty(DeviceId(id), class, 1 << 20));
        braid_policy::parse(text, &views.collect::<Vec<_>>()).map_err(|error| {
            Error::setup(format!("--row {text}: not the name of a row, and not a policy: {error}"))
        })?;
        let name = text.split(',').next().unwrap_or_default();
        let group = match name {
            "static" => Group::Split,
            name if MIRRORS.contains(&name) => Group::Mirror,
            _ => Group::Policy,
        };
        let row = Row { name: text.to_owned(), group, policy: text.to_owned() };
        if row.group == Group::Split && row.split_percent().is_none() {
            return Err(Error::setup(format!(
                "--row {text}: a static split of the corpus has a whole share of the data: use static,ssd=45%"
            )));
        }
        Ok(row)
    }

    /// Of a static split, what share of the data lies on the SSD, in per cent.
    pub(crate) fn split_percent(&self) -> Option<u64> {
        self.policy.strip_prefix("static,ssd=")?.strip_suffix('%')?.parse().ok()
    }
}
