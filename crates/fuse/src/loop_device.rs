//! Loop devices: the kernel's block devices over files (`linux/loop.h`).
#![allow(unsafe_code)]

use crate::mounts::{list, uses};
use braid_engine::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, IntegerSetter, Opcode, Setter, ioctl};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A loop device, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoopDevice {
    number: u32,
}

/// Configuration of a bound loop device.
pub(crate) struct Status {
    /// Name from the configuration, at most 63 bytes.
    pub name: Vec<u8>,
    /// Device number of the file system that holds the backing file.
    pub backing: (u32, u32),
}

/// Keeps other processes from attaching and detaching until dropped.
pub(crate) fn lock() -> Result<File> {
    let control = open_control()?;
    rustix::fs::flock(&control, FlockOperation::LockExclusive)
        .map_err(|error| Error::io("locking /dev/loop-control", &error.into()))?;
    Ok(control)
}

fn open_control() -> Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(|error| {
        Error::io("opening /dev/loop-control (needs root, and the kernel's loop driver)", &error)
    })
}

impl LoopDevice {
    /// All loop devices with a file, and their configuration.
    pub fn bound() -> Result<Vec<(LoopDevice, Status)>> {
        let entries =
            fs::read_dir("/sys/class/block").map_err(|error| Error::io("/sys/class/block", &error))?;
        let name_of = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        let numbers =
            entries.flatten().filter_map(name_of).filter_map(|name| name.strip_prefix("loop")?.parse().ok());
        let bound = numbers.map(|number| LoopDevice { number }).filter(LoopDevice::is_bound);
        // A device that goes meanwhile is left out.
        Ok(bound.filter_map(|device| Some((device, device.status().ok()?))).collect())
    }

    /// Puts a free loop device over `file`, with direct I/O and sectors of `sector_size`, under `name`.
    pub fn configure(file: &File, sector_size: u32, name: &[u8]) -> Result<LoopDevice> {
        let mut config = Config { fd: file.as_raw_fd() as u32, sector_size, ..Config::default() };
        config.info.flags = DIRECT_IO | SCAN_PARTITIONS;
        config.info.name[..name.len()].copy_from_slice(name);
        let control = open_control()?;
        // Another process may take the free device first: then the next.
        for _ in 0..TRIES {
            // SAFETY: LOOP_CTL_GET_FREE takes no argument and gives a number.
            let free = unsafe { ioctl(&control, ReturnsNumber::<GET_FREE>) };
            let number = free.map_err(|error| Error::io("finding a free loop device", &error.into()))?;
            let device = LoopDevice { number };
            let opened = device.open(OFlags::empty());
            let opened = opened.map_err(|error| Error::io(device.path().display(), &error))?;
            // SAFETY: LOOP_CONFIGURE reads a `loop_config`, whose layout `Config` has; `file` is open.
            match unsafe { ioctl(&opened, Setter::<CONFIGURE, Config>::new(config)) } {
                Ok(()) => return Ok(device),
                Err(Errno::BUSY) => {}
                Err(error) => {
                    let attempt = format!(
                        "configuring {} over the volume (Linux 5.8 or later)",
                        device.path().display()
                    );
                    return Err(Error::io(attempt, &error.into()));
                }
            }
        }
        Err(Error::new(
            ErrorKind::Io,
            format!("other programs took {TRIES} free loop devices first: try again"),
        ))
    }

    /// Takes the size of the file again, as `losetup -c` does. Programs may have the device open, and a file
    /// system may be mounted.
    pub fn follow_size(&self) -> Result<()> {
        let device = self.path();
        let opened = self.open(OFlags::empty()).map_err(|error| Error::io(device.display(), &error))?;
        // SAFETY: LOOP_SET_CAPACITY takes no argument.
        let set = unsafe { ioctl(&opened, IntegerSetter::<SET_CAPACITY>::new_usize(0)) };
        set.map_err(|error| Error::io(format_args!("resizing {}", device.display()), &error.into()))
    }

