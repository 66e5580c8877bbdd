//! The terminal of `braid status --watch`: keys, and the page each second. Reports come from a thread, so
//! that keys work while a daemon does not answer.

use super::page::WatchPage;
use super::{INTERVAL, Seen, Watched};
use braid_control::{Error, ErrorKind, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

/// Longest time until a signal or a report is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shows the page until the user ends it, or a report fails.
pub(super) fn show(mut watched: Watched) -> Result<u8> {
    let (sender, reports) = channel();
    let (stop, stopped) = channel::<()>();
    std::thread::spawn(move || {
        loop {
            if sender.send(watched.look()).is_err() {
                break;
            }
            // The page has gone if this is not a time-out.
            if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
    });
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        let registered = signal_hook::flag::register(signal, ended.clone());
        registered.map_err(|error| Error::new(ErrorKind::Io, format!("cannot wait for signals: {error}")))?;
    }
    let mut terminal = ratatui::try_init()
        .map_err(|error| Error::new(ErrorKind::Io, format!("the terminal shows no page: {error}")))?;
    let shown = run(&mut terminal, &reports, &ended);
    ratatui::restore();
    drop(stop);
    shown.map(|()| 0)
}

fn run(
    terminal: &mut ratatui::DefaultTerminal,
    reports: &Receiver<Result<Seen>>,
    ended: &AtomicBool,
) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(ErrorKind::Io, format!("terminal: {error}"));
    let mut page = WatchPage::default();
    while !ended.load(Ordering::Relaxed) {
        loop {
            match reports.try_recv() {
                Ok(seen) => page.take(seen?),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        terminal.draw(|frame| page.draw(frame)).map_err(failed)?;
        if event::poll(PATIENCE).map_err(failed)?
            && let Event::Key(key) = event::read().map_err(failed)?
            && key.kind == KeyEventKind::Press
        {
            let by = match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Up => -1,
                KeyCode::Down => 1,
                KeyCode::PageUp => -10,
                KeyCode::PageDown => 10,
                _ => 0,
            };
            page.from = page.from.saturating_add_signed(by).min(page.lines().saturating_sub(1));
        }
    }
    Ok(())
}
