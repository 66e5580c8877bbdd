//! The page of `braid status --watch`: curves of the last minutes above the report.

use super::Rates;
use crate::status::time;
use braid_base::Bytes;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};
use std::collections::VecDeque;

/// Points of a curve: the widest that a terminal shows, a second each.
const POINTS: usize = 512;
/// Most curves of devices. Further devices stand in the report alone.
const MOST_DEVICES: usize = 12;

/// The report that is shown, and the curves.
#[derive(Default)]
pub(super) struct WatchPage {
    text: String,
    curves: Vec<RateCurve>,
    /// First line of the report that is shown.
    from: usize,
}

/// Values of one second each, the latest last.
struct RateCurve {
    name: String,
    unit: Unit,
    points: VecDeque<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    BytesPerSecond,
    Nanoseconds,
}

impl Unit {
    fn shown(self, value: u64) -> String {
        match self {
            Unit::BytesPerSecond => format!("{}/s", Bytes(value)),
            Unit::Nanoseconds => time(value),
        }
    }
}

impl WatchPage {
    /// Takes the text of a report. With rates, adds a point to each curve; `devices` are the names of the
    /// devices. The curve of a device that left goes, too.
    pub fn take(&mut self, text: String, rates: Option<&Rates>, devices: &[String]) {
        self.text = text;
        let Some(Rates { devices: of_each, operations }) = rates else { return };
        let of_guests = operations.iter().filter(|(name, _)| *name != "flush").flat_map(|(name, rate)| {
            [
                (format!("{name}s"), Unit::BytesPerSecond, rate.bytes_per_second as u64),
                (format!("{name} latency"), Unit::Nanoseconds, rate.took_ns_mean),
            ]
        });
        let of_devices = devices.iter().zip(of_each).take(MOST_DEVICES);
        let of_devices = of_devices.map(|(name, rate)| (name.clone(), Unit::Nanoseconds, rate.took_ns_mean));
        let mut before = std::mem::take(&mut self.curves);
        for (name, unit, value) in of_guests.chain(of_devices) {
            let known = before.iter().position(|curve| curve.name == name);
            let mut curve = match known {
                Some(place) => before.swap_remove(place),
                None => RateCurve { name, unit, points: VecDeque::new() },
            };
            if curve.points.len() == POINTS {
                curve.points.pop_front();
            }
            curve.points.push_back(value);
            self.curves.push(curve);
        }
    }

    /// Scrolls the report by some lines; [`WatchPage::draw`] keeps its last line in sight.
    pub fn scroll(&mut self, lines: isize) {
        self.from = self.from.saturating_add_signed(lines);
    }

    pub fn draw(&mut self, frame: &mut Frame) {
        // At least half of the page is the report's.
        let room = frame.area().height.saturating_sub(1) / 2;
        let shown = self.curves.len().min(usize::from(room.saturating_sub(1)));
        let above = if shown == 0 { 0 } else { shown as u16 + 1 };
        let areas = [Constraint::Length(above), Constraint::Min(0), Constraint::Length(1)];
        let [curves, report, keys] = Layout::vertical(areas).areas(frame.area());
        for (row, curve) in curves.rows().zip(self.curves.iter().take(shown)) {
            curve.draw(frame, row);
        }
        let lines: Vec<Line> = wrapped(&self.text, usize::from(report.width)).collect();
        self.from = self.from.min(lines.len().saturating_sub(1));
        frame.render_widget(Paragraph::new(lines[self.from.min(lines.len())..].to_vec()), report);
        let help =
            "q: end   arrows, PgUp, PgDn: scroll   curves: a second a column, mean response times of devices";
        frame.render_widget(Paragraph::new(help).style(Style::new().add_modifier(Modifier::DIM)), keys);
    }
}

impl RateCurve {
    /// Draws name, curve, and the latest and the highest value.
    fn draw(&self, frame: &mut Frame, row: Rect) {
        let areas = [Constraint::Length(14), Constraint::Min(10), Constraint::Length(34)];
        let [name, curve, values] = Layout::horizontal(areas).areas(row);
        frame.render_widget(Paragraph::new(self.name.as_str()), name);
        let shown = self.points.len().min(usize::from(curve.width));
        let points: Vec<u64> = self.points.iter().skip(self.points.len() - shown).copied().collect();
        let highest = points.iter().copied().max().unwrap_or_default();
        let color = if self.unit == Unit::BytesPerSecond { Color::Cyan } else { Color::Yellow };
        let drawn = Sparkline::default().data(points).max(highest.max(1)).style(Style::new().fg(color));
        frame.render_widget(drawn, curve);
        let latest = self.points.back().copied().unwrap_or_default();
        let text = format!(" {}, most {}", self.unit.shown(latest), self.unit.shown(highest));
        frame.render_widget(Paragraph::new(text), values);
    }
}

