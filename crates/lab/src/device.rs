//! `SIZE,model=M[,as=hdd][,write-cache=off][,count=N][,node=K|,node=K-L][,raid0=N[,unit=S]|,raid1=N]`: a
//! simulated device, from its text to its model.
//!
//! A model is a name of the library, or a file: a text with a `/` or ending in `.toml`. The file is read once
//! for each simulation. A group is one device to the volume, however many disks the group has. SIZE is the
//! size of the whole device, or a share of the load's data, as in `20%` ([`Size`]). With `as=hdd` a
//! solid-state drive takes the place of a disk, below a faster drive. Devices of a kind are on nodes K to L
//! in turn, or on the host of the volume.

use crate::{Error, Result};
use braid_base::{Bytes, DeviceClass, KIB, NodeId, ParseQuantityError};
use braid_model::group::{Level, MOST_MEMBERS};
use braid_model::{Found, InvalidModel, Spec, Timing};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

/// Devices of a kind.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceSetup {
    /// SSD or disk.
    pub class: DeviceClass,
    /// Size of each device.
    pub size: Size,
    /// Model of the timing: a name of the library, or the path of a file.
    pub model: String,
    /// True if disks may use the model of a solid-state drive.
    pub lower: bool,
    /// False if writes to disks wait for the platter, as in many arrays.
    pub write_cache: bool,
    /// Number of devices.
    pub count: usize,
    /// First and last of the nodes that the devices are on in turn; `None` for the host of the volume.
    pub nodes: Option<RangeInclusive<u16>>,
    /// Group of which each device is made; `None` for a single device of the model.
    pub group: Option<DeviceGroup>,
}

/// Size of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Size {
    /// Size in bytes, the volume's metadata included.
    Bytes(Bytes),
    /// Room for this share of the load's data (0.2 for a fifth), plus the volume's metadata. The data is the
    /// whole extents touched by a trace, or the span of a workload.
    Share(f64),
}

/// Several devices of a model as one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceGroup {
    /// Number of members.
    pub members: usize,
    /// Use of the members.
    pub level: Level,
}

impl DeviceSetup {
    /// Reads the text of devices of `class`, in the form at the head of this file. Touches no file.
    ///
    /// # Errors
    /// Names the wrong part and the remedy.
    pub fn parse(class: DeviceClass, text: &str) -> Result<DeviceSetup> {
        let wrong = |why: String| Error::setup(format!("--{class} {text}: {why}; use {}", shape(class)));
        let mut parts = text.split(',').map(str::trim);
        let size = parts.next().unwrap_or_default().parse::<Size>().map_err(wrong)?;
        let mut given = GivenParts::default();
        parts.try_for_each(|part| given.add(part)).map_err(wrong)?;
        let model = given.model.ok_or_else(|| wrong("a simulated device needs a model".to_owned()))?;
        let count = number("count", given.count, MOST_DEVICES).map_err(wrong)?.unwrap_or(1);
        let nodes = given.nodes().map_err(wrong)?;
        let group = given.group().map_err(wrong)?;
        let lower = match given.other {
            None => false,
            Some("hdd") if class == DeviceClass::Hdd => true,
            Some(other) => {
                return Err(wrong(format!(
                    "as={other}: only a disk can be given as another class, with as=hdd"
                )));
            }
        };
        let write_cache = match given.write_cache {
            None | Some("on") => true,
            Some("off") if class == DeviceClass::Hdd => false,
            Some(other) => {
                return Err(wrong(format!(
                    "write-cache={other}: only a disk's write cache can be on or off"
                )));
            }
        };
        Ok(DeviceSetup { class, size, model: model.to_owned(), lower, write_cache, count, nodes, group })
    }

    /// Node of the device with this number, counted from 0; `None` for the host of the volume.
    pub(crate) fn node(&self, number: usize) -> Option<NodeId> {
        let nodes = self.nodes.as_ref()?;
        Some(NodeId(nodes.start() + (number % nodes.len()) as u16))
    }

