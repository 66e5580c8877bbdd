//! Device models by their name in the library, or from a user's TOML file.
//!
//! A superblock has room only for a model's name. A volume's record therefore keeps the text of each model
//! from a file, as of the volume's creation: later changes or removal of the file have no effect. In the
//! superblock the model is named `own:NAME`, to distinguish it from models of the library. An import without
//! the text needs the file again: `braid import --model FILE`. Without the text the volume cannot be opened,
//! since its device would behave like another device.

use crate::{Error, ErrorKind, Result};
use braid_base::DeviceClass;
use braid_model::{Found, InvalidModel, Spec, UnknownModel, by_name, library};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Texts of models from files, by name.
pub(crate) type OwnModels = BTreeMap<String, String>;

/// Prefix for names of models outside the library.
const OWN: &str = "own:";

/// A requested model.
pub(crate) struct Model {
    /// Name in the superblock and the record.
    pub stored: String,
    pub spec: Spec,
    /// Name and text, if the model came from a file.
    pub own: Option<(String, String)>,
}

/// Finds a model by name or file, for a device of `class`.
///
/// # Errors
/// `Usage` if there is no such model, or the model is invalid or of the other class.
pub fn find_model(class: DeviceClass, model: &str) -> Result<Spec> {
    find(class, model).map(|found| found.spec)
}

/// A model, for people and scripts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelReport {
    /// Name for commands.
    pub model: String,
    /// Maker and model.
    pub title: String,
    /// `ssd` or `hdd`.
    pub class: String,
    /// Size of the real device.
    pub capacity_bytes: u64,
    /// The model as TOML for a user's file, with the meaning of each field.
    pub toml: String,
}

/// Returns all models of the library.
pub fn models() -> Vec<ModelReport> {
    library().iter().map(|spec| report(spec, spec.to_toml().unwrap_or_default())).collect()
}

/// Returns a model by name or file.
///
/// # Errors
/// As [`find_model`].
pub fn show_model(model: &str) -> Result<ModelReport> {
    let Found { spec, text } = braid_model::find(model, open).map_err(usage)?;
    let text = text.unwrap_or_else(|| spec.to_toml().unwrap_or_default());
    Ok(report(&spec, text))
}

fn report(spec: &Spec, toml: String) -> ModelReport {
    ModelReport {
        model: spec.name.to_string(),
        title: spec.title.to_string(),
        class: spec.class.to_string(),
        capacity_bytes: spec.capacity.0,
        toml,
    }
}

/// Finds a model by name or file, with its text if the record must keep the text.
pub(crate) fn find(class: DeviceClass, model: &str) -> Result<Model> {
    let Found { spec, text } = braid_model::find(model, open).map_err(usage)?;
    spec.fits(class).map_err(usage)?;
    let name = spec.name.to_string();
    Ok(match text {
        Some(text) => Model { stored: format!("{OWN}{name}"), own: Some((name, text)), spec },
        None => Model { stored: name, own: None, spec },
    })
}

/// Returns the model named in a superblock.
///
/// # Errors
/// `Unsupported` if this program does not know the model, or the model's text is missing.
pub(crate) fn reopen(class: DeviceClass, stored: &str, own: &OwnModels) -> Result<Spec> {
    let unsupported = |problem: String| Error::new(ErrorKind::Unsupported, problem);
    let spec = match stored.strip_prefix(OWN) {
        None => by_name(stored)
            .cloned()
            .ok_or_else(|| unsupported(UnknownModel(stored.to_owned()).to_string()))?,
        Some(name) => {
            let text = own.get(name).ok_or_else(|| {
                unsupported(format!(
                    "it emulates '{name}', a model from a file, and the text of the model is not on this \
                     machine: give the file again with braid import PATH… --model FILE.toml"
                ))
            })?;
            Spec::from_toml(text).map_err(|error| {
                unsupported(format!("the text of its model '{name}' is no longer a valid model: {error}"))
            })?
        }
    };
    spec.fits(class).map_err(|error| unsupported(error.to_string()))?;
    Ok(spec)
}

/// True if a superblock names the model `name` from a file.
pub(crate) fn is_own(stored: &str, name: &str) -> bool {
    stored.strip_prefix(OWN) == Some(name)
}

/// Reads models from files, for volumes that name them.
pub(crate) fn read_all(paths: &[impl AsRef<Path>]) -> Result<OwnModels> {
    let mut models = OwnModels::new();
    for path in paths {
        let (spec, text) = braid_model::read(path.as_ref(), open).map_err(usage)?;
        keep(&mut models, spec.name.to_string(), text)?;
    }
    Ok(models)
}

/// Adds a model to the models of a record.
///
/// # Errors
/// `Usage` if a different model has the same name.
pub(crate) fn keep(models: &mut OwnModels, name: String, text: String) -> Result<()> {
    match models.get(&name) {
        Some(known) if *known != text => {
            let problem =
                format!("two different models are called '{name}': change the name in one of the files");
            Err(Error::new(ErrorKind::Usage, problem))
        }
        _ => {
            models.insert(name, text);
            Ok(())
        }
    }
}

/// Opens a model's file, which must be a regular file.
fn open(path: &Path) -> io::Result<File> {
    // Check first: opening a pipe would wait for its writer.
    match std::fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn usage(problem: InvalidModel) -> Error {
    Error::new(ErrorKind::Usage, problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> String {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn own(name: &str) -> String {
        by_name("mba3073").unwrap().to_toml().unwrap().replace("\"mba3073\"", &format!("\"{name}\""))
    }

    #[test]
    fn a_file_is_read_kept_and_found_again_without_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "mine.toml", &own("mine"));
        let found = find(DeviceClass::Hdd, &path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.stored, "own:mine");
        let mut kept = OwnModels::new();
        let (name, text) = found.own.unwrap();
        keep(&mut kept, name, text).unwrap();
        let again = reopen(DeviceClass::Hdd, "own:mine", &kept).unwrap();
        assert_eq!(again.timing, by_name("mba3073").unwrap().timing);
    }

    #[test]
    fn own_model_is_never_resolved_from_the_library() {
        let error = reopen(DeviceClass::Hdd, "own:mba3073", &OwnModels::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("--model FILE.toml"), "{error}");
    }

    #[test]
    fn invalid_model_is_refused_with_the_cause() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        file(&dir, "disk.toml", &own("disk"));
        file(&dir, "bad.toml", "kind = \"hdd\"");
        for (model, class, expected) in [
            (path("none.toml"), DeviceClass::Hdd, "braid device show"),
            (path("bad.toml"), DeviceClass::Hdd, "'name'"),
            (path("disk.toml"), DeviceClass::Ssd, "--hdd"),
            (path(""), DeviceClass::Hdd, &*path("")),
            ("x26".to_owned(), DeviceClass::Ssd, "x25-m"),
        ] {
            let error = find_model(class, &model).unwrap_err();
            assert!(error.to_string().contains(expected), "{model}: {error}");
            assert_eq!(error.exit_status(), 2, "{model}");
        }
    }

    #[test]
    fn models_with_the_same_name_must_be_identical() {
        let dir = tempfile::tempdir().unwrap();
        let one = file(&dir, "one.toml", &own("mine"));
        let other = file(&dir, "other.toml", &own("mine").replace("\"4ms\"", "\"5ms\""));
        assert_eq!(read_all(&[&one, &one]).unwrap().len(), 1);
        assert!(read_all(&[&one, &other]).unwrap_err().to_string().contains("'mine'"));
    }
}
