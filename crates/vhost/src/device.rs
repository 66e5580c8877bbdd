//! The device's state, as the messages of the virtual machine's process set it.
//!
//! The library decodes messages and calls the functions here, one at a time, while the queues are stopped
//! (see `session`). Addresses of queues are addresses in the other process, and are translated.

use crate::inflight::Inflight;
use crate::memory::{Announced, REGIONS_MAX, Regions, map};
use crate::queue::{BlkQueue, QUEUE_MAX, Setup, Terms};
use crate::request::Service;
use crate::server::Counters;
use crate::wire::{CONFIG_LEN, Facts, VIRTIO_BLK_F_FLUSH, VIRTIO_RING_F_EVENT_IDX};
use braid_base::Bytes;
use braid_engine::{Durability, Export};
use braid_runtime::Event;
use braid_uring::{Doorbell, Ring};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::cell::Cell;
use std::fs::File;
use std::rc::Rc;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_queue::QueueT;
use vm_memory::GuestAddress;

/// Largest number of queues. A virtual machine commonly has a queue for each of its processors.
pub const QUEUES_MAX: u16 = 64;
/// Chains in service at the same time, of all queues together.
const IN_SERVICE_MAX: usize = 1024;
/// Chains of one queue in service at the same time, and the least of them with many queues.
const OF_QUEUE: std::ops::RangeInclusive<usize> = 16..=128;

/// The device of one connection.
pub struct Device {
    ring: Ring,
    facts: Facts,
    /// Features that both sides know.
    features: u64,
    regions: Regions,
    queues: Vec<Rc<BlkQueue>>,
}

impl Device {
    /// A device without memory, its queues stopped.
    pub fn new(ring: &Ring, facts: Facts, counters: &Rc<Cell<Counters>>, stopped: &Event) -> Device {
        let queues = (0..QUEUES_MAX).map(|_| BlkQueue::new(ring, counters, stopped)).collect();
        Device { ring: ring.clone(), facts, features: 0, regions: Regions::default(), queues }
    }

    /// The queues.
    pub fn queues(&self) -> &[Rc<BlkQueue>] {
        &self.queues
    }

    /// Starts all queues that are set up.
    pub fn start<E: Export>(&self, service: &Rc<Service<E>>) {
        let set_up: Vec<_> =
            self.queues.iter().filter(|queue| queue.may_run() && !queue.is_running()).collect();
        let limit = IN_SERVICE_MAX / set_up.len().max(1);
        let is_told = |feature| self.features & feature != 0;
        let terms = Terms {
            facts: self.facts,
            durability: if is_told(VIRTIO_BLK_F_FLUSH) { Durability::Volatile } else { Durability::Fua },
            limit: limit.clamp(*OF_QUEUE.start(), *OF_QUEUE.end()),
            event_idx: is_told(VIRTIO_RING_F_EVENT_IDX),
        };
        for queue in set_up {
            queue.start(service, self.regions.mapped(), terms);
        }
    }

    /// Changes the size of the disk. No queue may run.
    pub fn set_size(&mut self, size: Bytes) {
        self.facts.size = size;
    }

    fn queue(&self, index: u32) -> Result<&Rc<BlkQueue>> {
        self.queues.get(index as usize).ok_or(Error::InvalidOperation("no such queue"))
    }

    fn doorbell(&self, file: Option<File>) -> Option<Rc<Doorbell>> {
        Some(Rc::new(Doorbell::new(&self.ring, file?.into())))
    }

    fn guest_address(&self, user: u64) -> Result<GuestAddress> {
        self.regions
            .guest_address(user)
            .ok_or(Error::InvalidOperation("a ring outside of the guest's memory"))
    }

    fn add_region(&mut self, region: Announced, file: File) -> Result<()> {
        self.regions.add(region, file).map_err(|problem| {
            tracing::warn!("memory of a guest cannot be used: {problem:?} ({region:?})");
            Error::InvalidOperation("a region of memory that cannot be mapped")
        })
    }

