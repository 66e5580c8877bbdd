//! Cost of `braid web` with ten pages open: 4 KiB random reads by fio over NBD from a volume on memory
//! devices, in turns with and without the dashboard. Reports requests per second and the daemon's processor
//! time per request.
//!
//! `cargo bench -p braid --bench dashboard [-- TURNS [MILLISECONDS]]`; needs fio. A turn takes MILLISECONDS.
//! Each page holds the stream of events, a report each second, and fetches the map and the last hour as often
//! as the page in a browser. A browser's own processor time is left out.

mod turns;

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use turns::{Bench, Sample, asked, braid};

const PAGES: usize = 10;
/// Time between two requests for the map, and for the last hour, as in `crates/web/page/app.js`.
const MAP: Duration = Duration::from_secs(5);
const PAST: Duration = Duration::from_secs(10);

fn main() {
    let Some((turns, length)) = asked(20, 3000) else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut bench = Bench::start(directory.path().to_owned(), length);
    println!("{turns} turns of {length:?} with and without {PAGES} pages, 4 KiB random reads over 256 MiB");
    bench.compare(watched, "the dashboard", turns);
}

/// Runs a turn while ten pages are open.
fn watched(bench: &mut Bench) -> Sample {
    let mut command = braid(&bench.directory, &["web", "--listen", "127.0.0.1:0", "--json"]);
    let mut web = command.stdout(Stdio::piped()).spawn().expect("the dashboard starts");
    let address = address(&mut web);
    let pages: Vec<Page> = (0..PAGES).map(|_| Page::open(&address)).collect();
    let sample = bench.turn(Some(web.id()));
    let streams: Vec<JoinHandle<()>> = pages.into_iter().map(Page::close).collect();
    web.kill().and_then(|()| web.wait()).expect("the dashboard ends");
    streams.into_iter().for_each(|stream| stream.join().expect("a stream ends"));
    sample
}

/// Returns the address of the dashboard, `host:port`, once it is ready.
fn address(web: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(web.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("the dashboard says where");
    let said: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = said["url"].as_str().expect("an address");
    url.trim_start_matches("http://").split('/').next().expect("a host").to_owned()
}

/// A page that a browser would show.
struct Page {
    /// Reads the events until the dashboard ends.
    stream: JoinHandle<()>,
    fetches: JoinHandle<()>,
    is_open: Sender<()>,
}

impl Page {
    /// Returns once the first report has come.
    fn open(address: &str) -> Page {
        let stream = send(address, "/api/events?volume=temporary").expect("the dashboard listens");
        let (mut events, mut line) = (BufReader::new(stream), String::new());
        while !line.starts_with("data:") {
            line.clear();
            assert!(events.read_line(&mut line).expect("the dashboard sends") > 0, "no report came");
        }
        let (is_open, closed) = channel();
        let address = address.to_owned();
        Page {
            stream: std::thread::spawn(move || {
                let _ended = io::copy(&mut events, &mut io::sink());
            }),
            fetches: std::thread::spawn(move || fetch(&address, &closed)),
            is_open,
        }
    }

    fn close(self) -> JoinHandle<()> {
        drop(self.is_open);
        self.fetches.join().expect("all fetches succeed");
        self.stream
    }
}

/// Fetches map and history at their intervals until the page is closed.
fn fetch(address: &str, closed: &Receiver<()>) {
    let start = Instant::now();
    let mut due = [("map", MAP, start), ("history?range=hour", PAST, start)];
    loop {
        for (path, every, at) in due.iter_mut().filter(|(_, _, at)| *at <= Instant::now()) {
            *at += *every;
            let answer =
                send(address, &format!("/api/volumes/temporary/{path}")).and_then(io::read_to_string);
            let is_whole = answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
            assert!(is_whole, "{path}: {answer:?}");
        }
        let next = due.iter().map(|(_, _, at)| *at).min().unwrap_or(start);
        if closed.recv_timeout(next.saturating_duration_since(Instant::now()))
            != Err(RecvTimeoutError::Timeout)
        {
            return;
        }
    }
}

fn send(address: &str, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    Ok(stream)
}
