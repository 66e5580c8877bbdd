//! What a new volume is made of: options that `create` and `serve --temporary` share.

use braid_base::{Bytes, DeviceClass};
use braid_control::{DeviceSpec, Error, ErrorKind, NewVolume, Result, VolumeName};
use clap::Args;

/// The policy of a volume on an adopted disk if none is given.
const ADOPTING: &str = "cache";

/// Options of a new volume.
#[derive(Args, Debug)]
#[command(next_help_heading = "The new volume")]
pub struct VolumeOptions {
    /// An SSD: a block device or a file. With size=, a missing file is made, sparse. With model=, the device
    /// gets the timing of that model or file (braid device show), and its flushes reach this machine's page
    /// cache only: for trials, not for data that must survive a power cut. With layout=tail, Braid's metadata
    /// lies at the end, and data at the same address as in the volume or not on the device at all. `memory`
    /// as PATH: only with serve --temporary. Repeat it for each device
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    ssd: Vec<String>,
    /// A hard disk: as --ssd. Models are x25-m, x25-e, memoright-gt, transcend-16g, sata-ssd, nvme-ssd
    /// (SSDs), mba3073, cheetah-15k5, barracuda-7200.12, exos-x20 (disks), dram (memory: --ssd), from the
    /// rates of papers alone ws-ros-ssd, ws-ros-hdd, x25-m-worn, p4800x, samsung-960 and samsung-870, or your
    /// own: FILE.toml
    #[arg(long, value_name = "PATH[,size=S][,model=M][,layout=L]")]
    hdd: Vec<String>,
    /// A disk or image with data on it, which becomes the volume: its bytes stay where they are, nothing else
    /// is written to it, and the SSDs given with --ssd cache it. It must not be mounted. Policies that leave
    /// data where it is fit: cache, hystor, hdd-only
    #[arg(long, value_name = "DISK[,model=M]", conflicts_with = "hdd")]
    adopt: Option<String>,
    /// What decides where data lies and when it moves [default: equi,mode=auto; with --adopt: cache]
    #[arg(long, value_name = "POLICY[,KEY=VALUE...]")]
    policy: Option<String>,
    /// The unit of placement, 4KiB to 64MiB [default: 128KiB]
    #[arg(long, value_name = "SIZE")]
    extent: Option<Bytes>,
    /// The unit of caching, 4KiB to 64KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// Required copies of everything, on different devices: 1 or 2 [default: 1]
    #[arg(long, value_name = "COUNT")]
    copies: Option<u8>,
    /// The volume's size [default: all that the devices hold under its policy, but for a part of the SSDs
    /// that other policies need later: 20 %, or all of SSDs of an eighth of the disks at most]. The output
    /// says which policies fit, and the size for the others
    #[arg(long)]
    size: Option<Bytes>,
    /// Overwrite devices that hold something
    #[arg(long)]
    force: bool,
}

impl VolumeOptions {
    /// The volume that these options describe.
    pub fn new_volume(&self, name: VolumeName) -> Result<NewVolume> {
        let ssds = self.ssd.iter().map(|text| DeviceSpec::parse(DeviceClass::Ssd, text));
        let hdds = self.hdd.iter().map(|text| DeviceSpec::parse(DeviceClass::Hdd, text));
        let devices = ssds.chain(hdds).collect::<Result<Vec<_>>>()?;
        let adopt =
            self.adopt.as_deref().map(|text| DeviceSpec::parse(DeviceClass::Hdd, text)).transpose()?;
        if devices.is_empty() && adopt.is_some() {
            let problem = "an adopted disk needs an SSD before it: name one with --ssd PATH";
            return Err(Error::new(ErrorKind::Usage, problem));
        }
        if devices.is_empty() {
            let problem = "a volume is made of devices: name at least one with --ssd PATH or --hdd PATH";
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

    /// Whether any was given.
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
