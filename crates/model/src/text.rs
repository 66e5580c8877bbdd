//! Models as text: reads the user's TOML files, and writes named models.
//!
//! Each field is named once, with its limits and its documentation, in `ssd`, `hdd`, `dram` and `rates`.
//! Reading, writing and the written documentation follow from this description (`fields`). All fields of a
//! kind are required, so a file means the same in every version. Fields added later are optional: without
//! them, a file keeps its earlier meaning.
//!
//! ```text
//! kind = "ssd"            # ssd, hdd, dram or rates
//! name = "mine"
//! title = "Maker and model"
//! capacity = "480GB"      # sizes: 4096B, 256KiB, 480GB
//! read = "50us"           # times: 300ns, 50us, 4ms, 1s
//! read_rate = "520MB/s"   # rates: 262MB/s, 7GB/s
//! …
//! ```
//!
//! Groups are not written: `Spec::raid0` and `Spec::raid1` make a group from a model.

mod dram;
mod fields;
mod hdd;
mod rates;
mod ssd;

use crate::library::{InvalidModel, Spec, Timing, by_name};
use braid_base::{Bytes, DeviceClass, KIB, TIB};
use fields::{Fields, Reader, Writer};
use std::borrow::Cow;

/// The longest text of a model.
pub const LONGEST_TEXT: Bytes = Bytes(64 << 10);

/// The longest name of a model, in bytes: the room where names are stored.
const LONGEST_NAME: usize = 40;
const LONGEST_TITLE: usize = 200;

/// The kinds of models, and a named model of each as a start for the user's own file.
const KINDS: [(&str, &str); 4] =
    [("ssd", "sata-ssd"), ("hdd", "exos-x20"), ("dram", "dram"), ("rates", "ws-ros-ssd")];

impl Spec {
    /// Reads a model from TOML. The model has no published figures.
    ///
    /// # Errors
    /// Names the missing, unknown or wrong field, and the allowed values.
    pub fn from_toml(text: &str) -> Result<Spec, InvalidModel> {
        if text.len() > LONGEST_TEXT.as_usize() {
            let problem = format!("a model of {}: the limit is {LONGEST_TEXT}", Bytes::of_len(text.len()));
            return Err(InvalidModel(problem));
        }
        let table = text.parse::<toml::Table>().map_err(|error| InvalidModel(error.to_string()))?;
        let mut reader = Reader::new(table);
        let kind = reader.word("kind", KINDS[0].0, &KINDS.map(|(kind, _)| kind), "");
        let (_, start) = KINDS.into_iter().find(|(known, _)| *known == kind).unwrap_or(KINDS[0]);
        let mut spec = by_name(start).expect("a model of each kind has a name").clone();
        spec.figures = &[];
        fields_of(&mut spec, &mut reader);
        reader.finish()?;
        check(&spec)?;
        Ok(spec)
    }

    /// Writes a model as TOML, each field with its documentation.
    ///
    /// # Errors
    /// If the model is a group.
    pub fn to_toml(&self) -> Result<String, InvalidModel> {
        let kind = match self.timing {
            Timing::Ssd(_) => "ssd",
            Timing::Hdd(_) => "hdd",
            Timing::Dram(_) => "dram",
            Timing::Rates(_) => "rates",
            Timing::Group(_) => {
                return Err(InvalidModel(format!("{} is a group: write its member instead", self.name)));
            }
        };
        let mut writer = Writer::new(
            "A device model of Braid: --ssd or --hdd PATH,model=THIS_FILE.\n\
             Sizes as 4096B, 256KiB, 480GB; times as 300ns, 50us, 4ms; rates as 262MB/s. All fields are required.",
        );
        writer.word("kind", kind, &KINDS.map(|(kind, _)| kind), "Kind of the device");
        fields_of(&mut self.clone(), &mut writer);
        Ok(writer.text())
    }
}

/// The common fields, then the fields of the kind.
fn fields_of(spec: &mut Spec, fields: &mut impl Fields) {
    spec.name = Cow::Owned(fields.text(
        "name",
        &spec.name,
        LONGEST_NAME,
        "Name of the model in commands and reports",
    ));
    spec.title = Cow::Owned(fields.text("title", &spec.title, LONGEST_TITLE, "Maker and model"));
    spec.capacity =
        fields.size("capacity", spec.capacity, KIB * 4..=TIB * 256, "Capacity of the real device");
    match &mut spec.timing {
        Timing::Ssd(params) => ssd::fields(params, fields),
        Timing::Hdd(params) => hdd::fields(params, fields),
        Timing::Dram(params) => dram::fields(params, fields),
        Timing::Rates(params) => rates::fields(params, fields),
        Timing::Group(_) => {}
    }
    spec.class = match &spec.timing {
        Timing::Hdd(_) => DeviceClass::Hdd,
        Timing::Rates(params) => params.class,
        _ => DeviceClass::Ssd,
    };
}

/// Verifies the characters of the name, and rules between fields.
pub(crate) fn check(spec: &Spec) -> Result<(), InvalidModel> {
    let named = spec.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if spec.name.is_empty() || !named {
        let problem = format!("name = '{}': use letters, digits, '-', '_' and '.'", spec.name);
        return Err(InvalidModel(problem));
    }
    match &spec.timing {
        Timing::Hdd(params) => hdd::check(params),
        _ => Ok(()),
    }
}
