//! A database on a volume that loses its SSD under load: transactions acknowledged before the bound of the
//! lag are on the disk, and the database starts.
//!
//! PostgreSQL runs on ext4 on an attached volume of `pass,order=epoch`, with the timing of an SSD and a disk.
//! pgbench inserts rising numbers. Then the daemon is killed, the SSD is deleted, and the volume is recovered
//! from the disk. `make postgres SECONDS=n` sets the length of the load.

use crate::machine::{Machine, client, have, have_block_devices, number, run, skip};
use crate::replace::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const CLIENTS: usize = 4;
/// Highest age of acknowledged writes that the disk lacks.
const BOUND: Duration = Duration::from_secs(2);
/// Time from the end of a device's write to pgbench's log entry.
const NOTICED: Duration = Duration::from_millis(500);

const SCRIPT: &str = "\\set number :number + 1
INSERT INTO ledger (client, number) VALUES (:client_id, :number);
";

/// PostgreSQL's programs, at Debian's path, and the user of the server.
struct Postgres {
    programmes: PathBuf,
    user: (u32, u32),
    /// Directory of the server's socket and of pgbench's files.
    socket: PathBuf,
    data: PathBuf,
}

impl Postgres {
    fn find(machine: &Machine) -> Option<Postgres> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let programmes =
            versions.map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists());
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
        let user = passwd.lines().find_map(|line| line.strip_prefix("postgres:"));
        let numbers = user.map(|line| line.split(':').skip(1).take(2).map(|id| id.parse().unwrap()));
        let ids: Vec<u32> = numbers.into_iter().flatten().collect();
        let (Some(programmes), &[uid, gid]) = (programmes, &ids[..]) else {
            skip("postgresql not installed");
            return None;
        };
        let (socket, data) = (machine.path("socket"), machine.path("mnt/data"));
        Some(Postgres { programmes, user: (uid, gid), socket, data })
    }

    /// Creates a directory owned by the server's user.
    fn own(&self, directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        chown(directory, Some(self.user.0), Some(self.user.1)).unwrap();
    }

    fn command(&self, programme: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.programmes.join(programme));
        command.args(words).uid(self.user.0).gid(self.user.1).current_dir(&self.socket);
        command.env("PGHOST", &self.socket).env("PGUSER", "postgres").stdin(Stdio::null());
        command
    }

    fn sql(&self, text: &str) -> String {
        let ended =
            run(self.command("psql", &["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", text, "postgres"]));
        assert_eq!(ended.status, 0, "{text}: {ended:?}");
        ended.stdout
    }

    /// Starts the server, and waits until the server answers.
    fn start(&self) -> Server {
        let (data, socket) = (self.data.to_str().unwrap(), self.socket.to_str().unwrap());
        let log = std::fs::File::create(self.socket.join("log")).unwrap();
        let mut command = self.command("postgres", &["-D", data, "-k", socket, "-c", "listen_addresses="]);
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).process_group(0).spawn().unwrap();
        let mut server = Server { child };
        wait_until("the database answers", || {
            let log = || std::fs::read_to_string(self.socket.join("log")).unwrap();
            assert!(server.child.try_wait().unwrap().is_none(), "the database ended: {}", log());
            run(self.command("pg_isready", &["-q"])).status == 0
        });
        server
    }
}

/// A running server; no process outlives the test.
struct Server {
    child: Child,
}

impl Drop for Server {
    /// Requests an immediate shutdown: the child processes end too, and the server writes nothing.
    fn drop(&mut self) {
        let _gone = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _status = self.child.wait();
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Time of each acknowledged transaction, for each client, from pgbench's logs.
fn acknowledged(directory: &Path) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); CLIENTS];
    let files = std::fs::read_dir(directory).unwrap().flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with("acknowledged.")) {
        // client, transaction, latency in µs, script, seconds, µs
        for line in std::fs::read_to_string(file.path()).unwrap().lines() {
            let words: Vec<f64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            times[words[0] as usize].push(words[4] + words[5] / 1e6);
        }
    }
    times
}

