//! The server's own verbs.

use crate::file_export::FileExport;
use crate::machine::{Machine, Setup};
use braid_base::{MIB, Nanos};
use braid_fuse::Server;
use braid_runtime::{Arena, Runtime};
use braid_uring::Ring;
use std::fs::File;
use std::sync::mpsc;

#[test]
fn server_does_not_stop_while_the_file_is_open() {
    // A machine for its directory; the server under test runs beside its daemon, on a thread of this process.
    let Some(machine) = Machine::start(Setup::of(MIB), &[]) else { return };
    let (directory, store) = (machine.path("beside"), machine.path("another store"));
    let (opened, wait_for_opened) = mpsc::channel::<File>();
    let (ready, wait_for_ready) = mpsc::channel();
    let served = directory.clone();
    let server = std::thread::spawn(move || {
        let arena = Arena::new(MIB * 4);
        let ring = Ring::new(64, &arena).unwrap();
        let export = FileExport::open(&ring, &store, MIB, 1);
        ring.block_on(async {
            let server = Server::start(&ring, export, &arena, &served, "beside", 4).await.unwrap();
            ready.send(server.file().to_owned()).unwrap();
            let file = loop {
                match wait_for_opened.try_recv() {
                    Ok(file) => break file,
                    Err(_) => ring.sleep(Nanos::from_millis(1)).await,
                }
            };
            assert_eq!(server.stop().await.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
            let closing = std::thread::spawn(move || drop(file));
            while !closing.is_finished() {
                ring.sleep(Nanos::from_millis(1)).await;
            }
            server.stop().await.unwrap();
        });
        ring.clear();
    });
    opened.send(File::open(wait_for_ready.recv().unwrap()).unwrap()).unwrap();
    server.join().unwrap();
    assert!(!directory.join("volume").exists());
}

#[test]
fn second_daemon_on_same_mount_is_refused() {
    let Some(machine) = Machine::start(Setup::of(MIB), &[]) else { return };
    let arena = Arena::new(MIB * 4);
    let ring = Ring::new(64, &arena).unwrap();
    let export = FileExport::open(&ring, &machine.path("another store"), MIB, 1);
    let refused = ring.block_on(Server::start(&ring, export, &arena, &machine.served(), "second", 4));
    let refused = refused.err().unwrap();
    assert!(refused.to_string().contains(&machine.served().display().to_string()), "{refused}");
}
