//! Texts of generated loads with drawn settings: each load of the project once, as small as a cell needs it.

use braid_base::Rng;

/// A kind of generated load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Random,
    Sequential,
    Zipf,
    HotCold,
    Diurnal,
    Refill,
    Iometer,
    Dbench,
    Netapp,
    Postmark,
    Email,
    Tpcc,
    Tpch,
    Ext3File,
    Financial1,
    Financial2,
    WebSearch,
    Db2,
    WebServer,
    Checkpoint,
}

/// All of them.
pub const FAMILIES: [Family; 20] = [
    Family::Random,
    Family::Sequential,
    Family::Zipf,
    Family::HotCold,
    Family::Diurnal,
    Family::Refill,
    Family::Iometer,
    Family::Dbench,
    Family::Netapp,
    Family::Postmark,
    Family::Email,
    Family::Tpcc,
    Family::Tpch,
    Family::Ext3File,
    Family::Financial1,
    Family::Financial2,
    Family::WebSearch,
    Family::Db2,
    Family::WebServer,
    Family::Checkpoint,
];

/// Those that change in the middle: their places do not move by themselves.
pub const CHANGING: [Family; 5] =
    [Family::Zipf, Family::HotCold, Family::Iometer, Family::Financial2, Family::Random];

impl Family {
    /// What cells of it are called.
    pub fn name(self) -> &'static str {
        match self {
            Family::Random => "random",
            Family::Sequential => "sequential",
            Family::Zipf => "zipf",
            Family::HotCold => "hot-cold",
            Family::Diurnal => "diurnal",
            Family::Refill => "refill",
            Family::Iometer => "iometer",
            Family::Dbench => "dbench",
            Family::Netapp => "netapp",
            Family::Postmark => "postmark",
            Family::Email => "email",
            Family::Tpcc => "tpcc",
            Family::Tpch => "tpch",
            Family::Ext3File => "ext3-file",
            Family::Financial1 => "financial1",
            Family::Financial2 => "financial2",
            Family::WebSearch => "websearch",
            Family::Db2 => "db2",
            Family::WebServer => "webserver",
            Family::Checkpoint => "checkpoint",
        }
    }

    /// Whether it is a programme whose own pauses and computing are part of the load.
    pub fn is_programme(self) -> bool {
        use Family::{Checkpoint, Db2, Dbench, Email, Netapp, Postmark, Tpcc, Tpch, WebServer};
        matches!(self, Dbench | Netapp | Postmark | Email | Tpcc | Tpch | Db2 | WebServer | Checkpoint)
    }

    /// A load of it. `steady`: its places stay popular.
    pub fn draw(self, rng: &mut Rng, steady: bool) -> String {
        let span = format!("{}MiB", pick(rng, &[256, 384, 512, 768]));
        let size = pick(rng, &[4, 4, 4, 8, 16, 64]);
        let read = pick(rng, &[0, 30, 50, 70, 70, 90, 100]);
        let theta = pick(rng, &["0.6", "0.8", "0.9", "0.99", "0.99", "1.1", "1.2"]);
        let clients = pick(rng, &[2, 4, 8, 10]);
        let basic = format!("span={span},size={size}KiB,read={read}%,rate=100,requests=endless");
        match self {
            Family::Random => format!("random,{basic}"),
            Family::Sequential => {
                let size = pick(rng, &[64, 128, 256, 1024]);
                format!(
                    "sequential,span={span},size={size}KiB,read={read}%,clients={clients},requests=endless"
                )
            }
            Family::Zipf => {
                let unit = pick(rng, &["", "", ",unit=64KiB", ",unit=256KiB"]);
                let placement = if rng.chance(0.2) { "packed" } else { "scattered" };
                let every = if steady || placement == "packed" || rng.chance(0.7) {
                    String::new()
                } else {
                    format!(",every={}", pick(rng, &[4_000, 8_000, 12_000]))
                };
                format!("zipf,{basic},theta={theta},placement={placement}{unit}{every}")
            }
            Family::HotCold => {
                let (hot, to_hot) = (pick(rng, &[2, 5, 10, 20]), pick(rng, &[70, 80, 90, 95]));
                let unit = pick(rng, &["64KiB", "256KiB", "1MiB", "4MiB"]);
                let every = if steady { "never" } else { pick(rng, &["5000", "10000", "never"]) };
                format!("hot-cold,{basic},hot={hot}%,to-hot={to_hot}%,unit={unit},every={every}")
            }
            Family::Diurnal => {
                let (low, day) = (pick(rng, &[5, 10, 20]), pick(rng, &[10, 20, 40]));
                format!(
                    "diurnal,span={span},size={size}KiB,read={read}%,theta={theta},low={low}%,day={day}s,requests=endless"
                )
            }
            Family::Refill => {
                let (empty, new) = (pick(rng, &[5, 10, 20]), pick(rng, &[50, 80, 95]));
                let read = pick(rng, &[30, 50, 70]);
                format!(
                    "refill,span={span},size={size}KiB,read={read}%,unit=4MiB,empty={empty}%,to-new={new}%,rate=100,requests=endless"
                )
            }
            Family::Iometer => {
                let all = ["file-server", "web-server", "workstation", "database", "pass-50", "pass-90"];
                let (spec, align) = (pick(rng, &all), pick(rng, &["512B", "4KiB"]));
                format!("iometer-like,spec={spec},span={span},align={align},rate=100,requests=endless")
            }
            Family::Dbench => {
                let files = pick(rng, &[30, 60, 100]);
                format!(
                    "dbench-like,clients={clients},files={files}MB,memory=20MB,dirty=5MB,requests=endless"
                )
            }
            Family::Netapp => {
                let files = pick(rng, &[30, 60, 100]);
                format!(
                    "netapp-like,clients={clients},files={files}MB,memory=20MB,dirty=5MB,requests=endless"
                )
            }
            Family::Postmark => {
                let (clients, files) = (pick(rng, &[1, 2, 4]), pick(rng, &[300, 600, 1000]));
                let cached = pick(rng, &[0, 20, 50]);
                format!("postmark-like,clients={clients},files={files},transactions=1M,cached={cached}%")
            }
            Family::Email => {
                let (clients, boxes) = (pick(rng, &[2, 4, 8]), pick(rng, &[100, 200, 300]));
                let reads = pick(rng, &[14, 30]);
                format!(
                    "email-like,clients={clients},mailboxes={boxes},transactions=1M,read={reads}%,theta={theta}"
                )
            }
            Family::Tpcc => {
                let (houses, cached) = (pick(rng, &[2, 4, 6]), pick(rng, &[30, 60]));
                format!("tpcc-like,warehouses={houses},transactions=1M,wait=0.02,cached={cached}%")
            }
            Family::Tpch => {
                let (streams, cpu) = (pick(rng, &[1, 2, 4]), pick(rng, &[60, 150]));
                format!("tpch-q1-like,scale=1,streams={streams},cpu={cpu},scans=20")
            }
            Family::Ext3File => {
                let file = pick(rng, &[512, 1024, 2048]);
                format!("ext3-file-like,file={file}MiB,read=64MiB,clients=4,cache=16MiB,runs=16,pause=1s")
            }
            Family::Financial1 => format!("financial1-like,span={span},requests=endless"),
            Family::Financial2 => format!("financial2-like,span={span},requests=endless"),
            Family::WebSearch => {
                let touched = pick(rng, &[30, 60]);
                format!("websearch-like,span=1GiB,touched={touched}%,requests=endless")
            }
            Family::Db2 => {
                let lookups = pick(rng, &[500, 1000]);
                format!("db2-like,span=768MiB,clients=4,lookups={lookups},repeat=1000,theta={theta},pause=2s")
            }
            Family::WebServer => {
                let burst = pick(rng, &["5K", "20K"]);
                format!("webserver-like,span={span},theta={theta},burst={burst},pause=2s,requests=endless")
            }
            Family::Checkpoint => {
                let (state, reads) = (pick(rng, &[8, 16, 32]), pick(rng, &[0, 1, 2]));
                format!(
                    "checkpoint,clients=8,state={state}MiB,reads={reads},rounds=1000,compute=2s,size=256KiB"
                )
            }
        }
    }
}

/// One of these.
pub(super) fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}
