//! A trace in a file or several files, read as often as needed.

use crate::Error;
use crate::compact;
use crate::files::files_of;
use crate::options::{Layout, Options};
use crate::reader::Reader;
use crate::survey::Survey;
use crate::touched::{Compaction, Touched};
use braid_base::{Bytes, Nanos};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trace in a file or several files. The devices lie one after another, each with just the room for its
/// addresses.
pub struct TraceFile {
    path: PathBuf,
    options: Options,
    survey: Survey,
    watch: Option<Watch>,
}

/// Callback for each read of the file, with the number of bytes read.
pub type Watch = Arc<dyn Fn(u64) + Send + Sync>;

impl TraceFile {
    /// Opens a trace and reads the whole trace once. `path` is a file, a folder with all its files, or
    /// several files joined by `+`. For a single complete file in the compact format, the header and the end
    /// suffice. The layout of `options` is not used.
    pub fn open(path: &Path, options: &Options, watch: Option<Watch>) -> Result<TraceFile, Error> {
        let survey = match compact_survey(path, options)? {
            Some(survey) => survey,
            None => Survey::of(&mut open(path, &apart(options), watch.clone())?)?,
        };
        Ok(TraceFile::surveyed(path, options, survey, watch))
    }

    /// Opens a trace and also notes the touched extents of the given size.
    pub fn open_touched(
        path: &Path,
        options: &Options,
        extent: Bytes,
    ) -> Result<(TraceFile, Compaction), Error> {
        refuse_pipes(path)?;
        let (mut touched, mut duration) = (Touched::new(extent)?, Nanos::ZERO);
        let mut reader = open(path, &apart(options), None)?;
        for record in reader.by_ref() {
            let record = record?;
            duration = record.arrival.at;
            touched.add(&record).map_err(|error| error.within(&path.display().to_string()))?;
        }
        let survey = Survey::so_far(&reader, duration);
        Ok((TraceFile::surveyed(path, options, survey, None), touched.number(reader.labels())))
    }

    fn surveyed(path: &Path, options: &Options, survey: Survey, watch: Option<Watch>) -> TraceFile {
        let layout = Layout::Packed(survey.places.clone());
        let options = Options { layout, ..options.clone() };
        TraceFile { path: path.to_owned(), options, survey, watch }
    }

    /// Returns the results of the first pass.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Returns a reader from the beginning of the trace.
    pub fn reader(&self) -> Result<Reader<'static>, Error> {
        open(&self.path, &self.options, self.watch.clone())
    }
}

/// Opens a trace with any options: a file, all files of a folder, or several files joined by `+`.
pub fn open(path: &Path, options: &Options, watch: Option<Watch>) -> Result<Reader<'static>, Error> {
    open_through(path, options, |file| Watched { file, watch: watch.clone() })
}

/// Opens a trace and reads each file through the wrapper `through`.
pub fn open_through<S: Read + Send + 'static>(
    path: &Path,
    options: &Options,
    through: impl Fn(File) -> S,
) -> Result<Reader<'static>, Error> {
    let open = |file: &Path, options: &Options| {
        let opened = through(File::open(file).map_err(|error| named(file, error))?);
        let name = file.display().to_string();
        Ok(Reader::open(opened, options).map_err(|error| error.within(&name))?.named(name))
    };
    match files_of(path)?.as_slice() {
        [file] => open(file, options),
        files => {
            let part = Options { speed: 1.0, ..apart(options) };
            let parts = files.iter().map(|file| open(file, &part)).collect::<Result<_, Error>>()?;
            Ok(Reader::merge(parts, options)?.named(path.display().to_string()))
        }
    }
}

/// Returns the options for a first pass: a layout with room for any device.
fn apart(options: &Options) -> Options {
    Options { layout: Layout::ROOMY, ..options.clone() }
}

/// Rejects paths that cannot be read more than once.
fn refuse_pipes(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let files = files_of(path)?;
    files.iter().try_for_each(|file| refuse_pipe(file).map(drop))?;
    Ok(files)
}

/// Opens a file, and rejects a file that cannot be read more than once.
fn refuse_pipe(path: &Path) -> Result<File, Error> {
    let is_file = std::fs::metadata(path).map_err(|error| named(path, error))?.is_file();
    if !is_file {
        return Err(Error::Options(format!(
            "{} is not a file, and can be read only once: the layout of its devices takes a first pass; \
             copy it into a file",
            path.display()
        )));
    }
    File::open(path).map_err(|error| named(path, error))
}

/// Returns the survey from header and end of an uncompressed compact trace. `None` if a full pass is needed:
/// for a selected device, for strict reading, for another speed, for several files, or for any other trace.
fn compact_survey(path: &Path, options: &Options) -> Result<Option<Survey>, Error> {
    const AS_LONG_AS_A_HEADER: u64 = 1 << 20;
    let files = refuse_pipes(path)?;
    let [path] = files.as_slice() else { return Ok(None) };
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
