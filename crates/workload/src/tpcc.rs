//! `tpcc-like`: terminals that key in a transaction, wait for the answer, and think, as specified by TPC-C,
//! with the resulting disk requests of their database.
//!
//! | figure | value | standing |
//! |---|---|---|
//! | keying and mean think time (s) | New-Order 18, 12; Payment 3, 12; Order-Status 2, 10; Delivery 2, 5; Stock-Level 2, 5 | sheet, quoted: TPC-C 5.11, clauses 5.2.5.2 to 5.2.5.7 |
//! | think time | negative exponential, cut at ten times its mean | same |
//! | shares | 45, 43, 4, 4, 4 % | memory: clause 5.2.3 |
//! | terminals | 10 for each warehouse | memory |
//! | New-Orders per minute and warehouse | 12.86 at most | memory; 128.5 at ten warehouses: paper, PASS, table II |
//! | rows a warehouse, and their size | stock 100,000 × 306 B, customer 30,000 × 655 B | memory: clause 1.2 |
//! | which row | NURand(8191) of items, NURand(1023) of customers | memory: clause 2.1.6 |
//! | size of a warehouse | 80 to 100 MB | memory; 100 MiB here |
//! | pages | 8 KiB | memory, as PostgreSQL's |
//! | reads | 62.6 % | derived: slice of a SQL Server trace, shared with MQSim |
//! | mean size | 8,532 B | same |
//! | log | written in sequence and flushed at each commit | memory |
//!
//! Rows read: New-Order 10 of stock and 1 customer. Payment 1 customer, and in 6 of 10 cases 2 more of the
//! same name. Order-Status the same customers and a page of orders. Delivery an order and a customer in each
//! of 10 districts. Stock-Level 200 of stock and 2 pages of orders. New-Order changes its 10 rows of stock
//! and appends to the orders of its district. Payment changes 1 customer. Delivery changes all rows that it
//! reads.
//!
//! Guessed: the database's own cache answers the share `cached` of the reads, for every page alike. The share
//! `written` of the changed pages is written right after the commit. The other pages stay in memory, because
//! they will change again. With the defaults, reads have their published share, and 30 warehouses make 136
//! requests a second. PASS's 7200 rpm disk serves 80 to 130 a second one after the other, and fails at this
//! load, as published. (The project's model of the disk orders 32 requests at a time and serves 280.) Written
//! pages are drawn anew. Log records are 16 KiB for New-Order and 8 KiB for Payment and Delivery. Left out:
//! remote warehouses, the items' table (all in memory), checkpoints.
//!
//! The terminals share one log. The order of commits decides the place of each log record.
//!
//! The operations of the program are the New-Orders, as in tpmC, from the end of the keying time to the
//! answer.

