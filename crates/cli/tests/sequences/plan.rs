//! Plan of a sequence: a kind of volume and steps, drawn from a seed, printed and parsed as text.
//!
//! All steps are drawn before any step runs. A step that is impossible at its turn does nothing. Therefore
//! any part of a sequence is a sequence, and removing steps shortens a failing sequence.

use braid_base::Rng;
use std::fmt;
use std::str::FromStr;

/// A sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub steps: Vec<Step>,
}

/// Kind of the first volume; the second volume is always a mirror.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Alone,
    Equi,
    SsdFirst,
    Cache,
    WriteBack,
    Stripe,
    Mirror,
    Raid1,
    Three,
    Pass,
    Epochs,
    Adopted,
    AdoptedBack,
}

impl Kind {
    /// Name of the kind, and devices and options for `braid create`. The files of a volume have letters in
    /// turn.
    pub fn options(self) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
        let one_of_each: &[&str] = &["--ssd", "--hdd"];
        let with_tail: &[&str] = &["--ssd", "--hdd,layout=tail"];
        match self {
            Kind::Alone => ("alone", &["--hdd"], &["--policy", "hdd-only"]),
            Kind::Equi => ("equi", &["--ssd", "--hdd", "--hdd"], &["--policy", "equi"]),
            Kind::SsdFirst => ("ssd-first", one_of_each, &["--policy", "ssd-first"]),
            Kind::Cache => ("cache", one_of_each, &["--policy", "cache"]),
            Kind::WriteBack => ("write-back", one_of_each, &["--policy", "cache,mode=write-back"]),
            Kind::Stripe => ("stripe", &["--ssd", "--ssd", "--hdd"], &["--policy", "stripe"]),
            Kind::Mirror => ("mirror", &["--ssd", "--ssd"], &["--copies", "2", "--policy", "ssd-first"]),
            Kind::Raid1 => ("raid1", one_of_each, &["--copies", "2", "--policy", "raid1"]),
            Kind::Three => {
                ("three", &["--ssd", "--hdd", "--hdd"], &["--copies", "2", "--policy", "ssd-first"])
            }
            Kind::Pass => ("pass", with_tail, &["--copies", "2", "--policy", "pass,idle=20ms"]),
            Kind::Epochs => {
                ("epochs", with_tail, &["--copies", "2", "--policy", "pass,order=epoch,idle=20ms"])
            }
            Kind::Adopted => ("adopted", &["--adopt", "--ssd"], &["--policy", "cache"]),
            Kind::AdoptedBack => {
                ("adopted-back", &["--adopt", "--ssd"], &["--policy", "cache,mode=write-back"])
            }
        }
    }

    /// True if the volume adopts a disk, which is equal to the volume byte for byte.
    pub fn is_adopted(self) -> bool {
        matches!(self, Kind::Adopted | Kind::AdoptedBack)
    }

    pub const ALL: [Kind; 13] = [
        Kind::Alone,
        Kind::Equi,
        Kind::SsdFirst,
        Kind::Cache,
        Kind::WriteBack,
        Kind::Stripe,
        Kind::Mirror,
        Kind::Raid1,
        Kind::Three,
        Kind::Pass,
        Kind::Epochs,
        Kind::Adopted,
        Kind::AdoptedBack,
    ];
}

/// One step: a verb, a volume or files, and a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub verb: Verb,
    /// The volume (`v` or `w`), or the letter of a file.
    pub whom: char,
    /// Letter of a second file.
    pub other: char,
    /// A place, a cluster of blocks, or an instant.
    pub number: u32,
}

