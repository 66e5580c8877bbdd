//! Models by their name in the library, or from the user's own TOML file.
//!
//! A name with a `/` or ending in `.toml` is a file. The caller opens model files; this module opens none. At
//! most `LONGEST_TEXT` of a file is read.

use crate::library::{InvalidModel, Spec, UnknownModel, by_name};
use crate::text::LONGEST_TEXT;
use braid_base::DeviceClass;
use std::io::{self, Read};
use std::path::Path;

/// A model found by name or in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The model.
    pub spec: Spec,
    /// The text of the model, if read from a file.
    pub text: Option<String>,
}

/// The model named `model`: a name of the library, or a file that `open` opens.
///
/// # Errors
/// If the model does not exist or is invalid: names the file and field, and the allowed values.
pub fn find<R: Read>(model: &str, open: impl FnOnce(&Path) -> io::Result<R>) -> Result<Found, InvalidModel> {
    if is_file(model) {
        let (spec, text) = read(Path::new(model), open)?;
        return Ok(Found { spec, text: Some(text) });
    }
    let spec = by_name(model).ok_or_else(|| InvalidModel(UnknownModel(model.to_owned()).to_string()))?;
    Ok(Found { spec: spec.clone(), text: None })
}

/// True if the name of a model looks like a file; no file is opened.
pub fn is_file(model: &str) -> bool {
    model.contains('/') || model.ends_with(".toml")
}

/// The model in the file at `path`, opened by `open`, and its text.
///
/// # Errors
/// If the file is unreadable or not a model: names the file and field, and the allowed values.
pub fn read<R: Read>(
    path: &Path,
    open: impl FnOnce(&Path) -> io::Result<R>,
) -> Result<(Spec, String), InvalidModel> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        InvalidModel(format!(
            "the model file {shown} cannot be read: {error}; braid device show prints a model"
        ))
    };
    let mut text = String::new();
    let longest = LONGEST_TEXT.0;
    let read = open(path).and_then(|file| file.take(longest + 1).read_to_string(&mut text));
    // The limit may cut a character, making the text invalid. The error is then about the length.
    match read {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(unreadable(error)),
        Ok(len) if len as u64 <= longest => {}
        _ => {
            let problem = format!("{shown} is not a model file: use a text file of at most {LONGEST_TEXT}");
            return Err(InvalidModel(problem));
        }
    }
    let spec =
        Spec::from_toml(&text).map_err(|error| InvalidModel(format!("model file {shown}: {error}")))?;
    Ok((spec, text))
}

impl Spec {
    /// Verifies that the model is of class `class`.
    ///
    /// # Errors
    /// If the model is of the other class: names the model's class.
    pub fn fits(&self, class: DeviceClass) -> Result<(), InvalidModel> {
        if self.class == class {
            return Ok(());
        }
        let Spec { name, title, class: own, .. } = self;
        Err(InvalidModel(format!("{name} ({title}) is a model of class {own}: use --{own}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_file(path: &Path) -> io::Result<&'static [u8]> {
        panic!("{} was opened", path.display())
    }

    #[test]
    fn a_name_opens_no_file_and_a_path_is_no_name() {
        assert_eq!(find("mba3073", no_file).unwrap().text, None);
        let text = by_name("mba3073").unwrap().to_toml().unwrap().replace("\"mba3073\"", "\"mine\"");
        for path in ["mine.toml", "./mine", "/tmp/mba3073"] {
            let found = find(path, |_| Ok(text.as_bytes())).unwrap();
            assert_eq!((&*found.spec.name, found.text.as_deref()), ("mine", Some(&*text)), "{path}");
            assert_eq!(found.spec.timing, by_name("mba3073").unwrap().timing);
        }
    }

    #[test]
    fn error_names_invalid_file_and_remedy() {
        let missing = |_: &Path| Err::<&[u8], _>(io::Error::from(io::ErrorKind::NotFound));
        let error = find("none.toml", missing).unwrap_err().to_string();
        assert!(error.contains("none.toml") && error.contains("braid device show"), "{error}");
        for (text, expected) in [
            (&b"kind = \"hdd\""[..], "'name'"),
            (&[0xff; 10][..], "64 KiB"),
            (&[b'#'; (64 << 10) + 1][..], "64 KiB"),
        ] {
            let error = find("bad.toml", |_| Ok(text)).unwrap_err().to_string();
            assert!(error.contains("bad.toml") && error.contains(expected), "{error}");
        }
        let error = find("x26", no_file).unwrap_err().to_string();
        assert!(error.contains("x25-m"), "{error}");
    }

    #[test]
    fn a_file_without_end_is_read_up_to_the_limit() {
        let error = find("/dev/zero", |_| Ok(io::repeat(b' '))).unwrap_err().to_string();
        assert!(error.contains("64 KiB"), "{error}");
    }
}
