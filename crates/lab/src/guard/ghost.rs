//! A ghost: a volume in one mode that serves the guests' requests to the real volume, on a thread and in a
//! world of its own.

use super::watch::{Batch, Loop};
use crate::guests::Guests;
use crate::rig::{self, Need, Reached};
use crate::sweep::Gauge;
use crate::{Error, Result, Setup};
use braid_base::{Arrival, Nanos, Op};
use braid_runtime::{Event, Runtime};
use braid_sim::World;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A ghost, which ends when dropped.
pub(super) struct Ghost {
    batches: Option<Sender<Batch>>,
    served: Receiver<Result<Served>>,
    thread: Option<JoinHandle<()>>,
}

/// A batch that a ghost has served.
pub(super) struct Served {
    /// Mean latency of the requests, in nanoseconds; `None` if no request takes time.
    pub mean: Option<f64>,
    /// Processor time for serving the batch.
    pub processor: Duration,
}

/// Processor time of the calling thread: supplied by a caller with access to the kernel.
pub type Clock = fn() -> Duration;

impl Ghost {
    /// A volume that is about to be created. Errors are returned by the first [`Ghost::served`].
    pub fn new(setup: Setup, need: Need, clock: Clock) -> Ghost {
        let (to_ghost, batches) = channel();
        let (to_guard, served) = channel();
        let thread = std::thread::spawn(move || {
            let world = World::in_order(setup.seed);
            let ended = world.block_on(serve(world.clone(), setup, need, clock, batches, to_guard.clone()));
            world.halt();
            if let Err(error) = ended {
                // The guard may have ended already.
                let _ = to_guard.send(Err(error));
            }
        });
        Ghost { batches: Some(to_ghost), served, thread: Some(thread) }
    }

    /// Gives the ghost a batch. An ended ghost returns its error from [`Ghost::served`].
    pub fn give(&self, batch: &Batch) {
        let batches = self.batches.as_ref().expect("it has not been dropped");
        let _ = batches.send(batch.clone());
    }

    /// Waits for the batch to be served.
    pub fn served(&self) -> Result<Served> {
        self.served.recv().unwrap_or_else(|_| Err(Error::setup("a ghost has ended")))
    }
}

impl Drop for Ghost {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    world: World,
    setup: Setup,
    need: Need,
    clock: Clock,
    batches: Receiver<Batch>,
    to_guard: Sender<Result<Served>>,
) -> Result<()> {
    let gauge = Arc::<Gauge>::default();
    let rig = rig::build(&world, &setup, &need, None, &gauge, |_| ()).await?;
    let guests = Guests::new(&world, rig.volume, &setup, 0, None, gauge, None);
    let server = Rc::new(GhostServer {
        world,
        guests,
        in_flight: Cell::new(0),
        ended: Event::default(),
        requests: Cell::new(0),
        took: Cell::new(Nanos::ZERO),
        failure: RefCell::default(),
    });
    while let Ok(batch) = batches.recv() {
        let begun = clock();
        let mean = server.clone().serve(&batch).await?;
        let processor = clock().saturating_sub(begun);
        if to_guard.send(Ok(Served { mean, processor })).is_err() {
            break;
        }
    }
    Ok(())
}

struct GhostServer {
    world: World,
    guests: Guests<Reached>,
    in_flight: Cell<usize>,
    ended: Event,
    requests: Cell<u64>,
    took: Cell<Nanos>,
    failure: RefCell<Option<Error>>,
}

impl GhostServer {
    /// Serves a batch to its end: lateness is not carried to the next batch.
    async fn serve(self: Rc<Self>, batch: &Batch) -> Result<Option<f64>> {
        self.requests.set(0);
        self.took.set(Nanos::ZERO);
        let begin = self.world.now();
        match batch.guests {
            Loop::Open { most } => {
                for arrival in batch.arrivals.iter() {
                    self.world.sleep_until(begin + arrival.at).await;
                    self.wait_until(|in_flight| in_flight < most.max(1)).await;
                    let (server, arrival) = (self.clone(), *arrival);
                    self.spawn(async move { server.request(arrival).await });
                }
            }
            Loop::Closed { clients, think } => {
                let next = Rc::new(Cell::new(0));
                for _ in 0..clients {
                    let client = self.clone().client(batch.arrivals.clone(), next.clone(), think);
                    self.spawn(client);
                }
            }
        }
        self.wait_until(|in_flight| in_flight == 0).await;
        let requests = self.requests.get();
        let mean = (requests > 0).then(|| self.took.get().0 as f64 / requests as f64);
        self.failure.take().map_or(Ok(mean.filter(|&mean| mean > 0.0)), Err)
    }

    async fn client(self: Rc<Self>, arrivals: Arc<[Arrival]>, next: Rc<Cell<usize>>, think: Nanos) {
        while let Some(&arrival) = arrivals.get(next.get()) {
            next.set(next.get() + 1);
            self.world.sleep(think).await;
            self.request(arrival).await;
        }
    }

    async fn request(&self, arrival: Arrival) {
        let begun = self.world.now();
        if let Err(error) = self.guests.request(&Arrival { at: begun, ..arrival }).await {
            self.failure.borrow_mut().get_or_insert(error);
        }
        if arrival.request.op != Op::Discard {
            self.requests.set(self.requests.get() + 1);
            self.took.set(self.took.get() + (self.world.now() - begun));
        }
    }

    fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        self.in_flight.set(self.in_flight.get() + 1);
        let server = self.clone();
        self.world.spawn(async move {
            task.await;
            server.in_flight.set(server.in_flight.get() - 1);
            server.ended.notify();
        });
    }

    async fn wait_until(&self, is_so: impl Fn(usize) -> bool) {
        self.ended.wait_for(|| is_so(self.in_flight.get()).then_some(())).await;
    }
}
