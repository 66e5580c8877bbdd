//! Reports of experiments: a page for a browser, for paper and for a phone (`page.rs`, with charts drawn by
//! uPlot); a document in Markdown (`markdown.rs`); plots in files (`plot.rs`).
//!
//! The page is self-contained: no script, font or picture is loaded from elsewhere. Its texts are from the
//! declarations.

mod charts;
mod looks;
mod markdown;
mod page;
mod plain;
mod plot;
mod tally;

pub use markdown::{markdown, rows};
pub use page::page;
pub(crate) use plain::{STYLE, escaped};
pub(crate) use plot::{COLOURS, Drawn, GRID, INK};

use crate::study::Study;
use looks::Looks;

/// A plot: file name and document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Name of the file, as in `wardrop-fig6-throughput.svg`.
    pub file_name: String,
    /// The SVG document.
    pub svg: String,
}

/// Plots of studies, one for each table. A system looks the same in all plots.
pub fn figures(studies: &[Study]) -> Vec<Figure> {
    let looks = Looks::of(studies);
    let words = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let of_study = |study: &Study| -> Vec<Figure> {
        let figure = |table: &crate::study::Table| Figure {
            file_name: format!("{}-{}.svg", words(&study.id), words(&table.measure)),
            svg: plot::svg(study, table, &looks),
        };
        study.tables.iter().map(figure).collect()
    };
    studies.iter().flat_map(of_study).collect()
}

#[cfg(test)]
mod tests;
