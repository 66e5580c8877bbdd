//! Options of a new volume, shared by `create` and `serve --temporary`.

use braid_base::{Bytes, DeviceClass};
use braid_control::{DeviceSpec, Error, ErrorKind, NewVolume, Result, VolumeName};
use clap::Args;

/// Default policy of a volume on an adopted disk.
const ADOPTING: &str = "cache";

/// Options of a new volume.
#[derive(Args, Debug)]
#[command(next_help_heading = "The new volume")]
pub struct VolumeOptions {
    /// SSD of the volume: a block device or a file. size= creates a missing file, sparse. model= emulates the
    /// timing of a model, by name or file (braid device show); flushes then reach only this machine's page
    /// cache: for trials, not for data that must survive a power cut. layout=tail puts Braid's metadata at
    /// the end of the device; data then lies at its volume address or not on the device at all. In place of
    /// PATH: the address of an NBD export (nbd://, nbds://, nbd+unix://), an RBD image (rbd:POOL/IMAGE; size=
    /// makes the image), or `memory`, for serve --temporary only. Repeat the option for each device
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    ssd: Vec<String>,
    /// Hard disk of the volume: as --ssd. Models are x25-m, x25-e, memoright-gt, transcend-16g, sata-ssd,
    /// nvme-ssd (SSDs), mba3073, cheetah-15k5, barracuda-7200.12, exos-x20 (disks), dram (memory: --ssd),
    /// from the rates of papers alone ws-ros-ssd, ws-ros-hdd, x25-m-worn, p4800x, samsung-960 and
    /// samsung-870, or your own: FILE.toml
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    hdd: Vec<String>,
    /// Disk or image with data, to become the volume: its data stays in place, nothing else is written to the
    /// disk, and the SSDs of --ssd cache the disk. The disk must not be mounted. Only policies that leave
    /// data in place fit: cache, hystor, hdd-only
    #[arg(long, value_name = "DISK[,model=M]", conflicts_with = "hdd")]
    adopt: Option<String>,
    /// Policy that places and moves data [default: equi,mode=auto; with --adopt: cache]
    #[arg(long, value_name = "POLICY[,KEY=VALUE...]")]
    policy: Option<String>,
    /// Unit of placement, 4KiB to 64MiB [default: 128KiB]
    #[arg(long, value_name = "SIZE")]
    extent: Option<Bytes>,
    /// Unit of caching, 4KiB to 64KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// Required copies of all data, on different devices: 1 or 2 [default: 1]
    #[arg(long, value_name = "COUNT")]
    copies: Option<u8>,
    /// Size of the volume [default: the capacity of the devices under the policy, minus a part of the SSDs
    /// that other policies need later: 20 %, or all SSDs if they have at most an eighth of the disks' size].
    /// The output lists the policies that fit, and the size for the others
    #[arg(long)]
    size: Option<Bytes>,
    /// Overwrite devices that hold data
    #[arg(long)]
    force: bool,
}

impl VolumeOptions {
    /// Returns the volume that the options describe.
    pub fn new_volume(&self, name: VolumeName) -> Result<NewVolume> {
        let ssds = self.ssd.iter().map(|text| DeviceSpec::parse(DeviceClass::Ssd, text));
        let hdds = self.hdd.iter().map(|text| DeviceSpec::parse(DeviceClass::Hdd, text));
        let devices = ssds.chain(hdds).collect::<Result<Vec<_>>>()?;
        let adopt =
            self.adopt.as_deref().map(|text| DeviceSpec::parse(DeviceClass::Hdd, text)).transpose()?;
        if devices.is_empty() && adopt.is_some() {
            let problem = "an adopted disk needs an SSD as its cache: name an SSD with --ssd PATH";
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        if devices.is_empty() {
            let problem = "a volume needs devices: name at least one with --ssd PATH or --hdd PATH";
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        let usual = NewVolume::new(name, devices);
        Ok(NewVolume {
            policy: self.policy.clone().unwrap_or(if adopt.is_some() {
                ADOPTING.to_owned()
            } else {
                usual.policy
            }),
            adopt,
            extent_size: self.extent.unwrap_or(usual.extent_size),
            block_size: self.block.unwrap_or(usual.block_size),
            copies: self.copies.unwrap_or(usual.copies),
            size: self.size,
            overwrite: self.force,
            ..usual
        })
    }

    /// True if at least one option was given.
    pub fn any(&self) -> bool {
        !self.ssd.is_empty()
            || !self.hdd.is_empty()
            || self.adopt.is_some()
            || self.policy.is_some()
            || self.extent.is_some()
            || self.block.is_some()
            || self.copies.is_some()
            || self.size.is_some()
            || self.force
    }
}