#[test]
fn postgres_commits_before_max_lag_survive_ssd_loss() {
    let seconds: u64 = std::env::var("BRAID_POSTGRES_SECONDS").map_or(6, |text| text.parse().unwrap());
    let machine = Machine::open_to_all();
    if !have_block_devices() || !have(&["mkfs.ext4", "e2fsck"]) {
        return;
    }
    let Some(postgres) = Postgres::find(&machine) else { return };
    let devices = [
        "--ssd",
        "fast.img,size=1GiB,model=x25-e",
        "--hdd",
        "slow.img,size=1GiB,model=barracuda-7200.12,layout=tail",
    ];
    let policy = format!("pass,order=epoch,max-lag=128MiB,max-lag-time={}s", BOUND.as_secs());
    let size = ["--size", "768MiB", "--copies", "2", "--policy", &policy];
    machine.ok(&[&["create", "vault"], &devices[..], &size[..]].concat());
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    client("mkfs.ext4", &["-q", &device]);
    std::fs::create_dir(machine.path("mnt")).unwrap();
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    postgres.own(&postgres.socket);
    postgres.own(&postgres.data);
    let initdb = run(postgres.command("initdb", &["-A", "trust", "-D", postgres.data.to_str().unwrap()]));
    assert_eq!(initdb.status, 0, "{initdb:?}");
    let server = postgres.start();
    postgres.sql("CREATE TABLE ledger (client int, number int, filler char(200) DEFAULT '')");
    client("sync", &["-f", machine.path("mnt").to_str().unwrap()]);
    wait_until("the disk is the volume", || {
        let status = machine.json(&["status", "vault"]);
        !status["epoch"].is_null() && number(&status, "deferred_bytes") < 1e6
    });

    std::fs::write(postgres.socket.join("script"), SCRIPT).unwrap();
    let (clients, time) = (CLIENTS.to_string(), "3600");
    let words = ["-n", "-f", "script", "-D", "number=0", "-c", &clients, "-T", time, "--log"];
    let mut pgbench =
        postgres.command("pgbench", &[&words[..], &["--log-prefix=acknowledged", "postgres"]].concat());
    let mut pgbench = pgbench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(seconds));
    let killed = now();
    daemon.kill();
    // pgbench ends by itself, because its sessions fail, and writes its logs.
    let _status = pgbench.wait().unwrap();
    drop(server);
    machine.ok(&["detach", "vault"]);
    std::fs::remove_file(machine.path("fast.img")).unwrap();

    machine.refused(&["serve", "vault"], "degraded", &["d0"]);
    machine.ok(&["recover", "vault"]);
    let daemon = machine.serve(&["vault"]);
    let device = machine.ok(&["attach", "vault"]).trim().to_owned();
    // The first run replays ext4's journal, as after any power cut. Then no repair must be necessary.
    let replayed = run({
        let mut e2fsck = Command::new("e2fsck");
        e2fsck.args(["-p", &device]);
        e2fsck
    });
    assert!(replayed.status <= 1, "{replayed:?}");
    client("e2fsck", &["-fn", &device]);
    machine.ok(&["attach", "vault", "--mount", "mnt"]);
    let server = postgres.start();
    let times = acknowledged(&postgres.socket);
    let last = times.iter().flatten().copied().filter(|&at| at <= killed).fold(0.0, f64::max);
    let proved = last - (BOUND + NOTICED).as_secs_f64();
    let (mut kept, mut must) = (0, 0);
    for (name, times) in times.iter().enumerate() {
        let found = postgres
            .sql(&format!("SELECT count(*), coalesce(max(number), 0) FROM ledger WHERE client = {name}"));
        let (count, highest) = found.trim().split_once('|').unwrap();
        let count: usize = count.parse().unwrap();
        assert_eq!(highest.parse::<usize>().unwrap(), count, "client {name}: a gap");
        let due = times.iter().filter(|&&at| at <= proved).count();
        assert!(count >= due, "client {name}: {count} of {due} that were acknowledged before the bound");
        (kept, must) = (kept + count, must + due);
    }
    let all: usize = times.iter().map(Vec::len).sum();
    eprintln!(
        "{all} transactions acknowledged in {seconds} s; {must} of them before the bound, {kept} there after the loss of the SSD"
    );
    assert!(must > 0, "the load was too short to show anything: {all} transactions in {seconds} s");
    drop(server);
    machine.ok(&["detach", "vault"]);
    assert_eq!(daemon.terminate().status, 0);
}
