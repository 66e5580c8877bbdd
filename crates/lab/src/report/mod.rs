//! What came out of experiments, as a page for a browser, for paper and for a phone.
//!
//! The page needs nothing but itself: no script, no font, no picture from elsewhere. Its texts are those of the
//! declarations.

mod page;
mod plot;

pub use page::page;
pub(crate) use page::{STYLE, escaped};
pub(crate) use plot::{COLOURS, GRID, INK};

use crate::study::Study;

/// A plot: what to call its file, and the document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// As in `wardrop-fig6-throughput.svg`.
    pub file_name: String,
    /// The SVG document.
    pub svg: String,
}

/// The plots of a study, one for each of its tables.
pub fn figures(study: &Study) -> Vec<Figure> {
    let words = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let figure = |table: &crate::study::Table| Figure {
        file_name: format!("{}-{}.svg", words(&study.id), words(&table.measure)),
        svg: plot::svg(study, table),
    };
    study.tables.iter().map(figure).collect()
}

#[cfg(test)]
mod tests;
