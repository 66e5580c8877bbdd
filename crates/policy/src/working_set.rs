//! `working-set`: new data is spread over all devices; in idle time, extents read often go to the SSDs and
//! extents written often to the disks.
//!
//! Chen, Liu, Roth, Chen, "Using Working Set Reorganization to Manage Storage Systems with Hard and Solid
//! State Disks" (WS-ROS).
//!
//! | what the paper says | where |
//! |---|---|
//! | III-A: new writes are "spread across the available SSDs and HDDs … to take advantage of all of the available write bandwidth" | `stripe.rs` |
//! | III-A: "the cost of moving data between devices in distinct nodes is larger than the cost of moving data between devices within the same node" | `reorganize.rs` |
//! | III-B.1: a sliding window τ, "dynamically adjusted", or "tuned by system administrators" | `window.rs` |
//! | III-B.2, III-B.3, table I: a read region and a write region, each with a locality table; overlapping requests are divided in three sub-requests; counters "are cleared as the sliding window advances" | `table.rs` |
//! | algorithm 1: each request updates the table of its region | [`WorkingSet::place`] |
//! | algorithm 2: what goes where; "a delayed strategy" below "a low water mark" | `reorganize.rs` |
//! | III-C: it runs when the system is idle and enough new data was written, or the working set changed enough | `trigger.rs`, [`WorkingSet::plan`] |
//! | table II: threshold-H 3, threshold-L 2, SSD capacity threshold 20 GB | `settings.rs` |
//!
//! A stripe of the paper, 64 KiB (not GB, as table II has it), is an extent here, of 128 KiB. An extent lies
//! and moves as a whole, and an item of a locality table is a part of an extent. Deviations that are
//! necessary, and choices on which the paper is silent:
//!
//! - The paper does not say how τ is adjusted, what "idle" is, or how much is "enough": settings `window`,
//!   `idle`, `new-data`, `change`.
//! - An extent hot in both tables is moved to an SSD and back in one run of algorithm 2. Here the extent
//!   moves at most once: to its final place (`both=hdd`), or to an SSD (`both=ssd`).
//! - In the text, cold items of the write region also leave the SSDs; in the algorithm they stay. Here an
//!   extent with few reads (`threshold-l`) counts as cold, written or not, and an extent written often leaves
//!   at once.
//! - A water mark of 20 GB suits SSDs of 64 GB: smaller SSDs have 5/16 of their size.
//! - Tables have bounded memory (`rows`), and a restart forgets marks.
//! - The paper does not say what follows from the cost of moves between nodes. Here an extent leaves its node
//!   only if no device of the target class on the node has room.
//! - No hot extent makes room for a hotter extent: the paper has no such eviction.
//!
//! Deviations by choice, unless `as-published` is set:
//!
//! - New data goes to each device by its share of the write bandwidth. The paper says that all bandwidth is
//!   used, but stripes evenly, and the slowest device then limits the bandwidth in use (`stripe`).
//! - All extents with few reads count as cold, in a table or not, and are searched when an SSD is below its
//!   mark. Algorithm 2 marks cold items of the table of reads and deletes cold items from the tables
//!   (`cold`). Here cold items leave with the window. Otherwise the reorganization itself would change the
//!   working set.

mod marks;
mod reorganize;
mod saved;
mod settings;
mod stripe;
mod table;
mod trigger;
mod window;

use crate::{
    BadSetting, Completion, DeviceView, Direction, Move, Occasion, Outcome, Piece, Placement, Plan, Policy,
    Settings, View,
};
use braid_base::{DeviceClass, DeviceId, ExtentId, Nanos};
use marks::Marks;
use reorganize::{ColdSearch, FreedSlots, Tables, Wanted};
use settings::{Amount, Cold, Constants, Count};
use stripe::Stripe;
use table::Table;
use trigger::{Trigger, WorkingSets};
use window::Window;

