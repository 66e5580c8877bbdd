//! The terminal of `braid status --watch`: keys, and the page each second. Reports come from a thread, so
//! that keys work while a daemon does not answer. Signals have a thread, too: a read of a terminal that has
//! gone does not return.

use super::page::WatchPage;
use super::{INTERVAL, Report, Seen, Watched};
use braid_control::{Error, ErrorKind, Result, VolumeReport};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// Longest time until a report is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shows the page until the user ends it, a signal comes, or a report fails.
pub(super) fn show(mut watched: Watched) -> Result<u8> {
    let failed =
        |error: std::io::Error| Error::new(ErrorKind::Io, format!("the terminal shows no page: {error}"));
    let state = watched.state.clone();
    let (sender, reports) = channel();
    std::thread::spawn(move || {
        // A report that cannot be sent ends the thread: the page has ended.
        while sender.send(watched.look()).is_ok() {
            std::thread::sleep(INTERVAL);
        }
    });
    end_by_signals().map_err(failed)?;
    let shown = ratatui::try_init().and_then(|mut terminal| {
        let text = |seen: &Seen| seen.report.text(&state, seen.rates.as_ref());
        run(&mut terminal, &reports, &text)
    });
    // The terminal may have gone.
    let _ = ratatui::try_restore();
    shown.map_err(failed)?.map(|()| 0)
}

/// Has a signal restore the terminal, and then end the process as the signal does.
fn end_by_signals() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    std::thread::spawn(move || {
        for signal in &mut signals {
            if signal != SIGHUP {
                let _ = ratatui::try_restore();
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Names of the devices, for their curves.
fn devices(report: &Report) -> Vec<String> {
    match report {
        Report::One(_, volume) => match &**volume {
            VolumeReport::Served(status) => {
                status.devices.iter().map(|device| format!("{} {}", device.device, device.class)).collect()
            }
            VolumeReport::Resting(_) | VolumeReport::Silent(_) => Vec::new(),
        },
        Report::All(_) => Vec::new(),
    }
}

/// Runs the page. The outer error is the terminal's, the inner a report's.
fn run(
    terminal: &mut ratatui::DefaultTerminal,
    reports: &Receiver<Result<Seen>>,
    text: &impl Fn(&Seen) -> String,
) -> std::io::Result<Result<()>> {
    let mut page = WatchPage::default();
    loop {
        match reports.try_recv() {
            Ok(Ok(seen)) => {
                page.take(text(&seen), seen.rates.as_ref(), &devices(&seen.report));
                if matches!(seen.report, Report::All(_)) {
                    // Messages about volumes that cannot be read go to standard error.
                    terminal.clear()?;
                }
            }
            Ok(Err(error)) => return Ok(Err(error)),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Ok(Err(Error::new(ErrorKind::Io, "the reports have ended")));
            }
        }
        terminal.draw(|frame| page.draw(frame))?;
        if event::poll(PATIENCE)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(Ok(())),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(Ok(())),
                KeyCode::Up => page.scroll(-1),
                KeyCode::Down => page.scroll(1),
                KeyCode::PageUp => page.scroll(-10),
                KeyCode::PageDown => page.scroll(10),
                _ => {}
            }
        }
    }
}
