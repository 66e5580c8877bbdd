//! RBD images of a Ceph cluster as devices.
//!
//! librados and librbd are loaded at run time, at the first use of an image: Braid needs no Ceph to build,
//! and none to run without images. The configuration is found as by the tools of Ceph: `CEPH_CONF`, else
//! `/etc/ceph/ceph.conf`; then `CEPH_ARGS`, with `--id` or `--name` for the client.
//!
//! **One writer.** A device that may write holds the exclusive lock of the image while open. Each device has
//! a connection of its own, because Ceph shuts out connections, not images. [`RbdDevice::open`] respects an
//! owner of the lock that is alive; [`RbdDevice::open_by_force`] shuts the owner out. In both cases the
//! former owner loses access to the whole cluster before the lock changes hands: each of its later requests
//! fails.
//!
//! **Time.** The cluster repairs a hung disk by itself within 9 to 36 s, and requests wait for the repair: by
//! default no request of a device has a time limit (`rados_osd_op_timeout` is 0). A deadline for a request to
//! an image must exceed that time, or the deadline fails a device that the cluster is about to repair. A user
//! who sets `rados_osd_op_timeout` gets `ETIMEDOUT` after that time; the range of the request then has old or
//! new bytes.
//!
//! **Cache.** librbd's cache is off: a write completes when the cluster has the bytes on all copies. A cache
//! in the client would hide the latency that policies measure, and would report a failed write only at the
//! next flush.
//!
//! Every call that may block runs in the device's own thread (`keeper`). Requests run on threads of librados
//! and complete in the shard through a mailbox (`requests`).

mod calls;
mod cluster;
mod device;
mod error;
mod image;
mod image_name;
mod keeper;
mod lock;
mod pool;
mod requests;
#[cfg(test)]
mod tests;

pub use device::{Access, RbdDevice};
pub use error::errno;
pub use image_name::ImageName;
pub use pool::{Made, images, make_image, remove_image};
