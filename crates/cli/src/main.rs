//! The `braid` command: parses the command line and prints answers. `braid-control` does the work. Each
//! command has a file of its name.
//!
//! Exit status: 0 done, 1 the work failed, 2 bad usage, 3 data unsafe or lost. Answers go to standard output,
//! as text or, with `--json`, as JSON. Everything else goes to standard error.
#![forbid(unsafe_code)]

mod advise;
mod alert;
mod attach;
mod check;
mod completions;
mod create;
mod demo;
mod device;
mod explain;
mod import;
mod lab;
mod log;
mod man;
mod output;
mod plan;
mod policy;
mod recover;
mod resize;
mod serve;
mod simulate;
mod status;
mod table;
mod tls;
mod trace;
mod volume_options;
mod watch;
mod web;

use braid_control::{Error, ErrorKind, Result, StateDir};
use clap::{Parser, Subcommand};
use log::{LogForm, LogSettings};
use output::Output;
use std::process::ExitCode;

/// Combine SSDs and hard disks into one fast, large, safe block volume
#[derive(Parser)]
#[command(name = "braid", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print answers and errors as JSON, with units in the names of fields
    #[arg(long, global = true)]
    json: bool,
}

const EXAMPLES: &str = "\
Try Braid without hardware, with the timing of an old SSD and an old hard disk:
  braid serve --temporary --ssd memory,size=1GiB,model=x25-m --hdd memory,size=4GiB,model=mba3073

With devices (all data on the devices is lost):
  braid create vault --ssd /dev/nvme0n1 --hdd /dev/sda --hdd /dev/sdb
  braid serve vault
  braid attach vault

Environment:
  BRAID_STATE_DIR    directory for the names of volumes and for sockets
                     (default: /var/lib/braid for root, else the user's state directory)
  BRAID_RUNTIME_DIR  directory in memory for data that must outlive a dead daemon
                     (default: /run/braid for root, else /dev/shm/braid-USERID or $XDG_RUNTIME_DIR/braid)
  BRAID_CONFIG_DIR   directory for the configurations of volumes, NAME.toml
                     (default: /etc/braid for root, else $XDG_CONFIG_HOME/braid or ~/.config/braid)
  BRAID_DEVICE_DIR   directory for links to attached block devices
                     (default: /dev/braid for volumes in /var/lib/braid, else no links)
  BRAID_LOG          level of the log: error, warn, info (default of serve) or debug

Exit status: 0 done, 1 the work failed, 2 bad usage, 3 data unsafe or lost.";

#[derive(Subcommand)]
enum Command {
    Create(create::Arguments),
    Serve(serve::Arguments),
    Stop(serve::StopArguments),
    Tls(tls::Arguments),
    Attach(attach::Arguments),
    Detach(attach::DetachArguments),
    Status(status::Arguments),
    Web(web::Arguments),
    Alert(alert::Arguments),
    Explain(explain::Arguments),
    Check(check::Arguments),
    Recover(recover::Arguments),
    Policy(policy::Arguments),
    Resize(resize::Arguments),
    Import(import::Arguments),
    Forget(import::ForgetArguments),
    Device(device::Arguments),
    Simulate(Box<simulate::Arguments>),
    Advise(Box<advise::Arguments>),
    Plan(Box<plan::Arguments>),
    Lab(lab::Arguments),
    Trace(trace::Arguments),
    Demo(Box<demo::Arguments>),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
}

fn main() -> ExitCode {
    completions::answer();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => return refuse(&refused),
    };
    let output = Output { json: cli.json };
    let log = log_of(&cli.command);
    let status = log.start().map_err(|error| (error, true)).and_then(|()| {
        run(cli.command, output).map_err(|error| {
            let is_shown = log.fail(&error);
            (error, is_shown)
        })
    });
    let status = status.unwrap_or_else(|(error, is_shown)| {
        match is_shown {
            true => output.fail(&error),
            false => output.answer(&error),
        }
        error.exit_status()
    });
    ExitCode::from(output::exit_status(status))
}

/// Prints help, the version, or the error in the command line.
fn refuse(refused: &clap::Error) -> ExitCode {
    if !refused.use_stderr() {
        return ExitCode::from(u8::from(refused.print().is_err()));
    }
    let text = match refused.kind() {
        clap::error::ErrorKind::InvalidUtf8 => not_text(),
        _ => in_words(&refused.render().to_string()),
    };
    let json = std::env::args_os().skip(1).any(|word| word == "--json");
    let message = text.trim_start_matches("error: ").trim_end();
    Output { json }.answer(&Error::new(ErrorKind::Usage, message));
    output::complain(text.trim_end());
    ExitCode::from(output::exit_status(refused.exit_code() as u8))
}

/// Error message: the arguments that are not UTF-8.
fn not_text() -> String {
    let words = std::env::args_os().skip(1).filter(|word| word.to_str().is_none());
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    format!("error: {} is not UTF-8: rename the file, or use a symbolic link to the file", words.join(", "))
}

/// Replaces the standard library's messages about malformed numbers by plainer words.
fn in_words(text: &str) -> String {
    const WORDS: [(&str, &str); 4] = [
        ("invalid digit found in string", "not a whole number"),
        ("cannot parse integer from empty string", "a whole number is missing"),
        ("number too large to fit in target type", "the number is too large"),
        ("invalid float literal", "not a number"),
    ];
    WORDS.iter().fold(text.to_owned(), |text, (said, meant)| text.replace(said, meant))
}

fn run(command: Command, output: Output) -> Result<u8> {
    let state = StateDir::from_environment()?;
    match command {
        Command::Create(arguments) => create::run(&state, &arguments, output),
        Command::Serve(arguments) => serve::run(&state, &arguments, output),
        Command::Stop(arguments) => serve::stop(&state, &arguments, output),
        Command::Tls(arguments) => tls::run(&arguments, output),
        Command::Attach(arguments) => attach::run(&state, &arguments, output),
        Command::Detach(arguments) => attach::detach(&state, &arguments, output),
        Command::Status(arguments) => status::run(&state, &arguments, output),
        Command::Web(arguments) => web::run(&state, &arguments, output),
        Command::Alert(arguments) => alert::run(&state, &arguments, output),
        Command::Explain(arguments) => explain::run(&state, &arguments, output),
        Command::Check(arguments) => check::run(&state, &arguments, output),
        Command::Recover(arguments) => recover::run(&state, &arguments, output),
        Command::Policy(arguments) => policy::run(&state, &arguments, output),
        Command::Resize(arguments) => resize::run(&state, &arguments, output),
        Command::Import(arguments) => import::run(&state, &arguments, output),
        Command::Forget(arguments) => import::forget(&state, &arguments, output),
        Command::Device(arguments) => device::run(&state, &arguments, output),
        Command::Simulate(arguments) => simulate::run(&arguments, output),
        Command::Advise(arguments) => advise::run(&state, &arguments, output),
        Command::Plan(arguments) => plan::run(&arguments, output),
        Command::Lab(arguments) => lab::run(&arguments, output),
        Command::Trace(arguments) => trace::run(&state, &arguments, output),
        Command::Demo(arguments) => demo::run(&arguments, output),
        Command::Completions(arguments) => completions::run(&arguments, output),
        Command::Man(arguments) => man::run(&arguments, output),
    }
}

/// Returns the log of a command: of level `info` for a daemon, `warn` for other commands.
fn log_of(command: &Command) -> LogSettings {
    match command {
        Command::Serve(arguments) => arguments.log(),
        Command::Alert(arguments) => arguments.log(),
        _ => LogSettings { form: LogForm::Text, level: "warn", volume: None },
    }
}
