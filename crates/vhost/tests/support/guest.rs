//! A guest and its virtual machine's process: messages by the library, a queue by hand. Keeps and breaks the
//! rules as a test wishes.

use super::PATIENCE;
use braid_vhost::wire::{VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_F_VERSION_1};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Descriptors of the queue.
pub const QUEUE: u16 = 64;
pub const MEMORY: usize = 2 << 20;
pub const TABLE: u64 = 0;
pub const AVAILABLE: u64 = 0x1000;
pub const USED: u64 = 0x2000;
/// One byte for each request.
pub const STATUSES: u64 = 0x3000;
/// 16 bytes for each request.
pub const HEADS: u64 = 0x4000;
/// A page for each request.
pub const DATA: u64 = 0x1_0000;
pub const PAGE: u64 = 4096;
/// Status before the device has answered.
pub const UNANSWERED: u8 = 0xee;

/// Memory of a guest. Outlives connections.
pub struct GuestRam {
    pub memory: GuestMemoryMmap,
    pub file: File,
    /// Index of the next chain in the available ring.
    next: u16,
}

/// A connection of the guest's virtual machine.
pub struct Connection {
    pub frontend: Frontend,
    pub kick: EventFd,
    pub call: EventFd,
}

/// Memory of the requests in flight, which the virtual machine's process keeps.
pub struct Kept {
    pub given: VhostUserInflight,
    pub file: File,
}

impl GuestRam {
    pub fn new() -> GuestRam {
        let memory = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(memory);
        file.set_len(MEMORY as u64).unwrap();
        let offset = FileOffset::new(file.try_clone().unwrap(), 0);
        let ranges = [(GuestAddress(0), MEMORY, Some(offset))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        GuestRam { memory, file, next: 0 }
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    pub fn get_u16(&self, at: u64) -> u16 {
        self.memory.load(GuestAddress(at), std::sync::atomic::Ordering::Acquire).unwrap()
    }

    pub fn put_u16(&self, at: u64, value: u16) {
        self.memory.store(value, GuestAddress(at), std::sync::atomic::Ordering::Release).unwrap();
    }

    pub fn descriptor(&self, index: u16, start: u64, len: u32, flags: u16, next: u16) {
        let bytes = [&start.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        self.put(TABLE + u64::from(index) * 16, &bytes.concat());
    }

    /// Prepares request `number`, of one page at `page` of the disk; returns its first descriptor.
    pub fn prepare(&self, number: u16, kind: u32, page: u64) -> u16 {
        let head = number * 3;
        let (at, data) = (HEADS + u64::from(number) * 16, DATA + u64::from(number) * PAGE);
        self.put(at, &[&kind.to_le_bytes()[..], &[0; 4], &(page * 8).to_le_bytes()].concat());
        self.put(STATUSES + u64::from(number), &[UNANSWERED]);
        let direction = if kind == 0 { 2 } else { 0 };
        self.descriptor(head, at, 16, 1, head + 1);
        self.descriptor(head + 1, data, PAGE as u32, 1 | direction, head + 2);
        self.descriptor(head + 2, STATUSES + u64::from(number), 1, 2, 0);
        head
    }

    /// Makes a chain available.
    pub fn offer(&mut self, head: u16) {
        self.put_u16(AVAILABLE + 4 + u64::from(self.next % QUEUE) * 2, head);
        self.next = self.next.wrapping_add(1);
        self.put_u16(AVAILABLE + 2, self.next);
    }

    /// Offers request `number`.
    pub fn submit(&mut self, number: u16, kind: u32, page: u64) {
        let head = self.prepare(number, kind, page);
        self.offer(head);
    }

    /// Number of chains that the device has returned.
    pub fn returned(&self) -> u16 {
        self.get_u16(USED + 2)
    }

    /// First descriptor and length of the returned chain `number`.
    pub fn returned_chain(&self, number: u16) -> (u32, u32) {
        let entry = self.get(USED + 4 + u64::from(number % QUEUE) * 8, 8);
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        (word(0), word(4))
    }

    pub fn status(&self, number: u16) -> u8 {
        self.get(STATUSES + u64::from(number), 1)[0]
    }

    pub fn wait_for(&self, returned: u16) {
        let start = Instant::now();
        while self.returned() != returned {
            assert!(start.elapsed() < PATIENCE, "{} of {returned} chains are back", self.returned());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: self.host(0),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// Address in this process, which stands for the virtual machine's.
    pub fn host(&self, at: u64) -> u64 {
        self.memory.get_host_address(GuestAddress(at)).unwrap() as u64
    }
}

impl Connection {
    /// Negotiates, up to the point where queues are set up.
    pub fn open(socket: &Path) -> Connection {
        let mut frontend = Frontend::connect(socket, 2).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        frontend.set_owner().unwrap();
        let offered = frontend.get_features().unwrap();
        let wanted = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
            | VIRTIO_F_VERSION_1
            | VIRTIO_BLK_F_FLUSH
            | VIRTIO_BLK_F_MQ;
        assert_eq!(offered & wanted, wanted);
        frontend.set_features(wanted).unwrap();
        let offered = frontend.get_protocol_features().unwrap();
        frontend.set_protocol_features(offered).unwrap();
        assert!(offered.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD));
        let new = || EventFd::new(libc_flags()).unwrap();
        Connection { frontend, kick: new(), call: new() }
    }

    /// Asks for memory for the requests in flight.
    pub fn inflight(&mut self) -> Kept {
        let wanted = VhostUserInflight { mmap_size: 0, mmap_offset: 0, num_queues: 1, queue_size: QUEUE };
        let (given, file) = self.frontend.get_inflight_fd(&wanted).unwrap();
        Kept { given, file }
    }

    /// Sets queue 0 up and starts the queue, from `base` on.
    pub fn start(&mut self, ram: &GuestRam, kept: Option<&Kept>, base: u16) {
        self.frontend.set_mem_table(&[ram.region()]).unwrap();
        if let Some(kept) = kept {
            self.frontend.set_inflight_fd(&kept.given, kept.file.as_raw_fd()).unwrap();
        }
        self.frontend.set_vring_num(0, QUEUE).unwrap();
        self.frontend.set_vring_base(0, base).unwrap();
        let rings = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: ram.host(TABLE),
            used_ring_addr: ram.host(USED),
            avail_ring_addr: ram.host(AVAILABLE),
            log_addr: None,
        };
        self.frontend.set_vring_addr(0, &rings).unwrap();
        self.frontend.set_vring_call(0, &self.call).unwrap();
        self.frontend.set_vring_kick(0, &self.kick).unwrap();
        self.frontend.set_vring_enable(0, true).unwrap();
    }

    pub fn kick(&self) {
        self.kick.write(1).unwrap();
    }

    /// Waits until the device calls.
    pub fn wait_for_call(&self) {
        let start = Instant::now();
        while self.call.read().is_err() {
            assert!(start.elapsed() < PATIENCE, "no call");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Not blocking, as those of qemu.
fn libc_flags() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}