/// Lines of a text, each in its colour, cut at `width` characters: the end of a line holds the remedy.
fn wrapped(text: &str, width: usize) -> impl Iterator<Item = Line<'_>> {
    text.lines().flat_map(move |line| {
        let style = style_of(line);
        let mut rest = Some(line);
        std::iter::from_fn(move || {
            let line = rest?;
            let end = line.char_indices().nth(width.max(1)).map(|(end, _)| end);
            rest = end.map(|end| &line[end..]);
            Some(Line::styled(&line[..end.unwrap_or(line.len())], style))
        })
    })
}

/// Colour of a line of the report: red if data is lost or cannot be flushed, yellow for a lesser finding.
fn style_of(line: &str) -> Style {
    match line.split_whitespace().next().unwrap_or_default() {
        "FAILED:" | "LOST:" | "DEAD:" => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        "DEGRADED:" | "NOTE:" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::samples::{device, status};
    use braid_control::VolumeReport;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    /// The page after some seconds of a volume with two devices.
    fn page(seconds: u64) -> WatchPage {
        let mut page = WatchPage::default();
        let mut before = None;
        for second in 0..=seconds {
            let mut ssd = device("d0", "ssd", json!({}));
            // The n-th second has n MiB of reads in n requests.
            let total: u64 = (0..=second).sum();
            ssd["guest_read_requests"] = json!(total);
            ssd["response_ns_mean"] = json!(200_000);
            let operation = json!({
                "requests": total, "bytes": total << 20, "latency_ns_mean": 250_000, "latency_ns_p50": 0,
                "latency_ns_p95": 0, "latency_ns_p99": 0, "latency_ns_p999": 0, "latency_ns_max": 0,
            });
            let mut report = status(
                "equi",
                &[ssd, device("d1", "hdd", json!({}))],
                json!({ "uptime_seconds": second as f64, "behind_bytes": 1 << 20 }),
            );
            report.guests.read = serde_json::from_value(operation).unwrap();
            let report = VolumeReport::Served(Box::new(report));
            let rates = Rates::between(before.as_ref(), &report);
            let text = "volume 'vault'\n  DEGRADED: a copy is behind: braid status vault\n".repeat(20);
            page.take(text, Some(&rates), &["d0 ssd".to_owned(), "d1 hdd".to_owned()]);
            before = Some(report);
        }
        page
    }

    fn drawn(page: &mut WatchPage, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| page.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn curves_stand_above_the_report() {
        let lines = drawn(&mut page(8), 80, 24);
        assert_eq!(lines[0], "reads          ▁▂▃▄▅▆▇█                        8 MiB/s, most 8 MiB/s");
        assert_eq!(lines[1], "read latency   ████████                        250 µs, most 250 µs");
        assert_eq!(lines[4], "d0 ssd         ████████                        200 µs, most 200 µs");
        assert!(lines[5].starts_with("d1 hdd") && lines[6].is_empty(), "{lines:#?}");
        assert_eq!(lines[7], "volume 'vault'");
        assert_eq!(lines[8], "  DEGRADED: a copy is behind: braid status vault");
        assert!(lines[23].starts_with("q: end"), "{lines:#?}");
    }

    #[test]
    fn report_keeps_half_of_a_small_terminal() {
        let lines = drawn(&mut page(3), 60, 9);
        assert!(lines[0].starts_with("reads") && lines[2].starts_with("writes"), "{lines:#?}");
        assert!(lines[4].starts_with("volume 'vault'"), "{lines:#?}");
        // No room for anything is no reason to panic.
        for (width, height) in [(1, 1), (0, 0), (5, 3), (200, 1)] {
            drawn(&mut page(2), width, height);
        }
    }

    #[test]
    fn report_is_wrapped_and_scrolls_to_its_last_line() {
        let mut page = page(POINTS as u64 + 20);
        assert!(page.curves.iter().all(|curve| curve.points.len() == POINTS));
        page.scroll(1);
        assert_eq!(drawn(&mut page, 80, 24)[7], "  DEGRADED: a copy is behind: braid status vault");
        let narrow = drawn(&mut page, 30, 24);
        assert_eq!(narrow[7..9], ["  DEGRADED: a copy is behind:", "braid status vault"]);
        page.scroll(1_000_000);
        assert!(drawn(&mut page, 80, 24)[7].starts_with("  DEGRADED"));
        page.scroll(-1);
        assert_eq!(drawn(&mut page, 80, 24)[7], "volume 'vault'");
        page.scroll(isize::MIN);
        page.take("short\n".to_owned(), None, &[]);
        page.scroll(50);
        assert_eq!(drawn(&mut page, 80, 24)[7], "short");
    }
}