/// Placement by the working sets of reads and writes, reorganized in idle time.
pub struct WorkingSet {
    constants: Constants,
    classes: Vec<DeviceClass>,
    window: Window,
    reads: Table,
    writes: Table,
    marks: Marks,
    stripe: Stripe,
    trigger: Trigger,
    room: FreedSlots,
    /// Time of the last guest request.
    last_request: Nanos,
    round: Option<Running>,
    search: ColdSearch,
    /// Consecutive rounds without a finished move and without a guest request in between.
    in_vain: u8,
    moved: Vec<Moved>,
}

/// A round with moves in progress.
struct Running {
    began: Nanos,
    /// Source device of each extent, sorted by extent.
    leaves: Vec<(ExtentId, DeviceId)>,
    finished: usize,
}

/// Effects of reorganizations on a device.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    came: u64,
    left: u64,
    /// Expected gain of guests from the extents that the present or last round moves off this disk, in
    /// milliseconds per second.
    gain_ms: f64,
}

/// Longest time between two checks for idleness.
const LOOK: Nanos = Nanos::from_millis(100);
/// Shortest time to the next call: the next round begins at once.
const AT_ONCE: Nanos = Nanos::from_millis(1);
/// Delay while freed slots are awaited.
const WAIT: Nanos = Nanos::from_secs(1);
/// Fruitless rounds in a row before a reorganization ends: a flush may have ended a round, or a device that
/// fails.
const MOST_IN_VAIN: u8 = 3;

impl WorkingSet {
    /// Returns the policy with the given settings; `working_set/settings.rs` lists their defaults.
    ///
    /// # Errors
    /// Without both classes of devices, and for invalid settings.
    pub fn new(settings: &mut Settings, devices: &[DeviceView]) -> Result<WorkingSet, BadSetting> {
        let constants = Constants::read(settings)?;
        let classes: Vec<DeviceClass> = devices.iter().map(|device| device.class).collect();
        if !DeviceView::are_of_both_classes(devices) {
            return Err(BadSetting::new("policy working-set needs an SSD and a disk: use another policy"));
        }
        Ok(WorkingSet {
            window: Window::new(constants.window),
            reads: Table::new(constants.rows),
            writes: Table::new(constants.rows),
            marks: Marks::default(),
            stripe: Stripe::new(constants.stripe, devices),
            trigger: Trigger::new(constants.runs),
            room: FreedSlots::new(devices.len()),
            last_request: Nanos::ZERO,
            round: None,
            search: ColdSearch::default(),
            in_vain: 0,
            moved: vec![Moved::default(); devices.len()],
            classes,
            constants,
        })
    }

    /// Algorithm 1: counts a request in the locality table of its region.
    fn record(&mut self, direction: Direction, piece: &Piece, view: &View) {
        let WorkingSet { window, reads, writes, .. } = self;
        let half = window.half_at(view.now, || reads.take_lost() + writes.take_lost());
        let table = if direction == Direction::Read { reads } else { writes };
        let blocks = match self.constants.count {
            Count::Block => table::blocks_of(piece, view),
            Count::Extent => 0..1,
        };
        let asked = table.record(piece.extent, blocks, half);
        window.count(asked, self.constants.threshold_h);
    }

    /// Returns the time of the next check for idleness.
    fn next_look(&self, view: &View) -> Nanos {
        view.now + (self.constants.idle / 4).clamp(AT_ONCE, LOOK)
    }

    /// True if no guest has sent a request for `idle`, and no request is in flight.
    fn is_idle(&self, view: &View) -> bool {
        view.now >= self.last_request + self.constants.idle
            && view.devices.iter().all(|device| device.in_flight == 0)
    }

