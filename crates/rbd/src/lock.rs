//! Opens an image and takes its lock.
//!
//! | owner of the lock | plain opening | by force |
//! |---|---|---|
//! | none | takes the lock | takes the lock |
//! | answers a notification | `ResourceBusy` at once | shuts the owner out, takes the lock |
//! | silent: killed, hung or cut off | waits until the cluster forgets the owner, 30 s | shuts the owner out |
//! | forgotten by the cluster | shuts the owner out, takes the lock | shuts the owner out, takes the lock |
//! | a device that this process gave up | waits 2 s for a clean end, then as by force | as by force |
//!
//! The cluster's lease of a client is 30 s (`osd_client_watch_timeout`): a client that the cluster still
//! knows may come back and write, so a plain opening waits for the end of the lease.

use crate::calls::Calls;
use crate::cluster::Cluster;
use crate::device::Access;
use crate::image::Image;
use crate::image_name::ImageName;
use crate::keeper::{Orders, own_device};
use std::io;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What an opening does about another client with the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Respected,
    ShutOut,
}

/// Connects, opens the image, and takes the lock if the device may write. Blocks for up to
/// [`CONNECT`](crate::cluster::CONNECT_SECONDS) and [`LEASE`]. Ends early with an error if the keeper is
/// ordered to close.
pub(crate) fn open(
    calls: &'static Calls,
    name: &ImageName,
    access: Access,
    other: Owner,
    orders: &Arc<Orders>,
) -> io::Result<Image> {
    let pool = Cluster::connect(calls)?.pool(&name.place())?;
    let mut image = Image::open(pool, name, access)?;
    if access == Access::ReadWrite {
        image.check_lockable()?;
        await_lock(&image, other, orders)?;
        image.acquire()?;
    }
    image.announce_changes(orders)?;
    Ok(image)
}

/// Returns once no owner is left that must be respected.
fn await_lock(image: &Image, other: Owner, orders: &Orders) -> io::Result<()> {
    let began = Instant::now();
    while let Some(owner) = image.owner()? {
        if orders.is_closing() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the opening took too long"));
        }
        if other == Owner::ShutOut {
            image.take_from(&owner)?;
            continue;
        }
        match own_device(image.name(), &owner) {
            Some(own) if !own.is_closing() => return Err(image.busy(-libc::EBUSY, "this process")),
            Some(own) if own.wait_until_closed(CLEAN_END) => continue,
            Some(_) => {
                image.take_from(&owner)?;
                continue;
            }
            None => {}
        }
        let Some(watcher) = image.watcher(&owner)? else {
            image.take_from(&owner)?;
            continue;
        };
        let waited = began.elapsed();
        if image.answers(watcher)? || waited > LEASE {
            return Err(image.busy(-libc::EBUSY, &format!("the client at {owner}")));
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// How long a plain opening waits for the cluster to forget a silent owner: the cluster's 30 s, and time for
/// the cluster's own repair beside.
pub(crate) const LEASE: Duration = Duration::from_secs(45);
/// How long a device of this process may take to close cleanly, before an opening shuts its connection out.
const CLEAN_END: Duration = Duration::from_secs(2);
/// Between two looks at a silent owner.
const PAUSE: Duration = Duration::from_millis(200);
