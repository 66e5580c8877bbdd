//! The constants of `working-set`: the constants of table II, and constants that the paper leaves to the
//! administrator.

use crate::{BadSetting, Settings};
use braid_base::{Bytes, Nanos};
use std::fmt;

/// Settings of the policy, each with its default.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// τ: length of the sliding window.
    pub window: Length,
    /// An extent is hot if requested more often than this in the window.
    pub threshold_h: u8,
    /// An extent is cold if requested less often than this in the window.
    pub threshold_l: u8,
    /// Unit of a locality table's counter.
    pub count: Count,
    /// Target of an extent that is hot in both tables.
    pub both: Both,
    /// Rule for cold extents.
    pub cold: Cold,
    /// Distribution of new extents.
    pub stripe: Spread,
    /// Free room of an SSD below which cold extents leave.
    pub water_mark: Option<Amount>,
    /// Time without a guest request after which the system is idle.
    pub idle: Nanos,
    /// Amount of new data that starts a reorganization; a share is a share of the SSDs.
    pub new_data: Amount,
    /// Relative change of a measure after which the working set has changed enough.
    pub change: f64,
    /// Maximum number of extents in a locality table.
    pub rows: usize,
    /// Maximum number of reorganizations: the paper's "simple counter".
    pub runs: Option<u64>,
}

/// Length of the sliding window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Length {
    /// Adapted to the working set.
    Adaptive,
    /// Constant.
    Fixed(Nanos),
    /// A share of the time since the volume was opened, as in the evaluation.
    Share(f64),
}

/// Unit of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// A block: an extent is as hot as its hottest block.
    Block,
    /// An extent: all of its requests count.
    Extent,
}

/// Target of an extent that is read and written often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Both {
    Hdd,
    Ssd,
}

/// Extents that leave an SSD below its water mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cold {
    /// Extents with few reads, in a table or not.
    Unread,
    /// Extents that a reorganization found in the table of reads, with few reads, and marked.
    Marked,
}

/// Distribution of new extents over the devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// By share of the write bandwidth.
    Bandwidth,
    /// Round robin, as PVFS2 does.
    Even,
}

/// An amount of room, in bytes or as a share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    Bytes(Bytes),
    Share(f64),
}

/// The policy as published.
const AS_PUBLISHED: &str =
    "window=adaptive,threshold-h=3,threshold-l=2,count=block,both=hdd,cold=marked,stripe=even";

impl Constants {
    /// Reads the settings:
    /// - `window` (adaptive; or a time, or a share of the run time such as 10%), `threshold-h` (3),
    ///   `threshold-l` (2), `count` (block; or extent), `both` (hdd; or ssd), `cold` (unread; or marked).
    /// - `stripe` (bandwidth; or even), `water-mark` (20GB, but at most 5/16 of an SSD; or a size, or a share
    ///   of each SSD).
    /// - `idle` (500ms), `new-data` (1% of the SSDs; or a size), `change` (25%), `rows` (64K),
    ///   `reorganizations` (unlimited; or a number).
    /// - `as-published`: sets them as in the paper.
    pub fn read(settings: &mut Settings) -> Result<Constants, BadSetting> {
        settings.take_preset("as-published", AS_PUBLISHED)?;
        let constants = Constants {
            window: read_window(settings)?,
            threshold_h: settings.take_count("threshold-h", 3, 0..=MOST_HOT)? as u8,
            threshold_l: settings.take_count("threshold-l", 2, 0..=MOST_HOT)? as u8,
            count: settings.take("count", Count::Block, "block or extent")?,
            both: settings.take("both", Both::Hdd, "hdd or ssd")?,
            cold: settings.take("cold", Cold::Unread, "unread or marked")?,
            stripe: settings.take("stripe", Spread::Bandwidth, "bandwidth or even")?,
            water_mark: read_amount(settings, "water-mark")?,
            idle: settings.take_time(
                "idle",
                Nanos::from_millis(500),
                Nanos::from_millis(1)..=LONGEST_IDLE,
            )?,
            new_data: read_amount(settings, "new-data")?.unwrap_or(Amount::Share(0.01)),
            change: settings.take_share("change")?.unwrap_or(0.25),
            rows: settings.take_count("rows", 64_000, 1..=MOST_ROWS)? as usize,
            runs: match settings.take_text("reorganizations").as_deref() {
                None | Some("unlimited") => None,
                Some(text) => Some(settings.read_count("reorganizations", text, 0..=u64::MAX / 2)?),
            },
        };
        let Constants { threshold_h, threshold_l, .. } = constants;
        if threshold_l > threshold_h {
            return Err(BadSetting::new(format!(
                "setting threshold-l={threshold_l} of policy working-set: use at most threshold-h, which is {threshold_h}"
            )));
        }
        Ok(constants)
    }

    /// Returns the water mark of an SSD of size `ssd`: the setting, or by default the mark of table II, 20 of
    /// 64 GB.
    pub fn water_mark_of(&self, ssd: Bytes) -> Bytes {
        let published = || TABLE_II_MARK.min(Bytes((ssd.0 as f64 * TABLE_II_SHARE) as u64));
        self.water_mark.map_or_else(published, |mark| mark.of(ssd).min(ssd))
    }
}

