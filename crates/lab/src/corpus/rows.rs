//! Rows that run in each cell.

use crate::{Error, Result};
use braid_base::{DeviceClass, DeviceId};
use braid_policy::DeviceView;
use serde::Serialize;

/// A row of the corpus.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// Group of the row.
    pub group: Group,
    /// Policy of the row.
    pub policy: String,
}

/// Group of a row, with its initial layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// A policy that begins with the cell's own layout.
    Policy,
    /// The cell's own layout, unchanged; new data goes to the disks.
    Untouched,
    /// A policy that needs two copies of all data, and begins with two copies.
    Mirror,
    /// A static split, laid out by itself from the beginning: the best split is known only afterwards.
    Split,
    /// The best static layout by prediction, with knowledge of the load.
    Oracle,
    /// A cache with knowledge of the load, on the models of the devices.
    Bound,
}

impl Group {
    /// True if the row begins with the cell's own layout and counts for the best, the base of ratios.
    pub fn competes(self) -> bool {
        matches!(self, Group::Policy | Group::Untouched)
    }
}

/// Policies that begin with the cell's own layout: all except `static` and `hdd-only`, which leave the layout
/// untouched, and mirroring policies. Caches as in the literature: write-back with both rules of eviction,
/// and write-through. `exclusive` ranks pages once an hour, longer than any cell: a variant ranks every ten
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

/// Name of the row in which nothing moves.
pub(crate) const UNTOUCHED: &str = "untouched layout";
/// Name of the oracle's row.
pub(crate) const ORACLE: &str = "oracle: best static layout by prediction";

/// Name of the bound's row.
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

/// Rows to run: the named rows, or all rows if no text is the name of a row. Each other text is a policy,
/// which gets a further row.
///
/// # Errors
/// If a text is neither, or is given twice; or if no row begins with the cell's own layout, because ratios
/// are to the best of such rows.
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
    /// A row for a policy outside the corpus.
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

    /// Share of data on the SSD in a static split, in per cent.
    pub(crate) fn split_percent(&self) -> Option<u64> {
        self.policy.strip_prefix("static,ssd=")?.strip_suffix('%')?.parse().ok()
    }
}
