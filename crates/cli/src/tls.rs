//! `braid tls`: certificates for NBD between machines.

use crate::output::{Output, quoted};
use braid_control::{MOST_DAYS, Result, TlsReport, tls_client, tls_init};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Make certificates for NBD between machines (braid serve --tls)
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: TlsVerb,
}

#[derive(Subcommand)]
enum TlsVerb {
    Init(InitArguments),
    Client(ClientArguments),
}

/// Make an authority and a server's certificate
///
/// The files have the names that NBD software expects: ca-cert.pem, ca-key.pem (the authority's private key),
/// server-cert.pem and server-key.pem, all with mode 0600. Nothing is overwritten. If the directory has an
/// authority already, only the server's certificate is made: to renew the certificate, move server-cert.pem
/// and server-key.pem away first. A served volume uses the new files within seconds, for new connections.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid tls init /etc/braid/tls --server nas.example.org --server 192.168.1.7
  braid tls client /etc/braid/tls backup
  braid serve vault --nbd 192.168.1.7:10809 --tls /etc/braid/tls

Whoever has ca-key.pem can make clients: keep the file on another machine, if the server makes none itself.

JSON: directory, files, names, valid_days.")]
struct InitArguments {
    /// Directory of the files; created if missing
    directory: PathBuf,
    /// Name or address by which clients reach the server. Repeat the option for more names [default:
    /// localhost, 127.0.0.1, ::1]
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Validity of the server's certificate in days; the authority is valid for 20 years
    #[arg(long, value_name = "N", default_value_t = DAYS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_DAYS)))]
    days: u32,
}

/// Make the certificate of a client
///
/// The new directory DIRECTORY/CLIENT has ca-cert.pem, client-cert.pem and client-key.pem, all with mode
/// 0600: move the directory to the client's machine. Nothing is overwritten.
#[derive(Args)]
#[command(after_help = "\
Examples:
  braid tls client /etc/braid/tls backup
  nbdcopy 'nbds://nas.example.org/vault?tls-certificates=/home/ada/backup' copy.img

JSON: directory, files, names, valid_days.")]
struct ClientArguments {
    /// Directory of the authority
    directory: PathBuf,
    /// Name of the client, for braid serve --tls-client
    client: String,
    /// Validity of the certificate in days
    #[arg(long, value_name = "N", default_value_t = DAYS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_DAYS)))]
    days: u32,
}

/// Days of a certificate's validity, unless told otherwise: a little over two years.
const DAYS: u32 = 825;

/// Runs the command.
pub fn run(arguments: &Arguments, output: Output) -> Result<u8> {
    let report = match &arguments.verb {
        TlsVerb::Init(init) => tls_init(&init.directory, &init.server, init.days)?,
        TlsVerb::Client(client) => tls_client(&client.directory, &client.client, client.days)?,
    };
    output.show(&report, || describe(&report));
    Ok(0)
}

fn describe(report: &TlsReport) -> String {
    let TlsReport { directory, files, names, valid_days } = report;
    let names_of_files = files.iter().filter_map(|file| file.file_name());
    let files: Vec<String> = names_of_files.map(|name| name.display().to_string()).collect();
    let (place, files, names) = (quoted(directory), files.join(", "), names.join(", "));
    format!("{place}: {files}; for {names}, valid for {valid_days} days")
}
