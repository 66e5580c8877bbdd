//! An image as a device.

use crate::calls::{Calls, calls};
use crate::error::{failed, failed_as};
use crate::image_name::ImageName;
use crate::keeper::{self, Keeper, Orders};
use crate::lock::Owner;
use crate::requests::{MESSAGES, Message, Request, Requests};
use braid_base::{Bytes, DeviceClass, Nanos, SECTOR};
use braid_runtime::{Buf, Device, Event, Geometry, Runtime};
use braid_uring::{Receiver, Ring, mailbox};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Access that an opening requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads and writes, with the exclusive lock of the image.
    ReadWrite,
    /// Reads, beside other readers and a writer. Takes no lock.
    ReadOnly,
}

/// An image of a cluster. Locked against other writers while open.
///
/// A write completes when the cluster has its bytes on all copies; a flush waits for the writes before it.
/// After a failed flush every later flush fails.
///
/// A device that has lost its lock, because another client took the image over, is of no use any more: the
/// first reply that says so (`ESHUTDOWN`, which Ceph calls `EBLOCKLISTED`, or `EROFS`) ends all later
/// requests with the same error. After `ETIMEDOUT`, the range of a write has old or new bytes, or some of
/// each.
///
/// An image that shrinks while open loses bytes. The keeper of the image notices a change of the size, and
/// every later write and flush fails. An image that grows keeps its first size here.
///
/// Dropping the device closes the image and releases the lock. If no request is in flight, the drop waits for
/// the end, for at most 2 s: a process that ends earlier leaves a lock that lasts 30 s.
pub struct RbdDevice {
    image: ImageName,
    geometry: Geometry,
    access: Access,
    shared: Rc<Shared>,
    flush_failed: Cell<bool>,
    /// The reply that ended the device's use for good.
    lost: Cell<Option<i64>>,
    /// True if the cluster replied to a request with an error.
    is_refused: Cell<bool>,
}

/// State that outlives the device, until librbd has called back for each request.
struct Shared {
    requests: Requests,
    orders: Arc<Orders>,
    /// Smallest size that the image has had since the opening.
    smallest: Cell<Bytes>,
    size_found: Event,
}

impl RbdDevice {
    /// Connects to the cluster, opens the image, and takes the image's lock for [`Access::ReadWrite`].
    ///
    /// Never takes the lock from a client that is alive. A client that is silent without having released the
    /// lock is waited for until the cluster forgets the client, for up to 30 s.
    ///
    /// # Errors
    /// `ResourceBusy` if a client that is alive has the lock; `NotFound` without cluster, pool or image;
    /// `Unsupported` without Ceph's libraries or the image's feature exclusive-lock; `TimedOut` after
    /// 90 s; else the error of the cluster, with [`errno`](crate::errno).
    pub async fn open(
        ring: &Ring,
        image: &ImageName,
        class: DeviceClass,
        access: Access,
    ) -> io::Result<RbdDevice> {
        RbdDevice::open_with(calls()?, ring, image, class, access, Owner::Respected).await
    }

    /// As [`RbdDevice::open`] with [`Access::ReadWrite`], and shuts a client with the lock out of the
    /// cluster, alive or not, before the lock is taken: each later request of that client fails. For a host
    /// that takes over from a host that failed, within a second.
    ///
    /// # Errors
    /// As [`RbdDevice::open`].
    pub async fn open_by_force(ring: &Ring, image: &ImageName, class: DeviceClass) -> io::Result<RbdDevice> {
        RbdDevice::open_with(calls()?, ring, image, class, Access::ReadWrite, Owner::ShutOut).await
    }

