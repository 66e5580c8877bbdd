//! A volume that changes its size while frontends hold it: guests' requests wait, the volume closes with its
//! new size and opens again, and the requests continue. No request fails, and no frontend notices more than a
//! pause and another [`Export::size`].
//!
//! The pause takes as long as a shutdown and an opening: less than a second for each TiB mapped. The memory
//! cache and the counters of the volume begin anew.

use crate::devices::within;
use crate::export::{Allocation, Durability, Export, Hints, Zeroing};
use crate::life::Resizing;
use crate::open::{OpenOptions, open};
use crate::{Error, ErrorKind, Result, Volume};
use braid_base::{Bytes, Nanos, Request, Rng};
use braid_format::superblock::DeviceState;
use braid_runtime::{Buf, Device, Event, Runtime, Semaphore};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Longest wait for requests in flight before a resize: other requests wait meanwhile.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// A handle of a volume that can change its size. Cheap to clone.
pub struct ResizableVolume<R, D> {
    shared: Rc<Shared<R, D>>,
    /// Hints of guests for requests through the handle.
    hints: Hints,
}

/// State of all handles.
struct Shared<R, D> {
    rt: R,
    /// The present opening.
    volume: RefCell<Volume<R, D>>,
    /// Options of the next opening.
    options: RefCell<OpenOptions>,
    /// Number of requests in flight.
    inside: Cell<usize>,
    /// True while requests wait for the next opening.
    is_shut: Cell<bool>,
    /// Notified when requests may enter, or the last request has left.
    changed: Event,
    /// Set if the volume could not be opened again.
    failure: RefCell<Option<Error>>,
    /// One resize at a time.
    resizes: Semaphore,
}

/// A request in flight to the present opening, until dropped.
struct Admitted<'a, R, D> {
    shared: &'a Shared<R, D>,
    volume: Volume<R, D>,
}

impl<R, D> Drop for Admitted<'_, R, D> {
    fn drop(&mut self) {
        let inside = self.shared.inside.get() - 1;
        self.shared.inside.set(inside);
        if inside == 0 && self.shared.is_shut.get() {
            self.shared.changed.notify();
        }
    }
}

impl<R, D> Clone for ResizableVolume<R, D> {
    fn clone(&self) -> ResizableVolume<R, D> {
        ResizableVolume { shared: self.shared.clone(), hints: self.hints }
    }
}

impl<R: Runtime, D: Device> ResizableVolume<R, D> {
    /// Wraps an open volume. `options` are those of its opening.
    pub fn new(rt: R, volume: Volume<R, D>, options: OpenOptions) -> ResizableVolume<R, D> {
        let shared = Shared {
            rt,
            volume: RefCell::new(volume),
            options: RefCell::new(options),
            inside: Cell::new(0),
            is_shut: Cell::new(false),
            changed: Event::default(),
            failure: RefCell::default(),
            resizes: Semaphore::new(1),
        };
        ResizableVolume { shared: Rc::new(shared), hints: Hints::default() }
    }

    /// Returns the present opening. After a resize, the handle refers to a closed volume.
    pub fn volume(&self) -> Volume<R, D> {
        self.shared.volume.borrow().clone()
    }

    /// Changes the size. Requests of guests wait meanwhile.
    ///
    /// A power cut leaves the volume with the old or the new size, and the call can be repeated.
    ///
    /// # Errors
    /// - `Invalid` for a size that no volume has, data beyond a smaller size, an adopted disk, and epochs.
    /// - `NoSpace` if the devices have no room for the size.
    /// - `Degraded` or `Busy` if a device is not in use, or copies differ: the remedy is in the message.
    /// - `Io` for errors of devices.
    ///
    /// The volume is open with its old size then. If the volume could not be opened again, its requests fail
    /// with [`ResizableVolume::failure`].
    pub async fn resize(&self, size: Bytes) -> Result<()> {
        let shared = &self.shared;
        let _alone = shared.resizes.acquire(1).await;
        let volume = self.volume();
        if size == volume.size() {
            return Ok(());
        }
        let resizing = volume.prepare_resize(size).await?;
        shared.is_shut.set(true);
        let resized = match self.complete(&volume, &resizing).await {
            Ok(()) => self.close_and_open(&volume, resizing).await,
            Err(error) => {
                volume.abandon_resize(&resizing);
                Err(error)
            }
        };
        shared.is_shut.set(false);
        shared.changed.notify();
        resized
    }