    /// True if a reorganization should run in this idle time.
    fn is_due(&mut self, view: &View) -> bool {
        if self.trigger.under_way {
            return true;
        }
        if !self.trigger.considers(self.last_request) {
            return false;
        }
        let slots: u64 = ssds(view).map(|ssd| u64::from(ssd.slots)).sum();
        let enough = match self.constants.new_data {
            Amount::Bytes(bytes) => bytes / view.extent_size,
            Amount::Share(share) => (slots as f64 * share) as u64,
        };
        let now = self.working_sets(view);
        let begins = self.trigger.begins(enough, self.constants.change, &now);
        if begins && self.constants.cold == Cold::Marked {
            let WorkingSet { marks, reads, writes, window, constants, .. } = self;
            marks.reorganize(reads, writes, window.half(), constants, view);
        }
        begins
    }

    fn tables(&self) -> Tables<'_> {
        let WorkingSet { constants, reads, writes, window, marks, .. } = self;
        let marks = (constants.cold == Cold::Marked).then_some(marks);
        Tables { constants, reads, writes, half: window.half(), marks }
    }

    fn working_sets(&self, view: &View) -> WorkingSets {
        let WorkingSet { constants, reads, writes, window, room, .. } = self;
        let lacking = ssds(view).map(|ssd| u64::from(self.tables().lacking(ssd, room, view))).sum();
        WorkingSets::of(reads, writes, window.half(), constants, lacking)
    }

    /// Ends the last round. The next round may make progress if this round did, or if a guest sent a request
    /// in between.
    fn end_round(&mut self) {
        let Some(Running { began, finished, .. }) = self.round.take() else { return };
        if finished > 0 {
            self.search.begin();
        }
        let in_vain = finished == 0 && self.last_request <= began;
        self.in_vain = if in_vain { self.in_vain + 1 } else { 0 };
    }

    /// Algorithm 2, round by round. Returns the time of the next call.
    fn reorganize(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        let WorkingSet { constants, reads, writes, marks, window, room, search, .. } = self;
        let marks = (constants.cold == Cold::Marked).then_some(&*marks);
        let tables = Tables { constants, reads, writes, half: window.half(), marks };
        let round = tables.round(view, room, search);
        if !round.moves.is_empty() && self.in_vain < MOST_IN_VAIN {
            self.expect(&round.gains, view);
            self.round = Some(Running { began: view.now, leaves: round.leaves, finished: 0 });
            (plan.yields, plan.moves) = (true, round.moves);
            return view.now + AT_ONCE;
        }
        if round.moves.is_empty() && round.searches {
            return view.now + AT_ONCE;
        }
        if round.awaits_room {
            return view.now + WAIT;
        }
        let left = self.working_sets(view);
        self.trigger.settle(left);
        self.search.begin();
        self.in_vain = 0;
        self.next_look(view)
    }

    /// Computes the expected gain of guests after the extents have left their disks.
    fn expect(&mut self, gains: &[(DeviceId, u8)], view: &View) {
        if !gains.is_empty() {
            self.moved.iter_mut().for_each(|device| device.gain_ms = 0.0);
        }
        let ms = |device: DeviceId| {
            view.devices[device.index()].read_latency.map(|latency| latency.as_millis_f64())
        };
        let ssd_ms = ssds(view).filter_map(|ssd| ms(ssd.id)).reduce(f64::min).unwrap_or(0.0);
        for &(disk, hotness) in gains {
            let a_second = f64::from(hotness) / self.window.tau().as_secs_f64();
            self.moved[disk.index()].gain_ms += a_second * (ms(disk).unwrap_or(0.0) - ssd_ms).max(0.0);
        }
    }
}

fn ssds<'a>(view: &'a View) -> impl Iterator<Item = &'a DeviceView> {
    view.devices.iter().filter(|device| device.class == DeviceClass::Ssd)
}