impl Amount {
    /// Returns the amount in bytes, of a whole of `whole` bytes.
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Share(share) => Bytes((whole.0 as f64 * share) as u64),
        }
    }
}

/// Water mark of table II.
const TABLE_II_MARK: Bytes = Bytes(20_000_000_000);
/// Share of the SSDs of table II that the mark is: an SSD smaller than the mark would never be above the
/// mark.
const TABLE_II_SHARE: f64 = 20.0 / 64.0;
/// Largest threshold: counters end at 255.
const MOST_HOT: u64 = 254;
/// Largest table: a row takes 100 to 180 bytes.
const MOST_ROWS: u64 = 16_000_000;
const LONGEST_IDLE: Nanos = Nanos::from_secs(3600);
const LONGEST_WINDOW: Nanos = Nanos::from_secs(30 * 86_400);

fn read_window(settings: &mut Settings) -> Result<Length, BadSetting> {
    let Some(text) = settings.take_text("window") else { return Ok(Length::Adaptive) };
    let share = text.strip_suffix('%').and_then(|percent| format!("{percent}e-2").parse().ok());
    let share = share.filter(|share| *share > 0.0 && *share <= 1.0).map(Length::Share);
    let times = Nanos::from_millis(2)..=LONGEST_WINDOW;
    let time = || text.parse().ok().filter(|time| times.contains(time)).map(Length::Fixed);
    match text.as_str() {
        "adaptive" => Ok(Length::Adaptive),
        _ => share.or_else(time).ok_or_else(|| {
            settings.bad(
                "window",
                &text,
                "adaptive, a time from 2ms to 30 days such as 60s, or a share of the run time such as 10%",
            )
        }),
    }
}

fn read_amount(settings: &mut Settings, key: &'static str) -> Result<Option<Amount>, BadSetting> {
    let Some(text) = settings.take_text(key) else { return Ok(None) };
    let amount = match text.strip_suffix('%') {
        Some(percent) => format!("{percent}e-2").parse().ok().map(Amount::Share),
        None => text.parse().ok().map(Amount::Bytes),
    };
    let is_sound = |amount: &Amount| !matches!(amount, Amount::Share(share) if !(0.0..=1.0).contains(share));
    let amount = amount.filter(is_sound).ok_or_else(|| {
        settings.bad(key, &text, "a size such as 20GB, or a share of the SSDs from 0% to 100%")
    });
    amount.map(Some)
}

impl std::str::FromStr for Count {
    type Err = ();
    fn from_str(text: &str) -> Result<Count, ()> {
        match text {
            "block" => Ok(Count::Block),
            "extent" => Ok(Count::Extent),
            _ => Err(()),
        }
    }
}

impl std::str::FromStr for Both {
    type Err = ();
    fn from_str(text: &str) -> Result<Both, ()> {
        match text {
            "hdd" => Ok(Both::Hdd),
            "ssd" => Ok(Both::Ssd),
            _ => Err(()),
        }
    }
}

impl std::str::FromStr for Cold {
    type Err = ();
    fn from_str(text: &str) -> Result<Cold, ()> {
        match text {
            "unread" => Ok(Cold::Unread),
            "marked" => Ok(Cold::Marked),
            _ => Err(()),
        }
    }
}

impl std::str::FromStr for Spread {
    type Err = ();
    fn from_str(text: &str) -> Result<Spread, ()> {
        match text {
            "bandwidth" => Ok(Spread::Bandwidth),
            "even" => Ok(Spread::Even),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(bytes) => write!(f, "{}B", bytes.0),
            Amount::Share(share) => write!(f, "{}", percent(*share)),
        }
    }
}

/// Formats a share without loss for [`Constants::read`].
fn percent(share: f64) -> String {
    let text = format!("{:.10}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for Constants {
    /// Formats the settings as [`Constants::read`] takes them, without the default water mark.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Constants { threshold_h, threshold_l, new_data, rows, .. } = self;
        let window = match self.window {
            Length::Adaptive => "adaptive".to_owned(),
            Length::Fixed(time) => format!("{}ns", time.0),
            Length::Share(share) => percent(share),
        };
        let count = match self.count {
            Count::Block => "block",
            Count::Extent => "extent",
        };
        let both = match self.both {
            Both::Hdd => "hdd",
            Both::Ssd => "ssd",
        };
        let cold = match self.cold {
            Cold::Unread => "unread",
            Cold::Marked => "marked",
        };
        let stripe = match self.stripe {
            Spread::Bandwidth => "bandwidth",
            Spread::Even => "even",
        };
        let mark = self.water_mark.map_or_else(String::new, |mark| format!(",water-mark={mark}"));
        let runs = self.runs.map_or_else(|| "unlimited".to_owned(), |runs| runs.to_string());
        write!(
            f,
            "window={window},threshold-h={threshold_h},threshold-l={threshold_l},count={count},both={both},cold={cold},\
             stripe={stripe}{mark},\
             idle={}ns,new-data={new_data},change={},rows={rows},reorganizations={runs}",
            self.idle.0,
            percent(self.change)
        )
    }
}