    pub(crate) async fn open_with(
        calls: &'static Calls,
        ring: &Ring,
        image: &ImageName,
        class: DeviceClass,
        access: Access,
        other: Owner,
    ) -> io::Result<RbdDevice> {
        let (sender, mut receiver) = mailbox(ring, MESSAGES)?;
        let opening = Opening(Some(Arc::new(Orders::default())));
        let orders = opening.orders();
        let (name, mailbox) = (image.clone(), sender.clone());
        keeper::start(Keeper { calls, name, access, other, mailbox, orders: orders.clone() })?;
        let opened = match before(ring, OPEN, receiver.recv()).await {
            Some(Some(Message::Opened(opened))) => opened?,
            Some(_) => return Err(io::Error::other(format!("the thread that opens {image} has ended"))),
            None => {
                let problem =
                    format!("cannot open {image}: no answer from the cluster for {OPEN:?}: see `ceph -s`");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        };
        let size = opened.size.align_down(ALIGNMENT);
        let requests = Requests::new(calls, opened.image.0, sender);
        let (smallest, size_found) = (Cell::new(opened.size), Event::default());
        let shared = Rc::new(Shared { requests, orders, smallest, size_found });
        ring.spawn(receive(receiver, shared.clone()));
        opening.succeeded();
        if size == Bytes::ZERO {
            let problem =
                format!("{image} has a size of {:?}: a device needs at least {ALIGNMENT:?}", opened.size);
            close(&shared);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        Ok(RbdDevice {
            image: image.clone(),
            geometry: Geometry { size, class, alignment: ALIGNMENT, memory_alignment: Bytes(1) },
            access,
            shared,
            flush_failed: Cell::new(false),
            lost: Cell::new(None),
            is_refused: Cell::new(false),
        })
    }

    /// Name of the image.
    pub fn image(&self) -> &ImageName {
        &self.image
    }

    /// Gives the image up: each request in flight ends at once with `NotConnected`, and each later request
    /// fails. A write in flight may still reach the cluster; the next opening of the image by this process
    /// prevents later changes, by waiting for the clean end of this device or by shutting its connection out.
    ///
    /// Returns false if the cluster replied to a request with an error: a new opening would not help.
    pub fn give_up(&self) -> bool {
        close(&self.shared);
        !self.is_refused.get()
    }

    /// Runs a request. Returns librbd's result, zero or a length.
    async fn request(&self, request: Request<'_>) -> io::Result<i64> {
        if let Some(result) = self.lost.get() {
            return Err(self.failed(request, result));
        }
        let Some(result) = self.shared.requests.run(request).await else {
            let problem = format!("cannot {} {}: the image was given up", tried(request), self.image);
            return Err(io::Error::new(io::ErrorKind::NotConnected, problem));
        };
        if result >= 0 {
            return Ok(result);
        }
        let errno = -result;
        self.is_refused.set(self.is_refused.get() || errno != libc::ETIMEDOUT.into());
        let is_final = [libc::ESHUTDOWN, libc::EROFS].into_iter().any(|last| errno == last.into());
        if is_final {
            self.lost.set(Some(result));
        }
        Err(self.failed(request, result))
    }

    fn failed(&self, request: Request<'_>, result: i64) -> io::Error {
        if -result == libc::EROFS.into() && self.access == Access::ReadWrite {
            let problem = format!(
                "cannot {} {}: the image's lock was lost to another client: open the device anew once the \
                 other client has ended",
                tried(request),
                self.image
            );
            return failed_as(io::ErrorKind::ReadOnlyFilesystem, result, problem);
        }
        failed(result, &format!("{} {}", tried(request), self.image))
    }

    fn check_writable(&self, request: Request<'_>) -> io::Result<()> {
        if self.access == Access::ReadOnly {
            return Err(failed(
                (-libc::EROFS).into(),
                &format!("{} {}, opened for reading", tried(request), self.image),
            ));
        }
        self.check_size()
    }

    /// Fails if the image is, or ever was, smaller than at the opening.
    fn check_size(&self) -> io::Result<()> {
        let smallest = self.shared.smallest.get();
        if smallest >= self.geometry.size {
            return Ok(());
        }
        let problem = format!(
            "{} has become smaller while in use, from {:?} to {smallest:?}, and the data beyond is lost: stop \
             the volume, and restore the image or check the volume",
            self.image, self.geometry.size
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
    }
}

impl Device for RbdDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn repair_time(&self) -> Nanos {
        REPAIR
    }

    async fn read(&self, offset: Bytes, into: &Buf) -> io::Result<()> {
        self.geometry.check_buffer(offset, into)?;
        let request = Request::Read(offset, into);
        let read = self.request(request).await?;
        if read == into.len().0 as i64 {
            return Ok(());
        }
        let problem =
            format!("cannot {} {}: the image ends after {read} of the bytes", tried(request), self.image);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem))
    }

