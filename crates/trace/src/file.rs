//! A trace in a file, which can be read more than once.

use crate::Error;
use crate::compact;
use crate::options::{Layout, Options};
use crate::reader::Reader;
use crate::survey::Survey;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trace in a file. Its devices are laid one after another, each with the room that it needs.
pub struct TraceFile {
    path: PathBuf,
    options: Options,
    survey: Survey,
    watch: Option<Watch>,
}

/// Is told how many bytes of the file were read, each time that some were.
pub type Watch = Arc<dyn Fn(u64) + Send + Sync>;

impl TraceFile {
    /// Opens a file and reads it once through; a complete trace of the compact format says by itself what there is to know.
    /// The layout of `options` is not used.
    pub fn open(path: &Path, options: &Options, watch: Option<Watch>) -> Result<TraceFile, Error> {
        let survey = match compact_survey(path, options)? {
            Some(survey) => survey,
            None => Survey::of(&mut open(path, &apart(options), watch.clone())?)?,
        };
        Ok(TraceFile::surveyed(path, options, survey, watch))
    }

    fn surveyed(path: &Path, options: &Options, survey: Survey, watch: Option<Watch>) -> TraceFile {
        let layout = Layout::Packed(survey.places.clone());
        let options = Options { layout, ..options.clone() };
        TraceFile { path: path.to_owned(), options, survey, watch }
    }

    /// What the first pass found out.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Reads the trace from its beginning.
    pub fn reader(&self) -> Result<Reader<'static>, Error> {
        open(&self.path, &self.options, self.watch.clone())
    }
}

/// Opens the trace in a file with any options.
pub fn open(path: &Path, options: &Options, watch: Option<Watch>) -> Result<Reader<'static>, Error> {
    let file = File::open(path).map_err(|error| named(path, error))?;
    let name = path.display().to_string();
    let reader = Reader::open(Watched { file, watch }, options).map_err(|error| error.within(&name))?;
    Ok(reader.named(name))
}

/// For a first pass: devices lie where no other can be.
pub(crate) fn apart(options: &Options) -> Options {
    Options { layout: Layout::ROOMY, ..options.clone() }
}

/// Opens what can be read more than once.
pub(crate) fn refuse_pipe(path: &Path) -> Result<File, Error> {
    let is_file = std::fs::metadata(path).map_err(|error| named(path, error))?.is_file();
    if !is_file {
        return Err(Error::Options(format!(
            "{} is not a file: its devices are laid out after a first pass, and it can be read only once; copy it into a file",
            path.display()
        )));
    }
    File::open(path).map_err(|error| named(path, error))
}

/// Header and end of an uncompressed compact trace are enough, unless a device is to be picked out, or the records looked
/// at one by one.
fn compact_survey(path: &Path, options: &Options) -> Result<Option<Survey>, Error> {
    const AS_LONG_AS_A_HEADER: u64 = 1 << 20;
    let mut file = refuse_pipe(path)?;
    if options.device.is_some() || options.strict || options.speed != 1.0 {
        return Ok(None);
    }
    let ends = || -> io::Result<(Vec<u8>, Vec<u8>)> {
        let (mut beginning, mut ending) = (Vec::new(), Vec::new());
        file.by_ref().take(AS_LONG_AS_A_HEADER).read_to_end(&mut beginning)?;
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(len.saturating_sub(64)))?;
        file.take(64).read_to_end(&mut ending)?;
        Ok((beginning, ending))
    };
    let (beginning, ending) = ends().map_err(|error| named(path, error))?;
    Ok(compact::tail(&beginning, &ending).map(|(header, tail)| Survey::of_compact(header, &tail)))
}

fn named(path: &Path, error: io::Error) -> Error {
    Error::io(path.display().to_string(), error)
}

struct Watched {
    file: File,
    watch: Option<Watch>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        if let Some(watch) = &self.watch {
            watch(read as u64);
        }
        Ok(read)
    }
}
