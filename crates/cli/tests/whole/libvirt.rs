//! The domain of docs/guide/virtual-machines.md: libvirt validates the domain, and starts the virtual machine
//! by its embedded driver, without a daemon of libvirt. The daemon of the volume is replaced meanwhile.

use crate::machine::{Machine, have, qemu_io_ok, skip};
use rustix::process::{Pid, Signal};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// User `nobody`: libvirt of root runs qemu as the user `libvirt-qemu`, whom only the package of libvirt's
/// daemon makes.
const NOBODY: u32 = 65534;
/// Exit status of `scripts/guest-image` if this machine cannot run the virtual machine.
const CANNOT: i32 = 77;
/// Longest wait for the guest: far more than a boot takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// The domain of the guide, completed: emulated processor, memory, kernel, console in a file.
fn domain(machine: &Machine, socket: &Path) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/virtual-machines.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, rest) = guide.split_once("```xml\n").unwrap();
    let (domain, _) = rest.split_once("```").unwrap();
    let (image, console) = (machine.path("image"), machine.path("libvirt/console"));
    let head = format!(
        "<name>braid</name><memory unit='MiB'>256</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm\
         </type><kernel>{image}/vmlinuz</kernel><initrd>{image}/initrd</initrd><cmdline>console=ttyS0 quiet \
         loglevel=3 mitigations=off no_timer_check random.trust_cpu=on panic=-1</cmdline></os><features><acpi/>\
         </features><cpu mode='maximum'/>",
        image = image.display()
    );
    let end = format!(
        "<emulator>/usr/bin/qemu-system-x86_64</emulator><serial type='file'><source path='{}'/></serial>",
        console.display()
    );
    let replaced = [
        ("<domain type='kvm'>", "<domain type='qemu'>".to_owned()),
        ("  …\n", head),
        ("<devices>", format!("<devices>{end}")),
        ("/run/braid-vm/vault.sock", socket.display().to_string()),
    ];
    replaced.iter().fold(domain.to_owned(), |domain, (from, to)| {
        assert!(domain.contains(from), "the guide's domain has no '{from}'");
        domain.replace(from, to)
    })
}

/// A program of libvirt, as a user without privileges.
fn unprivileged(machine: &Machine, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", machine.path("libvirt")).current_dir(machine.path("libvirt")).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A virtual machine of `virt-qemu-run`, which ends the machine when the program gets a signal. The program
/// waits for ever if the machine has ended by itself.
struct LibvirtGuest(Child);

impl Drop for LibvirtGuest {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Makes what the guest boots from. False, with the test reported as skipped, if this machine cannot.
fn make_image(machine: &Machine) -> bool {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir(machine.path("image")).unwrap();
    let mut script = Command::new(here.join("../../scripts/guest-image"));
    let made = script.arg(machine.path("image")).arg(here.join("tests/guest/libvirt.sh")).output().unwrap();
    if made.status.code() == Some(CANNOT) {
        return skip(String::from_utf8_lossy(&made.stderr).trim());
    }
    assert!(made.status.success(), "{made:?}");
    true
}

/// Makes a directory of the user of libvirt.
fn make_directory(path: &Path, mode: u32) {
    std::fs::create_dir(path).unwrap();
    give(path);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives a file to the user of libvirt.
fn give(path: &Path) {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

#[test]
fn libvirt_runs_the_domain_of_the_guide() {
    let machine = Machine::open_to_all();
    if !have(&["virsh", "virt-qemu-run", "qemu-system-x86_64", "qemu-io"]) || !make_image(&machine) {
        return;
    }
    // As the guide says: the directory gives the socket the group of qemu.
    let (libvirt, shared) = (machine.path("libvirt"), machine.path("shared"));
    make_directory(&libvirt, 0o755);
    make_directory(&shared, 0o2750);
    make_directory(&libvirt.join("etc"), 0o755);
    // The console goes to the file without a daemon of libvirt between.
    std::fs::write(libvirt.join("etc/qemu.conf"), "stdio_handler = \"file\"\n").unwrap();
    let socket = shared.join("vault.sock");
    std::fs::write(machine.path("domain.xml"), domain(&machine, &socket)).unwrap();
    let file = machine.path("domain.xml").display().to_string();

    let connection = format!("qemu:///embed?root={}", libvirt.join("defined").display());
    let define = format!("define --validate {file}");
    let valid = unprivileged(&machine, "virsh").args(["-q", "-c", &connection, &define]).output().unwrap();
    assert!(valid.status.success(), "{valid:?}");

    machine.create("vault", &[]);
    let place = format!("{},group", socket.display());
    let serve = || machine.serve(&["vault", "--vhost-user", &place]);
    let mut daemon = serve();
    let log = std::fs::File::create(machine.path("libvirt.log")).unwrap();
    let mut run = unprivileged(&machine, "virt-qemu-run");
    run.arg(format!("--root={}", libvirt.display())).arg(&file);
    let mut run = LibvirtGuest(run.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    let started = Instant::now();
    let mut wait_for = |line: &str| loop {
        let console = std::fs::read_to_string(libvirt.join("console")).unwrap_or_default();
        if console.lines().any(|said| said.trim() == line) {
            return;
        }
        let ended = run.0.try_wait().unwrap().is_some() && !console.contains("@@end");
        if ended || started.elapsed() > PATIENCE {
            let log = std::fs::read_to_string(machine.path("libvirt.log")).unwrap_or_default();
            panic!("no '{line}' from the guest:\n{console}\n{log}");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    wait_for("@@wrote 3");
    assert_eq!(daemon.end_by(Signal::USR1).status, 0);
    daemon = serve();
    wait_for("@@wrote 63");
    wait_for("@@end 0");
    drop(run);
    qemu_io_ok(&daemon.uri, &["read -P 65 0 4M"]);
    assert_eq!(daemon.terminate().status, 0);
}