use crate::draw::exponential;
use crate::pace::share;
use crate::target::LARGEST_SPAN;
use crate::{About, Client, Load, Setting, Step, Workload};
use braid_base::{BadSetting, Bytes, MIB, Nanos, Op, Request, Rng, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const ABOUT: About = About {
    name: "tpcc-like",
    summary: "terminals of TPC-C with keying and think times over a database",
    groups: &[OWN],
};

const OWN: &[Setting] = &[
    Setting { key: "warehouses", default: "10", meaning: "warehouses of 100 MiB with 10 terminals each" },
    Setting {
        key: "transactions",
        default: "20K",
        meaning: "transactions of all terminals together, or `endless`",
    },
    Setting { key: "wait", default: "1", meaning: "factor on keying and think times, 0 (none) to 100" },
    Setting { key: "cached", default: "60%", meaning: "share of page reads served by the database's cache" },
    Setting { key: "written", default: "43%", meaning: "share of changed pages that are written soon" },
];

pub(crate) fn new(settings: &mut Settings, seed: u64) -> Result<Workload, BadSetting> {
    let warehouses = settings.take_count("warehouses", 10, 1..=6_000)?;
    let transactions = match settings.take_text("transactions").as_deref() {
        None => 20_000,
        Some("endless") => u64::MAX,
        Some(text) => settings.read_count("transactions", text, 1..=u64::MAX / 2)?,
    };
    let wait = settings.take_within("wait", 1.0, 0.0, 100.0)?;
    let cached = settings.take_share("cached")?.unwrap_or(0.6);
    let written = settings.take_share("written")?.unwrap_or(0.43);
    let terminals = warehouses * DISTRICTS;
    let span = WAREHOUSE * warehouses + LOG;
    let plan = Plan { warehouses, wait, cached, written };
    let load = move || {
        let (mut rng, log) = (Rng::new(seed), Arc::new(AtomicU64::new(0)));
        let constants = Constants { item: rng.below(8192), customer: rng.below(1024) };
        let terminal = |number| {
            let left = share(transactions, number, terminals);
            Box::new(Terminal::new(plan, constants, number, left, log.clone(), rng.fork())) as Client
        };
        Load::Closed((0..terminals).map(terminal).collect())
    };
    Ok(Workload::new(ABOUT.name, span, None, load))
}

const PAGE: Bytes = Bytes(8 << 10);
const WAREHOUSE: Bytes = Bytes(100 << 20);
const LOG: Bytes = Bytes(256 << 20);
/// Districts of a warehouse, each with its own terminal.
const DISTRICTS: u64 = 10;
/// Rows, and rows per page.
const ITEMS: u64 = 100_000;
const ITEMS_PER_PAGE: u64 = PAGE.0 / 306;
const CUSTOMERS: u64 = 3_000;
const CUSTOMERS_PER_PAGE: u64 = PAGE.0 / 655;
/// Orders with their lines per page: 10 lines of 54 B and about 60 B.
const ORDERS_PER_PAGE: u64 = PAGE.0 / 600;
/// Pages of a warehouse: stock, customers by district, orders by district.
const STOCK_PAGES: u64 = ITEMS.div_ceil(ITEMS_PER_PAGE);
const CUSTOMER_PAGES: u64 = CUSTOMERS.div_ceil(CUSTOMERS_PER_PAGE);
const ORDER_PAGES: u64 = (WAREHOUSE.0 / PAGE.0 - STOCK_PAGES) / DISTRICTS - CUSTOMER_PAGES;
/// Lag of deliveries behind orders: 900 of each district's 3,000 orders are undelivered.
const UNDELIVERED_PAGES: u64 = 900 / ORDERS_PER_PAGE;

#[derive(Clone, Copy)]
struct Plan {
    warehouses: u64,
    wait: f64,
    cached: f64,
    written: f64,
}

/// Constants of NURand, drawn once for a run.
#[derive(Clone, Copy)]
struct Constants {
    item: u64,
    customer: u64,
}

/// Effect of a type of transaction on the database.
#[derive(Clone, Copy)]
struct TransactionType {
    share: f64,
    keying: f64,
    think: f64,
    /// Rows or pages read, and rows or pages changed.
    read: Rows,
    changed: Rows,
    /// Bytes that the commit appends to the log.
    log: Bytes,
}

#[derive(Clone, Copy, Default)]
struct Rows {
    stock: u32,
    customers: u32,
    orders: u32,
}

const fn rows(stock: u32, customers: u32, orders: u32) -> Rows {
    Rows { stock, customers, orders }
}

const NEW_ORDER: TransactionType = TransactionType {
    share: 0.45,
    keying: 18.0,
    think: 12.0,
    read: rows(10, 1, 0),
    changed: rows(10, 0, 1),
    log: Bytes(16 << 10),
};
const PAYMENT: TransactionType = TransactionType {
    share: 0.43,
    keying: 3.0,
    think: 12.0,
    read: rows(0, 1, 0),
    changed: rows(0, 1, 0),
    log: Bytes(8 << 10),
};
const ORDER_STATUS: TransactionType = TransactionType {
    share: 0.04,
    keying: 2.0,
    think: 10.0,
    read: rows(0, 1, 1),
    changed: rows(0, 0, 0),
    log: Bytes::ZERO,
};
const DELIVERY: TransactionType = TransactionType {
    share: 0.04,
    keying: 2.0,
    think: 5.0,
    read: rows(0, 10, 10),
    changed: rows(0, 10, 10),
    log: Bytes(8 << 10),
};
const STOCK_LEVEL: TransactionType = TransactionType {
    share: 0.04,
    keying: 2.0,
    think: 5.0,
    read: rows(200, 0, 2),
    changed: rows(0, 0, 0),
    log: Bytes::ZERO,
};
const KINDS: [TransactionType; 5] = [NEW_ORDER, PAYMENT, ORDER_STATUS, DELIVERY, STOCK_LEVEL];

struct Terminal {
    plan: Plan,
    constants: Constants,
    rng: Rng,
    warehouse: u64,
    district: u64,
    /// Remaining transactions.
    left: u64,
    log: Arc<AtomicU64>,
    /// Orders of this district so far.
    orders: u64,
    /// The present transaction, and its remaining rows.
    kind: TransactionType,
    read: Rows,
    changed: Rows,
    commit: Commit,
    /// Bytes requested by a New-Order in progress.
    new_order: Option<Bytes>,
    /// Remaining time of thinking about the last answer, in nanoseconds.
    think: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    Log,
    Flush,
    Done,
}

impl Terminal {
    fn new(
        plan: Plan,
        constants: Constants,
        number: u64,
        left: u64,
        log: Arc<AtomicU64>,
        mut rng: Rng,
    ) -> Terminal {
        // Terminals begin at a random point of a cycle of about 21 s.
        let think = rng.unit() * 21e9 * plan.wait;
        Terminal {
            plan,
            constants,
            warehouse: number % plan.warehouses,
            district: number / plan.warehouses,
            left,
            log,
            orders: rng.below(ORDERS_PER_PAGE * ORDER_PAGES),
            kind: ORDER_STATUS,
            read: Rows::default(),
            changed: Rows::default(),
            commit: Commit::Done,
            new_order: None,
            think,
            rng,
        }
    }

    /// Begins a transaction. Returns the time of thinking and keying before the transaction.
    fn begin(&mut self) -> Nanos {
        let rng = &mut self.rng;
        let mut drawn = rng.unit();
        let kind = KINDS.iter().find(|kind| {
            drawn -= kind.share;
            drawn < 0.0
        });
        self.kind = *kind.unwrap_or(&NEW_ORDER);
        (self.read, self.changed) = (self.kind.read, self.kind.changed);
        let is_by_name = self.kind.read.customers == 1 && self.kind.read.stock == 0 && rng.chance(0.6);
        self.read.customers += if is_by_name { 2 } else { 0 };
        let is_new_order = self.kind.read.stock == NEW_ORDER.read.stock;
        self.orders += u64::from(is_new_order);
        self.new_order = is_new_order.then_some(Bytes::ZERO);
        self.commit = if self.kind.log > Bytes::ZERO { Commit::Log } else { Commit::Done };
        let waited = self.think + self.kind.keying * 1e9 * self.plan.wait;
        let mean = self.kind.think * 1e9 * self.plan.wait;
        self.think = exponential(rng, mean).min(mean * 10.0);
        Nanos(waited as u64)
    }

    /// Returns the next request of the transaction.
    fn request(&mut self) -> Option<Request> {
        while let Some(table) = self.read.take() {
            let page = self.page(table, Op::Read);
            if !self.rng.chance(self.plan.cached) {
                return Some(page);
            }
        }
        match self.commit {
            Commit::Log => {
                self.commit = Commit::Flush;
                return Some(self.log_record());
            }
            Commit::Flush => {
                self.commit = Commit::Done;
                return Some(Request { op: Op::Flush, offset: Bytes::ZERO, len: Bytes::ZERO });
            }
            Commit::Done => {}
        }
        while let Some(table) = self.changed.take() {
            let page = self.page(table, Op::Write);
            if self.rng.chance(self.plan.written) {
                return Some(page);
            }
        }
        None
    }

    /// Draws a page of a table of this terminal's warehouse.
    fn page(&mut self, table: Table, op: Op) -> Request {
        let rng = &mut self.rng;
        let (is_delivery, all) = (self.kind.read.orders == DELIVERY.read.orders, DISTRICTS);
        // A delivery goes to all districts. Other transactions stay in the terminal's district.
        let district = if is_delivery { rng.below(all) } else { self.district };
        let page = match table {
            Table::Stock => nurand(rng, 8191, ITEMS, self.constants.item) / ITEMS_PER_PAGE,
            Table::Customers => {
                let customer = nurand(rng, 1023, CUSTOMERS, self.constants.customer);
                STOCK_PAGES + district * CUSTOMER_PAGES + customer / CUSTOMERS_PER_PAGE
            }
            Table::Orders => {
                let behind = if is_delivery { UNDELIVERED_PAGES } else { 0 };
                let page = (self.orders / ORDERS_PER_PAGE + ORDER_PAGES - behind) % ORDER_PAGES;
                STOCK_PAGES + all * CUSTOMER_PAGES + district * ORDER_PAGES + page
            }
        };
        Request { op, offset: WAREHOUSE * self.warehouse + PAGE * page, len: PAGE }
    }

    fn log_record(&mut self) -> Request {
        let len = self.kind.log;
        let pages = len / PAGE;
        let page = self.log.fetch_add(pages, Ordering::Relaxed) % (LOG / PAGE);
        // A record that would cross the end begins at the start.
        let page = if page + pages > LOG / PAGE { 0 } else { page };
        Request { op: Op::Write, offset: WAREHOUSE * self.plan.warehouses + PAGE * page, len }
    }
}

enum Table {
    Stock,
    Customers,
    Orders,
}

impl Rows {
    /// Takes one row and returns its table.
    fn take(&mut self) -> Option<Table> {
        let (left, table) = match self {
            Rows { customers: left @ 1.., .. } => (left, Table::Customers),
            Rows { stock: left @ 1.., .. } => (left, Table::Stock),
            Rows { orders: left @ 1.., .. } => (left, Table::Orders),
            _ => return None,
        };
        *left -= 1;
        Some(table)
    }
}

/// NURand(A, 0, n − 1) of clause 2.1.6, with the run's constant.
fn nurand(rng: &mut Rng, a: u64, n: u64, constant: u64) -> u64 {
    ((rng.below(a + 1) | rng.below(n)) + constant) % n
}

impl Iterator for Terminal {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(request) = self.request() {
            self.new_order = self.new_order.map(|bytes| bytes + request.len);
            return Some(Step::Request { think: Nanos::ZERO, request });
        }
        if let Some(bytes) = self.new_order.take() {
            return Some(Step::Operation { think: Nanos::ZERO, bytes });
        }
        self.left = self.left.checked_sub(1)?;
        Some(Step::Pause(self.begin()))
    }
}

const _: () = assert!(WAREHOUSE.0 * 6_000 + LOG.0 < LARGEST_SPAN.0 && MIB.0 * 100 == WAREHOUSE.0);
