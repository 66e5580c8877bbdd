//! The log of a process: lines on standard error, or entries with fields in the journal of systemd.
//!
//! A process whose standard error is the journal sends entries instead of lines: the service manager tells by
//! `JOURNAL_STREAM`, as systemd.exec(5) describes.

use braid_control::{Error, ErrorKind, Result};
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Form of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogForm {
    // Without documentation: the help of each option describes its forms.
    Text,
    Journal,
}

/// The log of a command.
pub struct LogSettings {
    /// Form.
    pub form: LogForm,
    /// Level without `BRAID_LOG`.
    pub level: &'static str,
    /// The volume that all messages are about.
    pub volume: Option<String>,
}

/// Prefix of the fields' names.
const PREFIX: &str = "BRAID";
/// Socket of the journal, which the library has no setting for.
const SOCKET: &str = "/run/systemd/journal/socket";

impl LogForm {
    /// Returns the form asked for, else the usual form: the journal if standard error is the journal.
    pub fn or_usual(form: Option<LogForm>) -> LogForm {
        form.unwrap_or(if stderr_is_journal() { LogForm::Journal } else { LogForm::Text })
    }
}

impl LogSettings {
    /// Sets up the log, with the levels of `BRAID_LOG`.
    ///
    /// # Errors
    /// `Io` if the journal cannot be reached.
    pub fn start(&self) -> Result<()> {
        let filter = std::env::var("BRAID_LOG").unwrap_or_else(|_| self.level.to_owned());
        let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| self.level.into());
        match self.form {
            LogForm::Text => tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_writer(std::io::stderr)
                .with_ansi(std::io::stderr().is_terminal())
                .with_target(false)
                .init(),
            LogForm::Journal => {
                let layer = tracing_journald::layer().map_err(|error| no_journal(&error))?;
                let mappings = PriorityMappings {
                    info: Priority::Informational,
                    debug: Priority::Debug,
                    ..PriorityMappings::new()
                };
                let layer = layer.with_field_prefix(Some(PREFIX.to_owned())).with_priority_mappings(mappings);
                let layer = layer.with_syslog_identifier("braid".to_owned());
                let volume = self.volume.iter().map(|volume| (format!("{PREFIX}_VOLUME"), volume));
                tracing_subscriber::registry().with(filter).with(layer.with_custom_fields(volume)).init();
            }
        }
        Ok(())
    }

    /// Logs the end of a command with an error. Returns true if standard error should have the error, too.
    pub fn fail(&self, error: &Error) -> bool {
        if self.form == LogForm::Text {
            return true;
        }
        tracing::error!(code = error.code(), "{error}");
        !stderr_is_journal()
    }
}

fn no_journal(error: &std::io::Error) -> Error {
    let problem =
        format!("no log in the journal: {SOCKET}: {error}: start systemd-journald, or log lines: --log text");
    Error::new(ErrorKind::Io, problem)
}

/// True if standard error is a stream to the journal.
fn stderr_is_journal() -> bool {
    let Ok(told) = std::env::var("JOURNAL_STREAM") else { return false };
    let found = rustix::fs::fstat(std::io::stderr());
    found.is_ok_and(|found| told == format!("{}:{}", found.st_dev, found.st_ino))
}