    /// Model of each of these devices.
    ///
    /// # Errors
    /// If the model does not exist, is invalid, or is of the other class.
    pub(crate) fn spec(&self) -> Result<Spec> {
        let setup = |error: InvalidModel| Error::setup(error.to_string());
        let Found { spec, .. } = braid_model::find(&self.model, open).map_err(setup)?;
        if !self.lower {
            spec.fits(self.class).map_err(setup)?;
        }
        let spec = if self.write_cache { spec } else { without_write_cache(spec)? };
        match self.group {
            None => Ok(spec),
            Some(DeviceGroup { members, level }) => spec.group(members, level).map_err(setup),
        }
    }
}

/// The model with its write cache off.
fn without_write_cache(spec: Spec) -> Result<Spec> {
    match spec.timing {
        Timing::Hdd(_) => Ok(spec.with_write_cache(false)),
        _ => Err(Error::setup(format!(
            "write-cache=off: model {} is no disk with a write cache: leave the option out",
            spec.name
        ))),
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Size, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(Size::Bytes).map_err(|error: ParseQuantityError| error.to_string());
        };
        let percent =
            percent.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= MOST_PERCENT);
        let percent = percent.ok_or_else(|| {
            format!("'{text}' is not a share of the data: use more than 0%, at most {MOST_PERCENT}%")
        })?;
        Ok(Size::Share(percent / 100.0))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => write!(f, "{bytes}"),
            // Without the digits added by the division by 100.
            Size::Share(share) => write!(f, "{}%", (share * 1e10).round() / 1e8),
        }
    }
}

/// Largest share of the data: a device a hundred times as large as its data shows nothing more.
const MOST_PERCENT: f64 = 10_000.0;

/// Parts after the size, each as given.
#[derive(Default)]
struct GivenParts<'a> {
    model: Option<&'a str>,
    other: Option<&'a str>,
    write_cache: Option<&'a str>,
    count: Option<&'a str>,
    node: Option<&'a str>,
    raid0: Option<&'a str>,
    unit: Option<&'a str>,
    raid1: Option<&'a str>,
}

impl<'a> GivenParts<'a> {
    fn add(&mut self, part: &'a str) -> std::result::Result<(), String> {
        let (key, value) = part.split_once('=').unwrap_or_default();
        let place = match key {
            "model" => &mut self.model,
            "as" => &mut self.other,
            "write-cache" => &mut self.write_cache,
            "count" => &mut self.count,
            "node" => &mut self.node,
            "raid0" => &mut self.raid0,
            "unit" => &mut self.unit,
            "raid1" => &mut self.raid1,
            _ => return Err(format!("'{part}' is not known")),
        };
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(format!("'{part}' is given twice")),
        }
    }

    fn nodes(&self) -> std::result::Result<Option<RangeInclusive<u16>>, String> {
        let Some(text) = self.node else { return Ok(None) };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let node = |text: &str| text.parse::<u16>().ok().filter(|&node| node <= LAST_NODE);
        match (node(first), node(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Some(first..=last)),
            _ => Err(format!("node={text} is neither a node nor a range of nodes, of 0 to {LAST_NODE}")),
        }
    }

    fn group(&self) -> std::result::Result<Option<DeviceGroup>, String> {
        let unit = self.unit.map(str::parse::<Bytes>).transpose().map_err(|e| e.to_string())?;
        let striped = number("raid0", self.raid0, MOST_MEMBERS)?;
        let mirrored = number("raid1", self.raid1, MOST_MEMBERS)?;
        let (members, level) = match (striped, mirrored, unit) {
            (Some(members), None, unit) => (members, Level::Striped { unit: unit.unwrap_or(USUAL_UNIT) }),
            (None, Some(members), None) => (members, Level::Mirrored),
            (None, None, None) => return Ok(None),
            (Some(_), Some(_), _) => return Err("raid0 and raid1 on one device: use one of them".to_owned()),
            (None, _, Some(_)) => return Err("unit".to_owned()),
        };
        level.check().map_err(|e| e.to_string())?;
        Ok(Some(DeviceGroup { members, level }))
    }
}

fn number(key: &str, value: Option<&str>, most: usize) -> std::result::Result<Option<usize>, String> {
    let Some(value) = value else { return Ok(None) };
    let number = value.parse::<usize>().ok().filter(|n| (1..=most).contains(n));
    number.map(Some).ok_or_else(|| format!("{key}={value} is not 1 to {most}"))
}

