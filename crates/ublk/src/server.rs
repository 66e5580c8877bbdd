//! Serves an export to the kernel as a block device: the daemon's side.
//!
//! A task for each tag of the only queue: the task waits for a request of its tag, serves the request, and
//! sends the answer with the next wait in one command. There is no queue between the kernel and the verbs of
//! the export, no task and no allocation per request. All happens on the thread of the ring.
//!
//! Each tag has a buffer, to which the kernel copies the bytes of a write before the request arrives, and
//! from which the kernel copies the bytes of a read after the answer. Copies by the server itself
//! (`UBLK_F_USER_COPY`) would need a system call for each request, and save 8 MiB. Zero copy hides the bytes
//! from the server: no memory cache, and no checksums.

use crate::control::Control;
use crate::devices::{end, path_of, remove};
use crate::disk::{Disk, LONGEST};
use crate::queue::Queue;
use crate::serve::serve;
use crate::take_over::{Fit, find_waiting};
use crate::wire::{ANY_DEVICE, ControlVerb, DeviceInfo, ENCODED, LIVE, OUTLIVES_SERVER, RESIZABLE, TagVerb};
use braid_base::{Bytes, SECTOR};
use braid_engine::{Error, ErrorKind, Export, Result};
use braid_runtime::{Arena, Event};
use braid_uring::Ring;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A block device, served until removed. Dropping the handle changes nothing.
pub struct Server {
    channel: Rc<Channel>,
}

/// Settings of a new block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Mark of the volume, which the kernel keeps with the device: see [`crate::mark_of`].
    pub mark: u64,
    /// Logical sector: 512 bytes or 4 KiB.
    pub sector: Bytes,
    /// True if requests wait for the next server after the death of this process. False for a volume that
    /// ends with this process: requests fail then.
    pub outlives_server: bool,
}

/// State shared by the tasks.
struct Channel {
    ring: Ring,
    control: Control,
    number: u32,
    tasks: Cell<u16>,
    /// Requests in service.
    in_service: Cell<u16>,
    is_leaving: Cell<bool>,
    /// Notified when a task ends, and when a request is answered while leaving.
    changed: Event,
}

/// Requests of the kernel in flight: with [`LONGEST`], the buffers are 8 MiB.
const DEPTH: u16 = 64;

impl Server {
    /// Makes a block device for `export`, and serves the device as tasks of `ring`.
    ///
    /// The serving process must never open the block device itself: it would wait for its own answer.
    ///
    /// # Errors
    /// `Unsupported` if the driver is missing, too old or forbidden to this process.
    pub async fn start<E: Export>(
        ring: &Ring,
        export: &E,
        arena: &Arena,
        settings: Settings,
    ) -> Result<Server> {
        let Settings { mark, sector, outlives_server } = settings;
        let control = Control::open(ring, arena)?;
        let wanted = DeviceInfo {
            queues: 1,
            depth: DEPTH,
            longest_request: LONGEST.0 as u32,
            number: ANY_DEVICE,
            process: std::process::id() as i32,
            features: if outlives_server { OUTLIVES_SERVER | ENCODED } else { ENCODED },
            mark,
            ..DeviceInfo::default()
        };
        let info = control.add(&wanted).await.map_err(|error| Error::io("making a ublk device", &error))?;
        let disk = Disk {
            size: export.size(),
            sector,
            block: export.preferred_block(),
            is_read_only: export.is_read_only(),
        };
        let channel = Rc::new(Channel::new(ring, control, info.number));
        let started = match channel.prepare(wanted.features, &info, &disk).await {
            Ok(()) => channel.begin(export, arena, &info, ControlVerb::Start).await,
            Err(error) => Err(error),
        };
        if let Err(error) = started {
            channel.clean_up().await;
            return Err(error);
        }
        Ok(Server { channel })
    }

    /// Takes over the block device with `mark` whose server has ended, and serves the device. Requests that
    /// the earlier server has not answered come again. `None` if there is no such device.
    ///
    /// # Errors
    /// If the kernel does not let the device go, or the device does not fit the export. The device stays as
    /// it is, and its requests wait.
    pub async fn take_over<E: Export>(
        ring: &Ring,
        export: &E,
        arena: &Arena,
        mark: u64,
    ) -> Result<Option<Server>> {
        let found = find_waiting(ring, arena, mark, export.size()).await?;
        let Some((control, info, fit)) = found else { return Ok(None) };
        let channel = Rc::new(Channel::new(ring, control, info.number));
        channel.begin(export, arena, &info, ControlVerb::EndRecovery).await?;
        let server = Server { channel };
        if fit == Fit::Grow {
            server.set_size(export.size()).await?;
        }
        Ok(Some(server))
    }

    /// True if the driver can give the block device another size.
    ///
    /// # Errors
    /// If the driver does not tell its features.
    pub async fn is_resizable(&self) -> Result<bool> {
        let features = self.channel.control.features().await;
        let features =
            features.map_err(|error| Error::io("asking the ublk driver for its features", &error))?;
        Ok(features & RESIZABLE != 0)
    }

    /// Gives the block device another size.
    ///
    /// # Errors
    /// If the driver cannot, or the device is being removed.
    pub async fn set_size(&self, size: Bytes) -> Result<()> {
        let Channel { control, number, .. } = &*self.channel;
        let path = self.path();
        let attempt = || format!("changing the size of {}", path.display());
        let info = control.device_info(*number).await.map_err(|error| Error::io(attempt(), &error))?;
        // Drivers crash on a device without a disk: Linux 6.16 to 6.19.
        if info.state != LIVE || self.channel.tasks.get() == 0 {
            return Err(Error::new(ErrorKind::Busy, attempt() + ": the device is being removed"));
        }
        let set = control.command(ControlVerb::UpdateSize, *number, size.0 / SECTOR.0).await;
        set.map_err(|error| Error::io(attempt(), &error))
    }

