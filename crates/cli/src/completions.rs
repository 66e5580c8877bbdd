//! `braid completions`.

use crate::Cli;
use crate::output::{Output, print};
use braid_control::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a shell script that completes commands and options of braid
#[derive(Args)]
#[command(after_help = "\
Example:
  braid completions bash > /etc/bash_completion.d/braid")]
pub struct Arguments {
    /// Shell of the script
    shell: Shell,
}

/// Runs the command.
pub fn run(arguments: &Arguments, _output: Output) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "braid", &mut script);
    print(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}
