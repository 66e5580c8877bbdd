//! Channel to the driver: commands to `/dev/ublk-control`, by a small ring of its own with submissions of 128
//! bytes. The reactor's ring waits for the results, so the thread serves requests meanwhile: the driver ends
//! some commands only after the server has answered requests, such as those of the scan for partitions.
#![allow(unsafe_code)]

use crate::wire::{ANY_DEVICE, ControlCommand, ControlVerb, DeviceInfo, Parameters};
use braid_base::Bytes;
use braid_engine::{Error, ErrorKind, Result};
use braid_runtime::{Arena, Buf, Semaphore};
use braid_uring::Ring;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use zerocopy::{FromBytes, IntoBytes};

/// The driver, for one command at a time.
pub(crate) struct Control {
    reactor: Ring,
    commands: IoUring<squeue::Entry128, cqueue::Entry>,
    driver: File,
    /// Memory of commands.
    memory: Buf,
    turn: Semaphore,
    /// Number of the latest command.
    sent: Cell<u64>,
    /// True from the start of a command to its result.
    is_pending: Cell<bool>,
}

/// File of the driver.
pub(crate) const CONTROL: &str = "/dev/ublk-control";
/// Bytes of the largest structure of a command.
const MEMORY: Bytes = Bytes(64);
/// Commands in the ring.
const ENTRIES: u32 = 4;

impl Control {
    /// Opens the channel.
    ///
    /// # Errors
    /// `Unsupported` if the driver is missing or refuses this process: names the remedy.
    pub fn open(ring: &Ring, arena: &Arena) -> Result<Control> {
        let driver = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => "load the driver with 'modprobe ublk_drv' (Linux 6.12 or later)",
                io::ErrorKind::PermissionDenied => "the process must run as root, and may open the file",
                _ => "see dmesg",
            };
            Error::new(ErrorKind::Unsupported, format!("cannot open {CONTROL}: {error}: {remedy}"))
        })?;
        let memory = arena.try_alloc(MEMORY).ok_or_else(|| {
            Error::new(ErrorKind::Busy, "all memory for guests' requests is in use: try again")
        })?;
        let commands = IoUring::builder().dontfork().build(ENTRIES);
        let commands =
            commands.map_err(|error| Error::io("a ring for commands to the ublk driver", &error))?;
        Ok(Control {
            reactor: ring.clone(),
            commands,
            driver,
            memory,
            turn: Semaphore::new(1),
            sent: Cell::new(0),
            is_pending: Cell::new(false),
        })
    }

    /// Returns the features of the driver.
    pub async fn features(&self) -> io::Result<u64> {
        let _turn = self.turn.acquire(1).await;
        let command = ControlCommand { len: size_of::<u64>() as u16, ..self.with_memory(ANY_DEVICE) };
        self.run(ControlVerb::Features, command).await?;
        Ok(self.received())
    }

    /// Makes a device, and returns its description.
    pub async fn add(&self, wanted: &DeviceInfo) -> io::Result<DeviceInfo> {
        let _turn = self.turn.acquire(1).await;
        self.memory.copy_from_slice(Bytes::ZERO, wanted.as_bytes());
        self.run(ControlVerb::Add, self.with_memory(wanted.number)).await?;
        Ok(self.received())
    }

    /// Describes a device.
    ///
    /// # Errors
    /// `ENODEV` if there is no such device.
    pub async fn device_info(&self, device: u32) -> io::Result<DeviceInfo> {
        let _turn = self.turn.acquire(1).await;
        self.run(ControlVerb::DeviceInfo, self.with_memory(device)).await?;
        Ok(self.received())
    }

    /// Sets the parameters of a new device.
    pub async fn set_parameters(&self, device: u32, parameters: &Parameters) -> io::Result<()> {
        let _turn = self.turn.acquire(1).await;
        self.memory.copy_from_slice(Bytes::ZERO, parameters.as_bytes());
        self.run(ControlVerb::SetParameters, self.with_memory(device)).await
    }

    /// Reads the parameters of a device.
    pub async fn parameters(&self, device: u32) -> io::Result<Parameters> {
        let _turn = self.turn.acquire(1).await;
        let request = Parameters { len: Parameters::LEN, parts: Parameters::PARTS, ..Parameters::default() };
        self.memory.copy_from_slice(Bytes::ZERO, request.as_bytes());
        self.run(ControlVerb::Parameters, self.with_memory(device)).await?;
        Ok(self.received())
    }

    /// Runs a command without memory: `argument` is a process for [`ControlVerb::Start`] and
    /// [`ControlVerb::EndRecovery`], a number of sectors for [`ControlVerb::UpdateSize`], else 0.
    pub async fn command(&self, verb: ControlVerb, device: u32, argument: u64) -> io::Result<()> {
        let _turn = self.turn.acquire(1).await;
        self.run(verb, ControlCommand::new(device, argument)).await
    }

    fn with_memory(&self, device: u32) -> ControlCommand {
        let address = self.memory.as_ptr().expose_provenance() as u64;
        ControlCommand { len: MEMORY.0 as u16, address, ..ControlCommand::new(device, 0) }
    }

    /// The structure in the memory.
    fn received<T: FromBytes>(&self) -> T {
        self.memory.with_bytes(|bytes| T::read_from_prefix(bytes).expect("the memory fits all structures").0)
    }

    /// Sends a command, and waits for its result. If dropped, the command continues.
    async fn run(&self, verb: ControlVerb, command: ControlCommand) -> io::Result<()> {
        let number = self.sent.get() + 1;
        self.sent.set(number);
        let driver = types::Fd(self.driver.as_raw_fd());
        let entry = opcode::UringCmd80::new(driver, verb as u32).cmd(command.encode()).build();
        // SAFETY: this thread alone uses the ring, and one queue at a time. The command's memory is
        // `self.memory`, which lives as long as the ring: see `drop`.
        let pushed = unsafe { self.commands.submission_shared().push(&entry.user_data(number)) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        self.is_pending.set(true);
        self.commands.submit()?;
        loop {
            if let Some(result) = self.result_of(number) {
                self.is_pending.set(false);
                return match result {
                    0.. => Ok(()),
                    error => Err(io::Error::from_raw_os_error(-error)),
                };
            }
            self.reactor.readable(&self.commands).await?;
        }
    }

    /// Takes the result of a command. Another result is of a command whose waiting was given up.
    fn result_of(&self, number: u64) -> Option<i32> {
        // SAFETY: this thread alone uses the ring, and one queue at a time.
        let mut results = unsafe { self.commands.completion_shared() };
        results.find(|result| result.user_data() == number).map(|result| result.result())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.is_pending.get() {
            // The driver may still write there.
            std::mem::forget(self.memory.clone());
        }
    }
}

/// True if the driver says that there is no such device.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}