fn shape(class: DeviceClass) -> String {
    let usual = match class {
        DeviceClass::Ssd => "x25-m",
        DeviceClass::Hdd => "mba3073",
    };
    format!(
        "--{class} SIZE,model=NAME|FILE.toml[,as=hdd][,write-cache=off][,count=N][,node=K|,node=K-L][,raid0=N[,unit=64KiB]][,raid1=N], as in --{class} \
         80GiB,model={usual} or, for a share of the data, --{class} 20%,model={usual}"
    )
}

/// Opens a model's file.
fn open(path: &Path) -> io::Result<File> {
    // Checked first: opening a pipe would wait for its writer, and the pipe would be empty for the next
    // simulation.
    match std::fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Most devices of one kind: the limit of a volume.
const MOST_DEVICES: usize = braid_format::layout::MOST_DEVICES;

/// One node for each of the most devices.
const LAST_NODE: u16 = MOST_DEVICES as u16 - 1;

/// Default stripe unit of a group: a small request meets one member, a usual extent two.
const USUAL_UNIT: Bytes = Bytes(64 * KIB.0);

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::MIB;

    fn ssd(text: &str) -> Result<DeviceSetup> {
        DeviceSetup::parse(DeviceClass::Ssd, text)
    }

    fn hdd(text: &str) -> Result<DeviceSetup> {
        DeviceSetup::parse(DeviceClass::Hdd, text)
    }

    #[test]
    fn a_device_has_a_size_a_model_and_perhaps_a_count() {
        let disks = hdd("73GB,model=mba3073,count=4").unwrap();
        let size = Size::Bytes(Bytes(73_000_000_000));
        assert_eq!((disks.size, disks.model.as_str(), disks.count), (size, "mba3073", 4));
        let one = ssd("80GiB,model=./my.toml").unwrap();
        assert_eq!((one.model.as_str(), one.count, one.group), ("./my.toml", 1, None));
    }

    #[test]
    fn a_size_may_be_a_share_of_the_data() {
        let size = |text: &str| ssd(&format!("{text},model=x25-m")).unwrap().size;
        assert_eq!((size("20%"), size("150%")), (Size::Share(0.2), Size::Share(1.5)));
        assert_eq!([size("7%"), size("12.5%")].map(|size| size.to_string()), ["7%", "12.5%"]);
    }

    #[test]
    fn a_device_may_be_a_group() {
        let group = |text: &str| hdd(text).unwrap().group.unwrap();
        let striped = |members, unit| DeviceGroup { members, level: Level::Striped { unit } };
        assert_eq!(group("292GB,model=mba3073,raid0=4"), striped(4, KIB * 64));
        assert_eq!(group("292GB,unit=1MiB,model=mba3073,raid0=4"), striped(4, MIB));
        assert_eq!(group("73GB,model=mba3073,raid1=2"), DeviceGroup { members: 2, level: Level::Mirrored });
        let spec = hdd("292GB,model=mba3073,raid0=4,count=2").unwrap().spec().unwrap();
        assert_eq!((&*spec.name, spec.class), ("raid0 of 4 mba3073", DeviceClass::Hdd));
    }

    #[test]
    fn a_disk_may_have_its_write_cache_off() {
        let timing = |text: &str| match hdd(text).unwrap().spec().unwrap().timing {
            Timing::Hdd(params) => params.write_cache,
            Timing::Group(params) => !matches!(params.member.timing, Timing::Hdd(p) if !p.write_cache),
            other => panic!("{other:?} is no disk's"),
        };
        assert!(timing("73GB,model=mba3073") && timing("73GB,model=mba3073,write-cache=on"));
        assert!(!timing("73GB,model=mba3073,write-cache=off"));
        assert!(!timing("73GB,model=mba3073,write-cache=off,raid1=2"));
        let error = hdd("73GB,model=mba3073,write-cache=perhaps").unwrap_err().to_string();
        assert!(error.contains("write-cache=perhaps"), "{error}");
        // A drive in the place of a disk, and a model of two rates, would ignore the option.
        for text in ["1GiB,model=samsung-960,as=hdd", "1GiB,model=ws-ros-hdd"] {
            let error = hdd(&format!("{text},write-cache=off")).unwrap().spec().unwrap_err().to_string();
            assert!(error.contains("write-cache=off"), "{text}: {error}");
        }
    }

    #[test]
    fn devices_are_on_nodes_by_turns() {
        let nodes = |text: &str| {
            let disks = hdd(&format!("73GB,model=mba3073,count=5{text}")).unwrap();
            [0, 1, 2, 3, 4].map(|number| disks.node(number).map(|node| node.0))
        };
        assert_eq!(nodes(""), [None; 5]);
        assert_eq!(nodes(",node=3"), [Some(3); 5]);
        assert_eq!(nodes(",node=1-3"), [1, 2, 3, 1, 2].map(Some));
    }

    #[test]
    fn invalid_device_text_is_rejected_with_the_expected_form() {
        for (text, expected) in [
            ("", "''"),
            ("big,model=x25-m", "'big'"),
            ("0%,model=x25-m", "'0%'"),
            ("-5%,model=x25-m", "'-5%'"),
            ("nan%,model=x25-m", "'nan%'"),
            ("1e9%,model=x25-m", "10000%"),
            ("80GiB", "model=NAME"),
            ("80GiB,x25-m", "'x25-m'"),
            ("80GiB,model=a,model=b", "model=b"),
            ("80GiB,model=x25-m,as=hdd", "as=hdd"),
            ("80GiB,model=x25-m,write-cache=off", "write-cache=off"),
            ("80GiB,model=x25-m,count=0", "count=0"),
            ("80GiB,model=x25-m,count=many", "1 to 1024"),
            ("80GiB,model=x25-m,node=", "node="),
            ("80GiB,model=x25-m,node=3-2", "node=3-2"),
            ("80GiB,model=x25-m,node=0-1024", "1023"),
            ("80GiB,model=x25-m,node=-1", "node=-1"),
            ("80GiB,model=x25-m,raid0=65", "1 to 64"),
            ("80GiB,model=x25-m,raid1=0", "1 to 64"),
            ("80GiB,model=x25-m,raid0=2,raid1=2", "raid1"),
            ("80GiB,model=x25-m,raid0=2,raid0=4", "'raid0=4'"),
            ("80GiB,model=x25-m,raid1=2,unit=64KiB", "unit"),
            ("80GiB,model=x25-m,unit=64KiB", "unit"),
            ("80GiB,model=x25-m,raid0=2,unit=big", "'big'"),
            ("80GiB,model=x25-m,raid0=2,unit=96KiB", "4KiB to 64MiB"),
        ] {
            let error = ssd(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("--ssd SIZE,model=NAME"), "{text}: {error}");
        }
    }

    #[test]
    fn a_model_comes_from_a_file_and_must_be_of_the_class() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml").display().to_string();
        let text = braid_model::by_name("mba3073").unwrap().to_toml().unwrap();
        std::fs::write(&path, text.replace("\"mba3073\"", "\"mine\"")).unwrap();
        assert_eq!(hdd(&format!("73GB,model={path}")).unwrap().spec().unwrap().name, "mine");
        let mirror = hdd(&format!("73GB,model={path},raid1=2")).unwrap().spec().unwrap();
        assert_eq!(mirror.name, "raid1 of 2 mine");

        let error = |device: Result<DeviceSetup>| device.unwrap().spec().unwrap_err().to_string();
        assert!(error(ssd(&format!("73GB,model={path}"))).contains("--hdd"));
        assert!(error(hdd("73GB,model=none.toml")).contains("none.toml"));
        let directory = folder.path().display().to_string();
        assert!(error(hdd(&format!("73GB,model={directory}"))).contains(&directory));
        std::fs::write(&path, "kind = \"hdd\"").unwrap();
        assert!(error(hdd(&format!("73GB,model={path}"))).contains("'name'"));
    }

    #[test]
    fn ssd_model_replaces_a_disk_only_with_as_hdd() {
        let spec = |text: &str| hdd(text).unwrap().spec();
        assert_eq!(spec("1GiB,model=samsung-960,as=hdd").unwrap().name, "samsung-960");
        let error = spec("1GiB,model=samsung-960").unwrap_err().to_string();
        assert!(error.contains("--ssd"), "{error}");
    }
}
