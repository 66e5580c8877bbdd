//! Daemons are replaced under NBD clients, as an upgrade of the package replaces them: clients that connect
//! again see no error. `make upgrade-test` does so with the package, for all doors.

use crate::machine::{Machine, have};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Number of upgrades that `make upgrade-test` asks for.
pub fn upgrades() -> Option<usize> {
    std::env::var("BRAID_UPGRADES").ok().map(|number| number.parse().unwrap())
}

/// qemu's client with commands from the test.
struct QemuIo {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl QemuIo {
    fn open(image: &str) -> QemuIo {
        let mut command = Command::new("qemu-io");
        command.args(["--image-opts", image]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        QemuIo { child, input, output: BufReader::new(output) }
    }

    fn begin(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Waits for the success of a command; `read -P` succeeds with these bytes alone.
    fn wait(&mut self, answer: &str) {
        let mut said = String::new();
        while !said.contains(answer) {
            assert_ne!(self.output.read_line(&mut said).unwrap(), 0, "qemu-io ended: {said}");
            assert!(!said.contains("failed"), "{said}");
        }
    }

    fn run(&mut self, command: &str) {
        self.begin(command);
        self.wait(if command.starts_with("write") { "wrote " } else { "read " });
    }
}

impl Drop for QemuIo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replaces daemons under a client of `image`, which writes while there is no daemon.
fn outlives_daemons(machine: &Machine, image: impl FnOnce(&Path) -> (String, Option<Child>)) {
    machine.create("vault", &[]);
    let socket = machine.path("vault.sock");
    let place = format!("unix:{}", socket.display());
    let serve = || machine.serve(&["vault", "--nbd", &place]);
    let mut daemon = serve();
    let (image, helper) = image(&socket);
    let mut client = QemuIo::open(&image);
    for round in 1..=upgrades().unwrap_or(2) {
        client.run(&format!("write -P {round} {round}M 1M"));
        assert_eq!(daemon.end_by(Signal::USR1).status, 0);
        client.begin(&format!("write -P 9 {}M 1M", 64 + round));
        daemon = serve();
        client.wait("wrote ");
        for former in 1..=round {
            client.run(&format!("read -P {former} {former}M 1M"));
            client.run(&format!("read -P 9 {}M 1M", 64 + former));
        }
    }
    drop(client);
    if let Some(mut helper) = helper {
        helper.kill().unwrap();
        helper.wait().unwrap();
    }
    assert_eq!(daemon.terminate().status, 0);
}

#[test]
fn nbd_client_of_qemu_with_reconnect_delay_outlives_daemons() {
    if have(&["qemu-io"]) {
        outlives_daemons(&Machine::new(), |socket| (qemu_client(socket), None));
    }
}

/// For clients that do not connect again: those of the kernel and of libnbd.
#[test]
fn nbdkit_with_filter_retry_outlives_daemons_for_its_clients() {
    if !have(&["qemu-io", "nbdkit"]) {
        return;
    }
    let machine = Machine::new();
    let between = machine.path("between.sock");
    outlives_daemons(&machine, |socket| {
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&between);
        nbdkit.args(["--filter=retry", "nbd", "export=vault", "retries=60", "retry-delay=1"]);
        nbdkit.args(["retry-exponential=no"]).arg(format!("socket={}", socket.display()));
        let nbdkit = nbdkit.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !between.exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (format!("driver=nbd,server.type=unix,server.path={}", between.display()), Some(nbdkit))
    });
}

fn qemu_client(socket: &Path) -> String {
    let path = socket.display();
    format!("driver=nbd,server.type=unix,server.path={path},export=vault,reconnect-delay=60")
}