    fn stop_queues(&mut self) {
        for queue in &self.queues {
            *queue.setup.borrow_mut() = Setup::default();
        }
    }
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.stop_queues();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.facts.features() | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::InvalidOperation("features that were not offered"));
        }
        self.features = features;
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            // Such a process has no message to enable a queue.
            self.queues.iter().for_each(|queue| queue.setup.borrow_mut().enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.regions = Regions::default();
        for (region, file) in regions.iter().zip(files) {
            let announced = Announced {
                guest: region.guest_phys_addr,
                user: region.user_addr,
                len: region.memory_size,
                offset: region.mmap_offset,
            };
            self.add_region(announced, file)?;
        }
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidOperation("a queue that is too long"))?;
        let set = self.queue(index)?.with_registers(|queue| queue.try_set_size(size));
        set.map_err(|_| Error::InvalidOperation("a length of a queue that is no power of two, or too long"))
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let (descriptors, used) = (self.guest_address(descriptors)?, self.guest_address(used)?);
        let available = self.guest_address(available)?;
        let set = self.queue(index)?.with_registers(|queue| {
            queue.try_set_desc_table_address(descriptors)?;
            queue.try_set_avail_ring_address(available)?;
            queue.try_set_used_ring_address(used)
        });
        set.map_err(|_| Error::InvalidOperation("a ring that is not aligned"))
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidOperation("a base beyond 16 bits"))?;
        self.queue(index)?.with_registers(|queue| queue.set_next_avail(base));
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let queue = self.queue(index)?;
        queue.setup.borrow_mut().kick = None;
        Ok(VhostUserVringState::new(index, queue.with_registers(|queue| queue.next_avail()).into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let Some(kick) = self.doorbell(file) else {
            return Err(Error::InvalidOperation("a queue without an eventfd to kick"));
        };
        let mut setup = self.queue(index.into())?.setup.borrow_mut();
        setup.kick = Some(kick);
        setup.fresh = true;
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let queue = self.queue(index.into())?;
        queue.setup.borrow_mut().call = self.doorbell(file);
        // The guest may wait for a call that a former daemon, or the former eventfd, has not passed on.
        queue.call();
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.queue(index.into())?.setup.borrow_mut().error = self.doorbell(file);
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL_FEATURES)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        match features & !PROTOCOL_FEATURES.bits() {
            0 => Ok(()),
            _ => Err(Error::InvalidOperation("protocol features that were not offered")),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.setup.borrow_mut().enabled = enable;
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let end = offset.checked_add(size).map(|end| end as usize).filter(|&end| end <= CONFIG_LEN);
        let end = end.ok_or(Error::InvalidOperation("a part of the configuration beyond its end"))?;
        Ok(self.facts.config()[offset as usize..end].to_vec())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("a change of the configuration, which the guest cannot change"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let len = inflight_len(wanted)?;
        let file = sealed_memory(len).map_err(|error| {
            tracing::warn!("no memory for a guest's requests in flight: {error}");
            Error::MemFdCreateError
        })?;
        let given = VhostUserInflight { mmap_size: len, mmap_offset: 0, ..*wanted };
        Ok((given, file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let len = inflight_len(given)?;
        if given.mmap_size < len {
            return Err(Error::InvalidOperation("too little memory for requests in flight"));
        }
        let unusable = Error::InvalidOperation("memory for requests in flight that cannot be mapped");
        let region = Rc::new(map(file, given.mmap_offset, len).map_err(|_| unusable)?);
        for (number, queue) in self.queues.iter().enumerate() {
            let is_in = number < usize::from(given.num_queues);
            let start = number * Inflight::bytes(given.queue_size);
            let inflight = is_in.then(|| Inflight::new(region.clone(), start, given.queue_size)).flatten();
            queue.setup.borrow_mut().inflight = inflight;
        }
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.add_region(announced(region), file).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let removed = self.regions.remove(announced(region));
        removed.map_err(|_| Error::InvalidOperation("a region of memory that was not added"))
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_offered()
    }
}

const PROTOCOL_FEATURES: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD);

fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("a message of a feature that was not offered"))
}

fn announced(region: &VhostUserSingleMemoryRegion) -> Announced {
    Announced {
        guest: region.guest_phys_addr,
        user: region.user_addr,
        len: region.memory_size,
        offset: region.mmap_offset,
    }
}

/// Length of the memory for the requests in flight of some queues.
fn inflight_len(of: &VhostUserInflight) -> Result<u64> {
    let is_known = of.num_queues <= QUEUES_MAX && of.queue_size <= QUEUE_MAX;
    if !is_known || of.num_queues == 0 || of.queue_size == 0 {
        return Err(Error::InvalidOperation("requests in flight of other queues than this device has"));
    }
    Ok(u64::from(of.num_queues) * Inflight::bytes(of.queue_size) as u64)
}

/// Memory that a file descriptor names, of a fixed length.
fn sealed_memory(len: u64) -> std::io::Result<File> {
    let file = File::from(memfd_create("braid-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}