impl Policy for WorkingSet {
    fn name(&self) -> &'static str {
        "working-set"
    }

    fn settings(&self) -> String {
        self.constants.to_string()
    }

    fn place<'a>(&mut self, occasion: &Occasion<'a>, view: &View) -> Placement<'a> {
        self.last_request = view.now;
        match occasion {
            Occasion::New { extent, write } => {
                self.trigger.new_extents += 1;
                write.iter().for_each(|piece| self.record(Direction::Write, piece, view));
                self.stripe.place_new(*extent, view).map_or(Placement::KEEP, Placement::on)
            }
            Occasion::Write(piece) => {
                self.record(Direction::Write, piece, view);
                Placement::KEEP
            }
            Occasion::ReadHit(piece) | Occasion::ReadMiss(piece) => {
                self.record(Direction::Read, piece, view);
                Placement::KEEP
            }
        }
    }

    fn completed(&mut self, io: &Completion) {
        self.stripe.completed(io);
    }

    fn plan(&mut self, view: &View, plan: &mut Plan) -> Nanos {
        self.room.look(view);
        self.end_round();
        if self.stripe.look(view) {
            return view.now + stripe::LOOK;
        }
        if !self.is_idle(view) || !self.is_due(view) {
            return self.next_look(view);
        }
        self.reorganize(view, plan)
    }

    fn done(&mut self, job: &Move, outcome: Outcome) {
        let (Move::Migrate { extent, target }, Outcome::Finished) = (*job, outcome) else { return };
        let Some(round) = &mut self.round else { return };
        let Ok(at) = round.leaves.binary_search_by_key(&extent, |(extent, _)| *extent) else { return };
        let source = round.leaves[at].1;
        round.finished += 1;
        self.room.frees(source);
        self.moved[source.index()].left += 1;
        self.moved[target.index()].came += 1;
    }

    fn figures(&self, device: DeviceId) -> Vec<(&'static str, f64)> {
        let Moved { came, left, gain_ms } = self.moved[device.index()];
        let share = ("stripe_share", self.stripe.share(device));
        let bandwidth = self.stripe.bandwidth(device).map(|b| ("write_bandwidth_bytes_per_second", b));
        let moved = [("extents_came", came as f64), ("extents_left", left as f64)];
        let gain = (self.classes[device.index()] == DeviceClass::Hdd)
            .then_some(("expected_gain_ms_per_second", gain_ms));
        [share].into_iter().chain(bandwidth).chain(moved).chain(gain).collect()
    }

    fn memory(&self) -> usize {
        self.reads.memory() + self.writes.memory() + self.marks.memory()
    }

    fn save(&self, _view: &View) -> Vec<u8> {
        saved::save(self)
    }

    fn restore(&mut self, state: &[u8], view: &View) {
        saved::restore(self, state, view);
    }

    fn explain(&self, extent: ExtentId, view: &View) -> String {
        let (tables, half) = (self.tables(), self.window.half());
        let Constants { threshold_h, threshold_l, .. } = self.constants;
        let (read, written) = (self.reads.hotness(extent, half), self.writes.hotness(extent, half));
        let class = view.homes.home(extent).map(|home| self.classes[home.index()]);
        let next = match (class, tables.wanted(extent)) {
            (None, _) => {
                let device = self.stripe.device_of(extent);
                format!(
                    "the next write allocates it: on {device} if {device} has room, else on the device with \
                     most room"
                )
            }
            (Some(DeviceClass::Hdd), Wanted::Ssd) => {
                "the extent is often read: the next reorganization moves it to an SSD with room".to_owned()
            }
            (Some(DeviceClass::Ssd), Wanted::Hdd) => {
                "the extent is often written: the next reorganization moves it to a disk".to_owned()
            }
            (Some(DeviceClass::Ssd), Wanted::HddInNeed) => {
                "the extent is cold: a reorganization moves it to a disk if its SSD lacks free room"
                    .to_owned()
            }
            (Some(_), _) => "the extent stays".to_owned(),
        };
        let lacking: u64 = ssds(view).map(|ssd| u64::from(tables.lacking(ssd, &self.room, view))).sum();
        let state = if self.trigger.under_way { "under way" } else { "not under way" };
        format!(
            "its hottest block was read {read} and written {written} time(s) in a window of {} (hot above {threshold_h}, cold below {threshold_l}); \
             {next}. A reorganization is {state}; the SSDs lack {lacking} slot(s) to their water mark",
            self.window.tau()
        )
    }
}