macro_rules! verbs {
    ($($verb:ident $word:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Verb { $($verb,)* }
        impl Verb {
            const WORDS: &[(Verb, &str)] = &[$((Verb::$verb, $word),)*];
        }
    };
}

verbs! {
    Serve "serve",
    // Serves the volume with all options that messages of refusals advise.
    Force "force",
    Stop "stop",
    Kill "kill",
    // Kills the daemon while writes are in flight.
    Burst "burst",
    Write "write",
    Flush "flush",
    // Waits until all copies are up to date.
    Settle "settle",
    Swap "swap",
    Rename "rename",
    Cut "cut",
    Blank "blank",
    Wipe "wipe",
    Away "away",
    Back "back",
    // Keeps a copy of a file out of reach, as a backup.
    Copy "copy",
    Restore "restore",
    // Puts the copy beside the file.
    Beside "beside",
    SaveState "save-state",
    LoadState "load-state",
    LoseState "lose-state",
    Import "import",
    ImportAs "import-as",
    Forget "forget",
    Add "add",
    Remove "remove",
    Fail "fail",
    Return "return",
    Replace "replace",
    Recover "recover",
    Check "check",
    Status "status",
}

/// Files of the first volume, of the second volume, and of later devices.
pub const FILES: [&str; 3] = ["abc", "mn", "pqrs"];

impl Plan {
    /// Draws the sequence of a seed.
    pub fn draw(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5e95_e9ce);
        let kind = match rng.chance(0.1) {
            true => Kind::Epochs,
            false => Kind::ALL[rng.below(Kind::ALL.len() as u64) as usize],
        };
        let mut steps = Vec::new();
        let most = rng.between(5, 15) as usize;
        while steps.len() < most {
            let whom = if rng.chance(0.85) { 'v' } else { 'w' };
            let serve = if rng.chance(0.8) { Verb::Serve } else { Verb::Force };
            let mut step = |verb, number| steps.push(Step { verb, whom, other: '-', number });
            step(serve, 0);
            for _ in 0..rng.between(1, 5) {
                let verb = draw_one_of(&mut rng, SERVED);
                step(verb, rng.below(64) as u32);
            }
            let end = draw_one_of(&mut rng, ENDS);
            step(end, rng.below(64) as u32);
            let own = if whom == 'v' { 0 } else { 1 };
            for _ in 0..rng.between(1, 5) {
                let verb = draw_one_of(&mut rng, RESTING);
                let mut file = || {
                    let of = FILES[[own, own, own, own, own, own, 1 - own, 2][rng.below(8) as usize]];
                    of.as_bytes()[rng.below(of.len() as u64) as usize] as char
                };
                let (whom, other) = if verb.is_of_file() { (file(), file()) } else { (whom, '-') };
                steps.push(Step { verb, whom, other, number: rng.below(64) as u32 });
            }
            if rng.chance(0.3) {
                let story = STORIES[rng.below(STORIES.len() as u64) as usize];
                let told = story.split(';').map(|step| step.parse::<Step>().unwrap());
                steps.extend(told.map(|step| Step { number: step.number + 6 * rng.below(8) as u32, ..step }));
            }
        }
        Plan { kind, steps }
    }
}

/// Accidents of several steps in the right order, which random drawing seldom finds.
const STORIES: &[&str] = &[
    // Half of a mirror is away and returns, and then the other half is away.
    "away bb 0; force v- 0; write v- 0; flush v- 0; kill v- 0; back v- 0; away aa 0; serve v- 0",
    "away aa 0; force v- 0; write v- 1; stop v- 0; back v- 0; away bb 0; serve v- 0",
    "serve v- 0; fail v- 0; write v- 0; flush v- 0; stop v- 0; away bb 0; serve v- 0",
    "serve v- 0; fail v- 1; write v- 2; kill v- 0; away aa 0; serve v- 0",
    "serve v- 0; fail v- 1; write v- 2; return v- 1; burst v- 0; away aa 0; serve v- 0",
    // One device is restored from a backup.
    "copy aa 0; serve v- 0; write v- 0; stop v- 0; restore aa 0; serve v- 0",
    "copy bb 0; serve v- 0; write v- 1; kill v- 0; away bb 0; beside bb 0; serve v- 0",
    // The state directory is restored from a backup, or lost.
    "save-state v- 0; serve v- 0; fail v- 0; write v- 0; stop v- 0; load-state v- 0; serve v- 0",
    "save-state v- 0; serve v- 0; replace v- 1; settle v- 0; write v- 2; stop v- 0; load-state v- 0; serve v- 0",
    "lose-state v- 0; away aa 0; force v- 0; write v- 1",
    // The SSD is lost, and the volume is recovered from the disk.
    "serve v- 0; write v- 0; settle v- 0; write v- 1; burst v- 0; away aa 0; recover v- 0; serve v- 0; settle v- 0",
    "serve v- 0; write v- 0; write v- 1; flush v- 0; kill v- 0; blank aa 0; recover v- 0; force v- 0; write v- 3",
    // Names change between two volumes, and one volume lacks a device.
    "away aa 0; rename ba 0; rename mb 0; serve w- 0; serve v- 0; write v- 0; write w- 1; kill v- 0; serve v- 0",
];