    /// Path of the block device.
    pub fn path(&self) -> PathBuf {
        path_of(self.channel.number)
    }

    /// Removes the block device, after the answers to requests in flight. Later requests fail, and writes in
    /// the page cache of the block device are lost: first end the users of the device.
    ///
    /// # Errors
    /// If the driver refuses.
    pub async fn stop(&self) -> Result<()> {
        let Channel { control, number, .. } = &*self.channel;
        end(control, *number, ControlVerb::Stop).await?;
        self.ended().await;
        end(control, *number, ControlVerb::Delete).await
    }

    /// Leaves the block device to the next server, which finds the device by its mark: answers the requests
    /// in service, and no more. Later requests wait. The kernel lets the device go when this process ends.
    pub async fn leave(&self) {
        let channel = &self.channel;
        channel.is_leaving.set(true);
        channel.changed.wait_for(|| (channel.in_service.get() == 0).then_some(())).await;
        // The end of the ring would let the device go while this process still runs, and the driver warns of
        // a successor before that.
        std::mem::forget(channel.ring.clone());
    }

    /// Completes when the kernel sends no more requests, because any process has stopped the device.
    pub async fn ended(&self) {
        let channel = &self.channel;
        channel.changed.wait_for(|| (channel.tasks.get() == 0).then_some(())).await;
    }
}

impl Channel {
    fn new(ring: &Ring, control: Control, number: u32) -> Channel {
        Channel {
            ring: ring.clone(),
            control,
            number,
            tasks: Cell::new(0),
            in_service: Cell::new(0),
            is_leaving: Cell::new(false),
            changed: Event::default(),
        }
    }

    /// Checks the features of a new device, and sets its parameters.
    async fn prepare(&self, wanted: u64, info: &DeviceInfo, disk: &Disk) -> Result<()> {
        let missing = wanted & !info.features;
        if missing != 0 {
            let problem =
                format!("the ublk driver lacks features {missing:#x}: Linux 6.12 or later is needed");
            return Err(Error::new(ErrorKind::Unsupported, problem));
        }
        let set = self.control.set_parameters(self.number, &disk.parameters()).await;
        set.map_err(|error| Error::io("setting the parameters of a ublk device", &error))
    }

    /// Opens the queue, starts a task for each tag, and lets requests through by `verb`.
    async fn begin<E: Export>(
        self: &Rc<Self>,
        export: &E,
        arena: &Arena,
        info: &DeviceInfo,
        verb: ControlVerb,
    ) -> Result<()> {
        let longest = Bytes(info.longest_request.into());
        if longest == Bytes::ZERO || longest > Arena::LARGEST || info.depth == 0 {
            let problem = format!("{} has requests of {longest:?}", path_of(self.number).display());
            return Err(Error::new(ErrorKind::Unsupported, problem + ": another version of Braid made it"));
        }
        let queue = Rc::new(Queue::open(&self.ring, self.number, info.depth).await?);
        self.tasks.set(info.depth);
        for tag in 0..info.depth {
            let task =
                Task { channel: self.clone(), queue: queue.clone(), arena: arena.clone(), longest, tag };
            self.ring.spawn(task.run(export.clone()));
        }
        drop(queue);
        let process = u64::from(std::process::id());
        let begun = self.unless_ended(self.control.command(verb, self.number, process)).await;
        begun
            .unwrap_or_else(|| Err(std::io::Error::other("the driver refused to wait for requests")))
            .map_err(|error| Error::io(format_args!("starting {}", path_of(self.number).display()), &error))
    }

    /// Waits for `work`; `None` if all tasks end first.
    async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut ended = pin!(self.changed.wait_for(|| (self.tasks.get() == 0).then_some(())));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => ended.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// Removes a device that could not be started.
    async fn clean_up(&self) {
        if let Err(error) = remove(&self.control, self.number).await {
            tracing::warn!("a ublk device without a disk stays: {error}");
        }
    }
}

/// Task of one tag.
struct Task {
    channel: Rc<Channel>,
    queue: Rc<Queue>,
    arena: Arena,
    longest: Bytes,
    tag: u16,
}

impl Task {
    /// Serves requests of the tag until the kernel ends the tag. A request that arrives while the server
    /// leaves stays without an answer, and comes again to the next server.
    async fn run<E: Export>(self, export: E) {
        let Task { channel, queue, arena, longest, tag } = self;
        let mut memory = arena.alloc(longest).await;
        let mut next = queue.send(TagVerb::Fetch, tag, 0, &memory);
        while next.await.is_ok() && !channel.is_leaving.get() {
            channel.in_service.set(channel.in_service.get() + 1);
            let served = serve(&export, queue.request(tag), &memory).await;
            if served.is_err() {
                // A late device may still use the memory.
                drop(memory);
                memory = arena.alloc(longest).await;
            }
            let result = served.unwrap_or_else(|error| -error.raw_os_error());
            next = queue.send(TagVerb::CommitAndFetch, tag, result, &memory);
            channel.in_service.set(channel.in_service.get() - 1);
            if channel.is_leaving.get() {
                channel.changed.notify();
            }
        }
        drop(queue);
        if !channel.is_leaving.get() {
            channel.tasks.set(channel.tasks.get() - 1);
            channel.changed.notify();
        }
    }
}