    /// Checks the device as the kernel made it: direct I/O, and the size.
    pub fn check(&self, size: u64) -> Result<()> {
        let direct = self.attribute("loop/dio");
        if direct.as_deref() != Some("1") {
            let message =
                format!("{}: the kernel refuses direct I/O (loop/dio is {direct:?})", self.path().display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let sectors = self.attribute("size");
        if sectors.as_deref().and_then(|text| text.parse().ok()) != Some(size / 512) {
            let message = format!("{}: {sectors:?} sectors for {size} bytes", self.path().display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        Ok(())
    }

    /// Detaches the file once no process has the device open: at once, or after the last unmount.
    pub fn clear_when_unused(&self) -> Result<()> {
        let device = self.path();
        let opened = self.open(OFlags::empty()).map_err(|error| Error::io(device.display(), &error))?;
        self.clear(&opened).map_err(|error| {
            let uses = list(&uses(&device).unwrap_or_default());
            Error::io(format_args!("detaching the stale {} ({uses})", device.display()), &error)
        })
    }

    /// Detaches the file if the device is neither mounted nor claimed otherwise; else `ResourceBusy`. Mounts
    /// in other namespaces count, too.
    pub fn clear_unused(&self) -> io::Result<()> {
        let opened = self.open(OFlags::EXCL)?;
        self.clear(&opened)
    }

    fn clear(&self, opened: &File) -> io::Result<()> {
        // SAFETY: LOOP_CLR_FD takes no argument.
        match unsafe { ioctl(opened, IntegerSetter::<CLEAR>::new_usize(0)) } {
            // Another process has detached the file.
            Ok(()) | Err(Errno::NXIO) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the device has no file any more. False if the file remains after `patience`.
    pub fn wait_until_gone(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.is_bound() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Path of the block device.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    fn is_bound(&self) -> bool {
        self.attribute("loop/backing_file").is_some()
    }

    fn status(&self) -> io::Result<Status> {
        let opened = OpenOptions::new().read(true).open(self.path())?;
        // SAFETY: LOOP_GET_STATUS64 fills a `loop_info64`, whose layout `Info` has.
        let info = unsafe { ioctl(opened, Getter::<GET_STATUS, Info>::new()) }?;
        let name = info.name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        Ok(Status { name, backing: split(info.device) })
    }

    fn open(&self, flags: OFlags) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(self.path())
    }

    fn attribute(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(format!("/sys/class/block/loop{}/{name}", self.number)).ok()?;
        Some(text.trim().to_owned())
    }
}

/// Major and minor of a device number in the encoding of this interface (`new_encode_dev`, of 32 bits).
fn split(device: u64) -> (u32, u32) {
    (((device >> 8) & 0xfff) as u32, ((device & 0xff) | ((device >> 12) & 0xfff00)) as u32)
}

/// Tries if other processes take free devices first.
const TRIES: u32 = 16;

const CLEAR: Opcode = 0x4c01;
const GET_STATUS: Opcode = 0x4c05;
const SET_CAPACITY: Opcode = 0x4c07;
const CONFIGURE: Opcode = 0x4c0a;
const GET_FREE: Opcode = 0x4c82;

const SCAN_PARTITIONS: u32 = 8;
const DIRECT_IO: u32 = 16;

/// `struct loop_config`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Config {
    fd: u32,
    sector_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// `struct loop_info64`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_size: u32,
    flags: u32,
    name: [u8; 64],
    encryption_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
}

impl Default for Info {
    fn default() -> Info {
        Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encryption: 0,
            key_size: 0,
            flags: 0,
            name: [0; 64],
            encryption_name: [0; 64],
            key: [0; 32],
            init: [0; 2],
        }
    }
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

/// An ioctl without argument whose result is a number.
struct ReturnsNumber<const OPCODE: Opcode>;

// SAFETY: nothing is passed and nothing is written; the result is the return value.
unsafe impl<const OPCODE: Opcode> rustix::ioctl::Ioctl for ReturnsNumber<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        number: rustix::ioctl::IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<u32> {
        Ok(number as u32)
    }
}
