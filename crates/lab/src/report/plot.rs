//! Plots of a study as SVG files: a curve for each series, distinguished by colour, dash and mark
//! (`looks.rs`), with confidence intervals, and the paper's own values if given.

use super::charts::by_factors;
use super::looks::{DASHES, LIGHT, Look, Looks};
use crate::study::{Study, Table};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::{Drawable, PointCollection};
use plotters::prelude::*;
use plotters_backend::{BackendCoord, DrawingErrorKind};

/// Colours of the corpus's curves: dark enough on white, bright enough on black, and mostly distinguishable
/// with colour blindness.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 145, 105),
    RGBColor(190, 105, 160),
    RGBColor(160, 120, 0),
    RGBColor(110, 110, 110),
    RGBColor(70, 150, 200),
    RGBColor(150, 60, 60),
];
/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(0, 0, 0);
/// Lines of the grid.
pub(crate) const GRID: RGBColor = RGBColor(204, 204, 204);
/// Size of a plot in pixels; it scales.
const SIZE: (u32, u32) = (720, 400);
/// Height of a line of names below the plot, with two names each.
const LINE: i32 = 22;
/// Radius of a mark.
const MARK: i32 = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type PlotContext<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a measure of a study: a whole document, without a background.
pub fn svg(study: &Study, table: &Table, looks: &Looks) -> String {
    let mut text = String::new();
    let names = study.series.len().div_ceil(2) + usize::from(!table.paper_values.is_empty());
    let size = (SIZE.0, SIZE.1 + names as u32 * LINE as u32 + 8);
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let (plot, legend) = area.split_vertically(SIZE.1);
    curves(&plot, study, table, looks)
        .and_then(|()| legend_below(&legend, study, table, looks))
        .and_then(|()| area.present())
        .expect("nothing can fail when a string is drawn into");
    drop((area, plot, legend));
    text
}

fn curves(area: &Area, study: &Study, table: &Table, looks: &Looks) -> Drawn {
    let places: Vec<f64> = study.axis_values.iter().map(|&place| along(study, place)).collect();
    let (first, last) = (places[0], places[places.len() - 1]);
    let margin = (last - first) * 0.03;
    let most = top(table);
    let title = format!("{}: {}, {}", study.id, table.measure, table.unit);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(first - margin..last + margin, 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_desc(&study.axis)
        .y_desc(format!("{}, {}", table.measure, table.unit))
        .axis_desc_style(("sans-serif", 15).into_font().color(&INK))
        .label_style(("sans-serif", 14).into_font().color(&INK))
        .x_labels(14)
        .y_labels(8)
        .x_label_formatter(&|&x| format!("{:.0}", if by_factors(study) { x.exp2() } else { x }))
        .y_label_formatter(&|y| label(*y, most))
        .draw()?;
    for (number, row) in table.values.iter().enumerate() {
        let points = places.iter().zip(row).filter_map(|(&place, value)| Some((place, (*value)?)));
        let points: Vec<(f64, f64)> = points.collect();
        let look = looks.look(study, number);
        curve(&mut chart, look, &points)?;
        for ((x, y), half) in points.iter().zip(halves(table, number)).filter(|(_, half)| *half > 0.0) {
            let bar =
                PathElement::new([(*x, (y - half).max(0.0)), (*x, y + half)], colour(look).stroke_width(1));
            chart.draw_series(std::iter::once(bar))?;
        }
    }
    for value in &table.paper_values {
        let (x, style) =
            (along(study, value.axis_value), colour(looks.look(study, value.series_index)).stroke_width(2));
        chart.draw_series(std::iter::once(PathElement::new([(x, value.low), (x, value.high)], style)))?;
        chart.draw_series([value.low, value.high].map(|y| Cross::new((x, y), MARK + 3, style)))?;
    }
    Ok(())
}

/// Half the widths of the intervals, for existing values.
fn halves(table: &Table, series: usize) -> impl Iterator<Item = f64> + '_ {
    let row = table.values[series].iter().zip(&table.half_widths[series]);
    row.filter(|(value, _)| value.is_some()).map(|(_, half)| *half)
}

/// Coordinate of a place on the horizontal axis.
fn along(study: &Study, place: u32) -> f64 {
    if by_factors(study) { f64::from(place).log2() } else { f64::from(place) }
}

/// Upper end of the vertical axis.
fn top(table: &Table) -> f64 {
    let values = table
        .values
        .iter()
        .flatten()
        .copied()
        .flatten()
        .chain(table.paper_values.iter().map(|value| value.high))
        .chain((0..table.values.len()).flat_map(|series| {
            let there = table.values[series].iter().copied().flatten();
            there.zip(halves(table, series)).map(|(value, half)| value + half)
        }));
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-6) * 1.08;
    if table.unit == "%" { most.min(105.0) } else { most }
}