    /// Waits until no request is in flight, and ends the work that needs the open volume.
    async fn complete(&self, volume: &Volume<R, D>, resizing: &Resizing) -> Result<()> {
        let shared = &self.shared;
        let idle = shared.changed.wait_for(|| (shared.inside.get() == 0).then_some(()));
        if within(&shared.rt, PATIENCE, idle).await.is_none() {
            let text = format!("requests of guests have not ended after {PATIENCE}: repeat the resize later");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        volume.complete_resize(resizing).await
    }

    async fn close_and_open(&self, volume: &Volume<R, D>, resizing: Resizing) -> Result<()> {
        match volume.close_resized(resizing).await {
            Ok(resized) => self.open_again(volume).await.and(resized),
            Err(error) => self.fail(error),
        }
    }

    /// Closes the volume, after a resize that is under way.
    ///
    /// # Errors
    /// As [`Volume::close`], and [`ResizableVolume::failure`].
    pub async fn close(&self) -> Result<()> {
        let _alone = self.shared.resizes.acquire(1).await;
        match self.failure() {
            Some(error) => Err(error),
            None => self.volume().close().await,
        }
    }

    /// Returns the reason if the volume could not be opened again after a resize. All requests fail then, and
    /// the volume must be opened from its devices.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure.borrow().clone()
    }

    /// Opens the closed volume on the same devices.
    async fn open_again(&self, closed: &Volume<R, D>) -> Result<()> {
        let options = {
            let mut options = self.shared.options.borrow_mut();
            let superblock = closed.superblock();
            // All devices are present and current.
            (options.distrust, options.outdated) = (Vec::new(), Vec::new());
            options.noted = options.noted.map(|_| closed.noted());
            options.owner = Rng::new(superblock.owner ^ superblock.epoch).next_u64();
            options.clone()
        };
        // A command with a handle of the closed volume must write nothing any more.
        closed.core.store.devices.iter().for_each(|member| member.shut());
        let members =
            closed.core.store.devices.iter().filter(|member| member.state() != DeviceState::Removed);
        let devices: Vec<Rc<D>> = members.filter_map(|member| member.handle()).collect();
        let names = (0..devices.len()).map(|place| format!("device {place}")).collect();
        match open(self.shared.rt.clone(), devices, OpenOptions { names, ..options }).await {
            Ok((core, _)) => {
                self.shared.volume.replace(Volume::of(core));
                Ok(())
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&self, error: Error) -> Result<()> {
        let text = format!("the volume could not be opened again after a resize: {error}; serve it again");
        let error = Error::new(error.kind(), text);
        self.shared.failure.replace(Some(error.clone()));
        Err(error)
    }

    /// Admits a request, after a resize that is under way.
    async fn enter(&self) -> Result<Admitted<'_, R, D>> {
        let shared = &*self.shared;
        if shared.is_shut.get() {
            shared.changed.wait_for(|| (!shared.is_shut.get()).then_some(())).await;
        }
        if let Some(error) = &*shared.failure.borrow() {
            return Err(error.clone());
        }
        shared.inside.set(shared.inside.get() + 1);
        let volume = shared.volume.borrow().with_hints(self.hints);
        Ok(Admitted { shared, volume })
    }
}

impl<R: Runtime, D: Device> Export for ResizableVolume<R, D> {
    fn size(&self) -> Bytes {
        self.shared.volume.borrow().size()
    }

    fn preferred_block(&self) -> Bytes {
        self.shared.volume.borrow().preferred_block()
    }

    fn is_read_only(&self) -> bool {
        self.shared.volume.borrow().is_read_only()
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> Result<()> {
        self.enter().await?.volume.read(offset, into).await
    }

    async fn write(&self, offset: Bytes, from: &Buf, durability: Durability) -> Result<()> {
        self.enter().await?.volume.write(offset, from, durability).await
    }

    async fn flush(&self) -> Result<()> {
        self.enter().await?.volume.flush().await
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.enter().await?.volume.discard(offset, len).await
    }

    fn discards_to_zeros(&self) -> bool {
        self.shared.volume.borrow().discards_to_zeros()
    }

    async fn write_zeroes(
        &self,
        offset: Bytes,
        len: Bytes,
        zeroing: Zeroing,
        durability: Durability,
    ) -> Result<()> {
        self.enter().await?.volume.write_zeroes(offset, len, zeroing, durability).await
    }

    async fn prefetch(&self, offset: Bytes, len: Bytes) -> Result<()> {
        self.enter().await?.volume.prefetch(offset, len).await
    }

    fn with_hints(&self, hints: Hints) -> ResizableVolume<R, D> {
        ResizableVolume { shared: self.shared.clone(), hints }
    }

    fn allocation(&self, offset: Bytes, limit: Bytes) -> (Allocation, Bytes) {
        self.shared.volume.borrow().allocation(offset, limit)
    }

    fn asked(&self, request: Request) {
        self.shared.volume.borrow().asked(request);
    }
}
