//! A virtual machine boots from a volume by vhost-user and writes. Daemons die and follow each other
//! meanwhile, and the guest notices nothing.

use crate::machine::{Daemon, Machine, client, have, skip};
use crate::upgrade::upgrades;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Exit status of `scripts/guest-image` if this machine cannot run the virtual machine.
const CANNOT: i32 = 77;
/// Longest silence on the console: far more than any step takes on a busy machine.
const SILENCE: Duration = Duration::from_secs(600);

/// A running virtual machine.
struct Guest {
    qemu: Child,
    input: ChildStdin,
    console: Receiver<String>,
    said: String,
}

impl Guest {
    /// Boots a machine of two processors with the volume as its disk, for so many `rounds` of writing.
    fn boot(image: &Path, socket: &Path, rounds: usize) -> Guest {
        let mut qemu = Command::new("qemu-system-x86_64");
        let accelerator = std::env::var("ACCELERATOR").unwrap_or("tcg,thread=multi,tb-size=256".to_owned());
        qemu.args(["-accel", &accelerator, "-cpu", "max,la57=off", "-smp", "2", "-m", "512"]);
        qemu.args(["-object", "memory-backend-memfd,id=memory,size=512M,share=on"]);
        qemu.args(["-machine", "pc,memory-backend=memory", "-nodefaults", "-display", "none", "-no-reboot"]);
        qemu.arg("-chardev").arg(format!("socket,id=disk,path={},reconnect=1", socket.display()));
        qemu.args(["-device", "vhost-user-blk-pci,chardev=disk,num-queues=2", "-serial", "stdio"]);
        qemu.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initrd"));
        let words =
            "console=ttyS0 quiet loglevel=3 mitigations=off nokaslr no_timer_check random.trust_cpu=on";
        qemu.args(["-append", &format!("{words} panic=-1 disk=/dev/vda rounds={rounds}")]);
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut qemu = qemu.spawn().unwrap();
        let (tell, console) = channel();
        let output = BufReader::new(qemu.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.split(b'\n') {
                let line = String::from_utf8_lossy(&line.unwrap_or_default()).trim().to_owned();
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let input = qemu.stdin.take().unwrap();
        Guest { qemu, input, console, said: String::new() }
    }

    /// Waits for a line that begins with `@@` and `word`.
    fn wait_for(&mut self, word: &str) {
        loop {
            match self.console.recv_timeout(SILENCE) {
                Ok(line) => {
                    self.said += &format!("{line}\n");
                    if line.starts_with(&format!("@@{word}")) {
                        return;
                    }
                    assert!(!line.starts_with("@@failed"), "the guest failed:\n{}", self.said);
                }
                Err(RecvTimeoutError::Timeout) => panic!("no '@@{word}' from the guest:\n{}", self.said),
                Err(RecvTimeoutError::Disconnected) => panic!("the guest ended early:\n{}", self.said),
            }
        }
    }

    /// Answers the guest.
    fn tell(&mut self) {
        self.input.write_all(b"told\n").unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Makes kernel, initial RAM disk and root file system. `None`, with the test reported as skipped, if this
/// machine cannot.
fn image(machine: &Machine) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let into = machine.path("image");
    std::fs::create_dir(&into).unwrap();
    let mut script = Command::new(here.join("../../scripts/guest-image"));
    script.arg(&into).arg(here.join("tests/guest/virtual_machine.sh")).env("IMAGE_MB", "96");
    let made = script.output().unwrap();
    if made.status.code() == Some(CANNOT) {
        skip(String::from_utf8_lossy(&made.stderr).trim());
        return None;
    }
    assert!(made.status.success(), "{made:?}");
    Some(into)
}

#[test]
fn guest_that_boots_from_a_volume_outlives_its_daemons() {
    let machine = Machine::new();
    let Some(image) = image(&machine).filter(|_| have(&["nbdcopy"])) else { return };
    machine.create("vault", &["--policy", "cache,mode=write-back", "--size", "100MiB"]);
    let socket = machine.path("machine.sock");
    let place = socket.display().to_string();
    let serve = || machine.serve(&["vault", "--vhost-user", &place]);
    let mut daemon = serve();
    client("nbdcopy", &[&image.join("root.img").display().to_string(), &daemon.uri]);
    assert_eq!(machine.json(&["status", "vault"])["vhost_user_guest"], serde_json::Value::Null);
    // Killed twice under the writes; then replaced, as at an upgrade of the package, and ended.
    let mut ends: Vec<fn(Daemon)> = vec![Daemon::kill, Daemon::kill];
    ends.extend(vec![replace as fn(Daemon); upgrades().unwrap_or(1)]);
    ends.push(|daemon| assert_eq!(daemon.terminate().status, 0));
    let mut guest = Guest::boot(&image, &socket, ends.len());
    guest.wait_for("booted");
    let status = machine.json(&["status", "vault"]);
    assert_eq!(status["vhost_user_socket"], place.as_str());
    let process = format!("process {} (", guest.qemu.id());
    assert!(status["vhost_user_guest"].as_str().unwrap().starts_with(&process), "{status}");
    machine.refused(&["stop", "vault"], "busy", &["virtual machine", &process]);
    for end in ends {
        guest.wait_for("wrote");
        end(daemon);
        daemon = serve();
        guest.wait_for("wrote");
        guest.tell();
        guest.wait_for("round");
    }
    guest.wait_for("size 204800");
    let report = machine.json(&["resize", "vault", "112MiB"]);
    assert_eq!(report["untold_guests"], serde_json::json!([]), "{report}");
    guest.wait_for("size 229376");
    guest.wait_for("verified");
    guest.wait_for("end 0");
    assert!(guest.qemu.wait().unwrap().success());
    assert_eq!(daemon.terminate().status, 0);
    assert!(!socket.exists(), "the socket goes with the daemon");
    let checked = machine.json(&["check", "vault"]);
    assert_eq!(checked["clean"], true, "{checked}");
}

fn replace(daemon: Daemon) {
    assert_eq!(daemon.end_by(Signal::USR1).status, 0);
}

/// Without a virtual machine: the socket's mode and group, its replacement after a kill, and its users.
#[test]
fn socket_of_a_virtual_machine_is_private_unless_its_group_is_invited() {
    let machine = Machine::new();
    machine.create("vault", &[]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let socket = machine.path("machine.sock");
    let daemon = machine.serve(&["vault", "--vhost-user", "machine.sock"]);
    assert_eq!(mode(&socket), 0o600);
    machine.create("other", &[]);
    let named = ["machine.sock", "another process listens there"];
    machine.refused(&["serve", "other", "--vhost-user", "machine.sock"], "busy", &named);
    daemon.kill();
    assert!(socket.exists());
    let shared = machine.path("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o2750)).unwrap();
    // The next daemon replaces the socket of the dead one; configured by file.
    std::fs::create_dir_all(machine.path("config")).unwrap();
    let text = format!("[serve]\nvhost-user = \"{}/vm.sock,group\"\n", shared.display());
    std::fs::write(machine.path("config/vault.toml"), text).unwrap();
    let daemon = machine.serve(&["vault", "--vhost-user", "machine.sock"]);
    assert_eq!(daemon.terminate().status, 0);
    assert!(!socket.exists());
    let daemon = machine.serve(&["vault"]);
    let socket = shared.join("vm.sock");
    assert_eq!(mode(&socket), 0o660);
    let group = |path: &Path| std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(path).unwrap());
    assert_eq!(group(&socket), group(&shared));
    let guest = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let process = format!("process {} (", std::process::id());
    machine.refused(&["stop", "vault"], "busy", &["virtual machine", &process]);
    drop(guest);
    machine.ok(&["stop", "vault"]);
    drop(daemon);
    std::fs::write(machine.path("file"), "not a socket").unwrap();
    machine.refused(&["serve", "vault", "--vhost-user", "file"], "io", &["choose another path"]);
    assert_eq!(std::fs::read_to_string(machine.path("file")).unwrap(), "not a socket");
}
