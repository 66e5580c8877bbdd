//! The library virtio-driver as a guest: every request, byte for byte.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod support;

use braid_base::{Bytes, MIB, Op, Request};
use std::os::fd::AsRawFd;
use support::pages::SharedPages;
use support::{Kind, Running};
use virtio_driver::{
    VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags,
};

const PAGE: usize = 4096;

/// A guest with two queues.
struct Driver {
    transport: Box<VirtioBlkTransport>,
    queues: Vec<VirtioBlkQueue<'static, usize>>,
    pages: SharedPages,
}

impl Driver {
    fn connect(running: &Running, features: u64) -> Driver {
        let socket = running.socket.to_str().unwrap();
        let features = VirtioFeatureFlags::VERSION_1.bits() | VirtioBlkFeatureFlags::MQ.bits() | features;
        let mut transport: Box<VirtioBlkTransport> = Box::new(VhostUser::new(socket, features).unwrap());
        let queues = VirtioBlkQueue::setup_queues(&mut *transport, 2, 128).unwrap();
        let pages = SharedPages::new(300);
        let (start, len) = pages.region();
        transport.map_mem_region(start as usize, len, pages.file().as_raw_fd(), 0).unwrap();
        Driver { transport, queues, pages }
    }

    /// Runs one request on a queue; returns its result.
    fn run(
        &mut self,
        number: usize,
        ask: impl FnOnce(&mut VirtioBlkQueue<'static, usize>, &SharedPages),
    ) -> i32 {
        ask(&mut self.queues[number], &self.pages);
        self.transport.get_submission_notifier(number).notify().unwrap();
        let start = std::time::Instant::now();
        loop {
            if let Some(completion) = self.queues[number].completions().next() {
                return completion.ret;
            }
            assert!(start.elapsed() < support::PATIENCE, "no answer");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn driver_reads_and_writes_every_byte() {
    let running = Running::start(MIB * 4, Kind::Plain);
    let flush =
        VirtioBlkFeatureFlags::FLUSH | VirtioBlkFeatureFlags::DISCARD | VirtioBlkFeatureFlags::WRITE_ZEROES;
    let mut driver = Driver::connect(&running, flush.bits());
    let config = driver.transport.get_config().unwrap();
    assert_eq!(u64::from(config.capacity), MIB.0 * 4 / 512);
    // One page, and a run longer than a piece, at an offset that is no page's.
    for (queue, count, offset) in [(0, 1, 8192), (1, 200, 512 * 3)] {
        let bytes = driver.pages.pages(0, count);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at / 512 + at + count) as u8;
        }
        let written = bytes.to_vec();
        assert_eq!(
            driver.run(queue, |queue, pages| queue.write(offset, pages.pages(0, count), 1).unwrap()),
            0
        );
        let disk = std::fs::read(&running.disk).unwrap();
        assert!(disk[offset as usize..][..count * PAGE] == written);
        driver.pages.pages(0, count).fill(0);
        assert_eq!(
            driver.run(queue, |queue, pages| queue.read(offset, pages.pages(0, count), 2).unwrap()),
            0
        );
        assert!(driver.pages.pages(0, count) == written);
    }
    assert_eq!(driver.run(0, |queue, _| queue.flush(3).unwrap()), 0);
    assert_eq!(driver.run(1, |queue, _| queue.discard(8192, 4096, 4).unwrap()), 0);
    assert_eq!(driver.run(1, |queue, _| queue.write_zeroes(16384, 8192, true, 5).unwrap()), 0);
    let disk = std::fs::read(&running.disk).unwrap();
    assert!(disk[8192..12288].iter().all(|&byte| byte == 0));
    assert!(disk[16384..24576].iter().all(|&byte| byte == 0));
    let asked = |op, offset, len| Request { op, offset: Bytes(offset), len: Bytes(len) };
    let expected = [
        asked(Op::Write, 8192, 4096),
        asked(Op::Read, 8192, 4096),
        asked(Op::Write, 1536, 200 * 4096),
        asked(Op::Read, 1536, 200 * 4096),
        asked(Op::Flush, 0, 0),
        asked(Op::Discard, 8192, 4096),
        asked(Op::Discard, 16384, 8192),
    ];
    assert_eq!(running.asked(), expected);
    running.wait_until("requests are counted", |counters| counters.requests == 7 && counters.errors == 0);
}

#[test]
fn many_requests_in_flight_keep_their_bytes() {
    let running = Running::start(MIB * 4, Kind::Plain);
    let mut driver = Driver::connect(&running, VirtioBlkFeatureFlags::FLUSH.bits());
    for round in 0..50u8 {
        for page in 0..40 {
            driver.pages.pages(page, 1).fill(round ^ page as u8);
            driver.queues[page % 2].write(page as u64 * 4096, driver.pages.pages(page, 1), page).unwrap();
        }
        let mut done = 0;
        (0..2).for_each(|queue| driver.transport.get_submission_notifier(queue).notify().unwrap());
        let start = std::time::Instant::now();
        while done < 40 {
            for queue in &mut driver.queues {
                done += queue.completions().inspect(|completion| assert_eq!(completion.ret, 0)).count();
            }
            assert!(start.elapsed() < support::PATIENCE, "{done} of 40 answers");
        }
    }
    let disk = std::fs::read(&running.disk).unwrap();
    for page in 0..40 {
        assert!(disk[page * PAGE..][..PAGE].iter().all(|&byte| byte == 49 ^ page as u8), "page {page}");
    }
}
