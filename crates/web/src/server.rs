//! Connections: accepted, bounded, and closed if a client is slow.

use crate::access::Access;
use crate::api::router;
use crate::daemons::Daemons;
use crate::survey::{MOST_CHANGES, MOST_LOOKS, MOST_VOLUMES};
use braid_control::{Error, ErrorKind, Result};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// Most connections at a time; further connections are closed at once.
const MOST_CONNECTIONS: usize = 64;
/// Threads for questions to daemons: one for each volume, each change, each look, the list of names and an
/// advice.
const MOST_THREADS: usize = MOST_VOLUMES + MOST_CHANGES + MOST_LOOKS + 2;
/// Longest time for the head of a request, and between two requests.
const HEAD_LIMIT: Duration = Duration::from_secs(20);
/// Longest time in which a client takes nothing of an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Longest head of a request.
const LONGEST_HEAD: usize = 16 << 10;
/// Delay after a connection could not be accepted, as without free descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves the dashboard on one thread until SIGTERM, SIGINT or SIGHUP. Calls `ready` with the address once
/// connections are accepted. `program` is the program `braid`, which gives advice.
///
/// # Errors
/// `Busy` if the address is in use, `Io` if the machine refuses the address or a signal.
pub fn serve(
    daemons: Arc<dyn Daemons>,
    listen: SocketAddr,
    access: Access,
    program: Option<PathBuf>,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MOST_THREADS)
        .build()
        .map_err(|error| Error::io("starting the dashboard", &error))?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::AddrInUse => ErrorKind::Busy,
                _ => ErrorKind::Io,
            };
            Error::new(kind, format!("--listen {listen}: {error}: choose another address or port"))
        })?;
        let address = listener.local_addr().map_err(|error| Error::io("the dashboard's address", &error))?;
        let end = ended()?;
        ready(address);
        tokio::select! {
            () = accept(listener, router(daemons, access, program)) => {}
            () = end => {}
        }
        Ok(())
    });
    // A thread that waits for a silent daemon ends with the process.
    runtime.shutdown_background();
    served
}

/// Returns a future that ends with a signal to stop.
fn ended() -> Result<impl Future<Output = ()>> {
    let install = |kind| signal(kind).map_err(|error| Error::io("waiting for signals", &error));
    let mut signals = [
        install(SignalKind::terminate())?,
        install(SignalKind::interrupt())?,
        install(SignalKind::hangup())?,
    ];
    Ok(async move {
        let [terminate, interrupt, hangup] = &mut signals;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

async fn accept(listener: TcpListener, router: axum::Router) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            converse(stream, router).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, router: axum::Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_LIMIT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_header_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    // An error means a disconnected or slow client.
    let _ended = connection.await;
}