    async fn write(&self, offset: Bytes, from: &Buf) -> io::Result<()> {
        self.geometry.check_buffer(offset, from)?;
        let request = Request::Write(offset, from);
        self.check_writable(request)?;
        self.request(request).await.map(drop)
    }

    async fn flush(&self) -> io::Result<()> {
        if let Err(error) = self.request(Request::Flush).await {
            self.flush_failed.set(true);
            return Err(error);
        }
        let shared = &self.shared;
        shared.size_found.wait_for(|| shared.is_size_settled().then_some(())).await;
        self.check_size()?;
        if self.flush_failed.get() {
            let problem = format!(
                "cannot promise a flush of {}: an earlier flush failed, and writes before it may be lost",
                self.image
            );
            return Err(io::Error::other(problem));
        }
        Ok(())
    }

    async fn discard(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        self.geometry.check(offset, len)?;
        let request = Request::Discard(offset, len);
        self.check_writable(request)?;
        if len == Bytes::ZERO {
            return Ok(());
        }
        self.request(request).await.map(drop)
    }
}

impl Drop for RbdDevice {
    fn drop(&mut self) {
        let was_open = !self.shared.orders.is_closing();
        close(&self.shared);
        if was_open && self.shared.requests.is_idle() {
            // After the limit the keeper continues alone.
            let _ = self.shared.orders.wait_until_closed(CLOSE);
        }
    }
}

impl Shared {
    /// True if the size is known, or will never be.
    fn is_size_settled(&self) -> bool {
        !self.orders.is_size_unknown() || self.orders.is_closing()
    }
}

/// Ends the requests, and has the keeper close the image.
fn close(shared: &Shared) {
    shared.requests.end();
    shared.orders.close();
    shared.size_found.notify();
}

/// Receives the messages of a device until librbd has called back for each request of the closed device.
async fn receive(mut receiver: Receiver<Message>, shared: Rc<Shared>) {
    let mut is_closed = false;
    while !(is_closed && shared.requests.is_idle()) {
        match receiver.recv().await {
            Some(Message::Completed { slot, result }) => shared.requests.complete(slot, result),
            Some(Message::Size(size)) => {
                shared.smallest.set(shared.smallest.get().min(size));
                shared.orders.size_is_known();
                shared.size_found.notify();
            }
            Some(Message::Closed) => is_closed = true,
            // A second opening does not exist, and the requests hold senders.
            Some(Message::Opened(_)) | None => break,
        }
    }
}

/// Has the keeper close the image if the opening does not succeed.
struct Opening(Option<Arc<Orders>>);

impl Opening {
    fn orders(&self) -> Arc<Orders> {
        self.0.clone().expect("an opening has orders until it succeeds")
    }

    fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(orders) = &self.0 {
            orders.close();
        }
    }
}

/// Output of `future`, if ready within `limit`.
async fn before<F: Future>(ring: &Ring, limit: Duration, future: F) -> Option<F::Output> {
    let limit = Nanos(limit.as_nanos() as u64);
    let (mut future, mut end) = (pin!(future), pin!(ring.sleep(limit)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// A request as the words before the image's name.
fn tried(request: Request<'_>) -> String {
    match request {
        Request::Read(offset, buf) => format!("read {:?} at {offset:?} of", buf.len()),
        Request::Write(offset, buf) => format!("write {:?} at {offset:?} of", buf.len()),
        Request::Flush => "flush".to_owned(),
        Request::Discard(offset, len) => format!("discard {len:?} at {offset:?} of"),
    }
}

/// Unit of offsets and lengths. librbd takes any byte; the journal of a volume relies on writes of a sector
/// being atomic, which a write within an object is.
const ALIGNMENT: Bytes = SECTOR;
/// Longest hang that a cluster ends by itself. After the loss of a disk or of a machine, requests to its
/// objects hang until the monitors mark the disk as down and another disk takes over: 9 to 36 s were
/// measured. The rest is a margin.
const REPAIR: Nanos = Nanos::from_secs(45);
/// Longest time for an opening: connecting, and the lease of a silent owner.
const OPEN: Duration = Duration::from_secs(90);
/// Longest wait for the clean end of an idle device.
const CLOSE: Duration = Duration::from_secs(2);
