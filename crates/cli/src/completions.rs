//! `braid completions`: a script by which a shell asks this program for completions, and the answers:
//! commands, options, and the names of volumes, policies, workloads, device models and experiments.

use crate::Cli;
use crate::output::{Output, print};
use braid_control::{Error, ErrorKind, Result, StateDir};
use clap::{Args, Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use std::ffi::OsStr;

/// Print a shell script that completes commands, options and names of braid
///
/// Names are those of this machine's volumes, and of policies, workloads, device models and experiments. The
/// script asks the installed braid at each completion.
#[derive(Args)]
#[command(after_help = "\
Example:
  braid completions bash > /etc/bash_completion.d/braid")]
pub struct Arguments {
    /// Shell of the script
    shell: Shell,
}

/// Environment variable in which a shell asks for completions.
const ASKED: &str = "BRAID_COMPLETE";

/// Runs the command.
pub fn run(arguments: &Arguments, _output: Output) -> Result<u8> {
    let (shells, shell, mut script) = (Shells::builtins(), arguments.shell.to_string(), Vec::new());
    let failed = |problem: String| Error::new(ErrorKind::Usage, problem);
    let shell = shells.completer(&shell).ok_or_else(|| failed(format!("{shell} has no completions")))?;
    let written = shell.write_registration(ASKED, "braid", "braid", "braid", &mut script);
    written.map_err(|error| failed(error.to_string()))?;
    let more = match arguments.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        _ => "",
    };
    print((String::from_utf8_lossy(&script) + more).trim_end());
    Ok(0)
}

/// bash divides words at `=` and `:`, and replaces only what follows the last of these. Words with blanks are
/// not completed. Without a name, bash completes files.
const BASH: &str = r#"
_braid() {
    local line=${COMP_LINE:0:COMP_POINT} words word kept i
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=("")
    COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
    word=${words[COMP_CWORD]}
    kept=${word%"${word##*[=:]}"}
    _clap_complete_braid braid "$word" "${words[COMP_CWORD - 1]}"
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$kept"}; done
}
complete -o nospace -o bashdefault -o default -F _braid braid
"#;

/// zsh loads the script at the first completion, and expects that completion from the script.
const ZSH: &str = r#"
[[ ${funcstack[1]} != _braid ]] || _clap_dynamic_completer_braid "$@"
"#;

/// Answers a shell that asks for completions, and ends the process; else returns at once.
pub fn answer() {
    CompleteEnv::with_factory(|| with_names(Cli::command())).var(ASKED).bin("braid").complete();
}

/// A command whose arguments complete names, by the ids of the arguments.
fn with_names(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let is_new = matches!(name.as_str(), "create" | "import" | "calibrate");
    let are_models = matches!(name.as_str(), "demo" | "dbench" | "pass" | "cache");
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "name" if !is_new => arg.add(ArgValueCompleter::new(volumes)),
        "new" | "adopt" | "tls" | "directory" => arg.add(ArgValueCompleter::new(PathCompleter::any())),
        "device" if name == "calibrate" => arg.add(ArgValueCompleter::new(PathCompleter::any())),
        "ssd" | "hdd" if are_models => arg.add(ArgValueCompleter::new(models)),
        "policy" | "prefill_policy" => arg.add(ArgValueCompleter::new(policies)),
        "workload" => arg.add(ArgValueCompleter::new(workloads)),
        "ssd" => arg.add(ArgValueCompleter::new(|text: &OsStr| devices("ssd", text))),
        "hdd" => arg.add(ArgValueCompleter::new(|text: &OsStr| devices("hdd", text))),
        "model" | "ssd_model" | "hdd_model" => arg.add(ArgValueCompleter::new(models)),
        "ids" => arg.add(ArgValueCompleter::new(experiments)),
        _ => arg,
    });
    command.mut_subcommands(with_names)
}

fn volumes(text: &OsStr) -> Vec<CompletionCandidate> {
    let names = StateDir::from_environment().and_then(|state| state.names()).unwrap_or_default();
    beginning(text, names.iter().map(|name| (name.to_string(), None)))
}

fn policies(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, braid_lab::POLICIES.iter().map(|name| ((*name).to_owned(), None)))
}

fn workloads(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(
        text,
        braid_lab::workloads().map(|about| (about.name.to_owned(), Some(about.summary.to_owned()))),
    )
}

fn models(text: &OsStr) -> Vec<CompletionCandidate> {
    beginning(text, braid_control::models().into_iter().map(|model| (model.model, Some(model.title))))
}

fn experiments(text: &OsStr) -> Vec<CompletionCandidate> {
    let all = braid_lab::experiments::all();
    beginning(text, all.into_iter().map(|e| (e.id.to_owned(), Some(e.title.to_owned()))))
}

/// A device: a path, or its model after `model=`.
fn devices(class: &str, text: &OsStr) -> Vec<CompletionCandidate> {
    let Some((before, _)) = text.to_str().and_then(|text| text.rsplit_once("model=")) else {
        return PathCompleter::any().complete(text);
    };
    let models = braid_control::models().into_iter().filter(|model| model.class == class);
    let names = models.map(|model| (format!("{before}model={}", model.model), Some(model.title)));
    beginning(text, names)
}

/// The names that begin with `text`, each with its meaning.
fn beginning(
    text: &OsStr,
    names: impl Iterator<Item = (String, Option<String>)>,
) -> Vec<CompletionCandidate> {
    let Some(text) = text.to_str() else { return Vec::new() };
    let candidate = |(name, meaning): (String, Option<String>)| {
        CompletionCandidate::new(name).help(meaning.map(Into::into))
    };
    names.filter(|(name, _)| name.starts_with(text)).map(candidate).collect()
}