/// Steps on a served volume, with weights.
const SERVED: &[(u64, Verb)] = &[
    (10, Verb::Write),
    (5, Verb::Flush),
    (4, Verb::Settle),
    (1, Verb::Add),
    (1, Verb::Remove),
    (1, Verb::Fail),
    (1, Verb::Return),
    (1, Verb::Replace),
    (1, Verb::Status),
];

const ENDS: &[(u64, Verb)] = &[(4, Verb::Stop), (5, Verb::Kill), (2, Verb::Burst)];

const RESTING: &[(u64, Verb)] = &[
    (4, Verb::Swap),
    (2, Verb::Rename),
    (3, Verb::Cut),
    (3, Verb::Blank),
    (2, Verb::Wipe),
    (7, Verb::Away),
    (5, Verb::Back),
    (4, Verb::Copy),
    (5, Verb::Restore),
    (1, Verb::Beside),
    (2, Verb::SaveState),
    (2, Verb::LoadState),
    (1, Verb::LoseState),
    (2, Verb::Import),
    (1, Verb::ImportAs),
    (1, Verb::Forget),
    (1, Verb::Replace),
    (1, Verb::Recover),
    (2, Verb::Check),
    (1, Verb::Status),
];

fn draw_one_of(rng: &mut Rng, of: &[(u64, Verb)]) -> Verb {
    let mut at = rng.below(of.iter().map(|(weight, _)| weight).sum());
    for &(weight, verb) in of {
        match at.checked_sub(weight) {
            Some(rest) => at = rest,
            None => return verb,
        }
    }
    of[0].1
}

impl Verb {
    /// True if the verb applies to files, not to a volume.
    pub fn is_of_file(self) -> bool {
        use Verb::*;
        matches!(self, Swap | Rename | Cut | Blank | Wipe | Away | Copy | Restore | Beside)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.options().0)?;
        self.steps.iter().try_for_each(|step| write!(f, "; {step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Verb::WORDS.iter().find(|(verb, _)| *verb == self.verb).unwrap().1;
        write!(f, "{word} {}{} {}", self.whom, self.other, self.number)
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        let mut words = text.split(';').map(str::trim);
        let name = words.next().unwrap_or_default();
        let kind = Kind::ALL.into_iter().find(|kind| kind.options().0 == name);
        let steps = words.filter(|step| !step.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Plan { kind: kind.ok_or_else(|| format!("no kind of volume: '{name}'"))?, steps })
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let wrong = || format!("no step: '{text}'");
        let words: Vec<&str> = text.split_whitespace().collect();
        let [word, whom, number] = words[..] else { return Err(wrong()) };
        let verb = Verb::WORDS.iter().find(|(_, w)| *w == word).ok_or_else(wrong)?.0;
        let mut whom = whom.chars();
        let (whom, other) = (whom.next().ok_or_else(wrong)?, whom.next().ok_or_else(wrong)?);
        Ok(Step { verb, whom, other, number: number.parse().map_err(|_| wrong())? })
    }
}
