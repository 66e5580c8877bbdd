//! The plots of a study as SVG: a curve for each series, told apart by colour, dashes and marks, so that they can be told apart
//! on paper too; and the paper's own values where it gives them.
//!
//! Colours are few and fixed, so that a page can change them for a dark screen: see the style sheet of [`mod@super::page`].

use crate::study::{Study, Table};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::{DynElement, IntoDynElement};
use plotters::prelude::*;

/// Colours of curves: dark enough on white, bright enough on black, and most of them distinct without colour sense.
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
/// Dashes of the first variant of a series, and of the second: pixels of ink and of gap.
const DASHES: [(i32, i32); 2] = [(8, 5), (2, 4)];
/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(0, 0, 0);
/// Lines of the grid.
pub(crate) const GRID: RGBColor = RGBColor(204, 204, 204);
/// Size of a plot in pixels; it scales.
const SIZE: (u32, u32) = (720, 400);
/// Height of a line of names below it, with two names each.
const LINE: i32 = 22;
/// Radius of a mark.
const MARK: i32 = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A measure of a study, drawn: a whole document, without a background.
pub fn svg(study: &Study, table: &Table) -> String {
    let mut text = String::new();
    let names = study.series.len().div_ceil(2) + usize::from(!table.paper_values.is_empty());
    let size = (SIZE.0, SIZE.1 + names as u32 * LINE as u32 + 8);
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let (plot, legend) = area.split_vertically(SIZE.1);
    curves(&plot, study, table)
        .and_then(|()| legend_below(&legend, study, table))
        .and_then(|()| area.present())
        .expect("nothing can fail when a string is drawn into");
    drop((area, plot, legend));
    text
}

fn curves(area: &Area, study: &Study, table: &Table) -> Drawn {
    let places: Vec<f64> = study.axis_values.iter().map(|&place| along(study, place)).collect();
    let (first, last) = (places[0], places[places.len() - 1]);
    let margin = (last - first) * 0.03;
    let most = top(table);
    let mut chart = ChartBuilder::on(area)
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
        curve(&mut chart, Look::of(study, number), &points)?;
    }
    for value in &table.paper_values {
        let (x, style) =
            (along(study, value.axis_value), Look::of(study, value.series_index).colour.stroke_width(2));
        chart.draw_series(std::iter::once(PathElement::new([(x, value.low), (x, value.high)], style)))?;
        chart.draw_series([value.low, value.high].map(|y| Cross::new((x, y), MARK + 3, style)))?;
    }
    Ok(())
}

/// Whether the horizontal axis is logarithmic: its last place is many times the first.
fn by_factors(study: &Study) -> bool {
    let (first, last) = (study.axis_values[0], study.axis_values[study.axis_values.len() - 1]);
    first > 0 && last / first >= 64
}

/// Where a place stands on the horizontal axis.
fn along(study: &Study, place: u32) -> f64 {
    if by_factors(study) { f64::from(place).log2() } else { f64::from(place) }
}

/// Where the vertical axis ends.
fn top(table: &Table) -> f64 {
    let values = table
        .values
        .iter()
        .flatten()
        .copied()
        .flatten()
        .chain(table.paper_values.iter().map(|value| value.high));
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

fn curve(chart: &mut Chart, look: Look, points: &[(f64, f64)]) -> Drawn {
    let (style, points) = (look.colour.stroke_width(2), points.iter().copied());
    match look.dash {
        Some((on, off)) => chart.draw_series(DashedLineSeries::new(points.clone(), on, off, style))?,
        None => chart.draw_series(LineSeries::new(points.clone(), style))?,
    };
    chart.draw_series(points.map(|point| look.mark(point)))?;
    Ok(())
}

/// What the curves are, two in a line.
fn legend_below(area: &Area, study: &Study, table: &Table) -> Drawn {
    let font = ("sans-serif", 15).into_font().color(&INK);
    let place = |number: usize| {
        let (column, line) = ((number % 2) as i32, (number / 2) as i32);
        (80 + column * (SIZE.0 as i32 - 80) / 2, LINE / 2 + line * LINE)
    };
    for (number, series) in study.series.iter().enumerate() {
        let (look, (x, y)) = (Look::of(study, number), place(number));
        let style = look.colour.stroke_width(2);
        match look.dash {
            Some((on, off)) => {
                for begin in (x..x + 30).step_by((on + off) as usize) {
                    area.draw(&PathElement::new([(begin, y), (begin + on, y)], style))?;
                }
            }
            None => area.draw(&PathElement::new([(x, y), (x + 30, y)], style))?,
        }
        area.draw(&look.mark((x + 15, y)))?;
        area.draw(&Text::new(series.label.clone(), (x + 38, y - 8), font.clone()))?;
    }
    if !table.paper_values.is_empty() {
        let (x, y) = place(study.series.len().next_multiple_of(2));
        area.draw(&Cross::new((x + 15, y), MARK + 3, INK.stroke_width(2)))?;
        area.draw(&Text::new("the paper's values, coloured as its curve", (x + 38, y - 8), font))?;
    }
    Ok(())
}

/// How a curve is told from others.
#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    /// Pixels of ink and of gap.
    dash: Option<(i32, i32)>,
    shape: usize,
}

impl Look {
    /// A variant has the colour of what it is one of, and dashes.
    fn of(study: &Study, number: usize) -> Look {
        let base = |number: usize| {
            let of = study.series[number].variant_of.as_ref();
            of.and_then(|of| study.series.iter().position(|series| series.label == *of)).unwrap_or(number)
        };
        let is_base = |&number: &usize| base(number) == number;
        let rank = (0..base(number)).filter(is_base).count();
        let variants_before =
            (0..number).filter(|&other| other != base(number) && base(other) == base(number)).count();
        let dash = (base(number) != number).then(|| DASHES[variants_before % DASHES.len()]);
        Look { colour: COLOURS[rank % COLOURS.len()], dash, shape: rank }
    }

    fn mark<'b, C: Clone + 'static>(self, at: C) -> DynElement<'static, SVGBackend<'b>, C> {
        let (filled, outlined) = (self.colour.filled(), self.colour.stroke_width(2));
        match self.shape % 4 {
            0 => Circle::new(at, MARK, filled).into_dyn(),
            1 => TriangleMarker::new(at, MARK + 2, filled).into_dyn(),
            2 => Circle::new(at, MARK + 1, outlined).into_dyn(),
            _ => Cross::new(at, MARK, outlined).into_dyn(),
        }
    }
}