fn label(y: f64, most: f64) -> String {
    let places = match most {
        most if most >= 10.0 => 0,
        most if most >= 1.0 => 1,
        _ => 2,
    };
    format!("{y:.places$}")
}

fn curve(chart: &mut PlotContext, look: Look, points: &[(f64, f64)]) -> Drawn {
    let (style, points) = (colour(look).stroke_width(2), points.iter().copied());
    match dash(look) {
        Some((on, off)) => chart.draw_series(DashedLineSeries::new(points.clone(), on, off, style))?,
        None => chart.draw_series(LineSeries::new(points.clone(), style))?,
    };
    chart.draw_series(points.map(|at| Mark { at, look }))?;
    Ok(())
}

/// Legend of the curves, two in a line.
fn legend_below(area: &Area, study: &Study, table: &Table, looks: &Looks) -> Drawn {
    let font = ("sans-serif", 15).into_font().color(&INK);
    let place = |number: usize| {
        let (column, line) = ((number % 2) as i32, (number / 2) as i32);
        (80 + column * (SIZE.0 as i32 - 80) / 2, LINE / 2 + line * LINE)
    };
    for (number, series) in study.series.iter().enumerate() {
        let (look, (x, y)) = (looks.look(study, number), place(number));
        let style = colour(look).stroke_width(2);
        match dash(look) {
            Some((on, off)) => {
                for begin in (x..x + 30).step_by((on + off) as usize) {
                    area.draw(&PathElement::new([(begin, y), (begin + on, y)], style))?;
                }
            }
            None => area.draw(&PathElement::new([(x, y), (x + 30, y)], style))?,
        }
        area.draw(&Mark { at: (x + 15, y), look })?;
        area.draw(&Text::new(series.label.clone(), (x + 38, y - 8), font.clone()))?;
    }
    if !table.paper_values.is_empty() {
        let (x, y) = place(study.series.len().next_multiple_of(2));
        area.draw(&Cross::new((x + 15, y), MARK + 3, INK.stroke_width(2)))?;
        area.draw(&Text::new("the paper's values, coloured as its curve", (x + 38, y - 8), font))?;
    }
    Ok(())
}

fn colour(look: Look) -> RGBColor {
    let part = |from: usize| u8::from_str_radix(&LIGHT[look.colour][from..from + 2], 16);
    let [red, green, blue] = [1, 3, 5].map(|from| part(from).expect("a colour is #rrggbb"));
    RGBColor(red, green, blue)
}

/// Pixels of ink and of gap: the first pair of the dash, because plotters supports only one.
fn dash(look: Look) -> Option<(i32, i32)> {
    let [on, off, ..] = DASHES[look.dash] else { return None };
    Some((*on as i32, *off as i32))
}

/// The same marks as on the page.
struct Mark<C> {
    at: C,
    look: Look,
}

impl<'a, C> PointCollection<'a, C> for &'a Mark<C> {
    type Point = &'a C;
    type IntoIter = std::iter::Once<&'a C>;

    fn point_iter(self) -> Self::IntoIter {
        std::iter::once(&self.at)
    }
}

impl<C, B: DrawingBackend> Drawable<B> for Mark<C> {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        mut points: I,
        backend: &mut B,
        _size: (u32, u32),
    ) -> Result<(), DrawingErrorKind<B::ErrorType>> {
        let Some((x, y)) = points.next() else { return Ok(()) };
        let (colour, r) = (colour(self.look), MARK);
        let (filled, open) = (colour.filled(), colour.stroke_width(2));
        let around = |points: &[(i32, i32)]| points.iter().map(|(a, b)| (x + a, y + b)).collect::<Vec<_>>();
        let square = around(&[(-r, -r), (r, -r), (r, r), (-r, r), (-r, -r)]);
        let up = around(&[(0, -r - 1), (r + 1, r), (-r - 1, r), (0, -r - 1)]);
        let down = around(&[(0, r + 1), (r + 1, -r), (-r - 1, -r), (0, r + 1)]);
        let diamond = around(&[(0, -r - 2), (r + 2, 0), (0, r + 2), (-r - 2, 0), (0, -r - 2)]);
        let cross = around(&[(-r, -r), (r, r), (0, 0), (-r, r), (r, -r)]);
        let plus = around(&[(0, -r - 1), (0, r + 1), (0, 0), (-r - 1, 0), (r + 1, 0)]);
        match self.look.mark {
            0 => backend.draw_circle((x, y), r as u32, &filled, true),
            1 => backend.fill_polygon(square, &filled),
            2 => backend.fill_polygon(up, &filled),
            3 => backend.fill_polygon(diamond, &filled),
            4 => backend.fill_polygon(down, &filled),
            5 => backend.draw_circle((x, y), r as u32 + 1, &open, false),
            6 => backend.draw_path(square, &open),
            7 => backend.draw_path(up, &open),
            8 => backend.draw_path(cross, &open),
            _ => backend.draw_path(plus, &open),
        }
    }
}
