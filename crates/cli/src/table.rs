//! Tables in text.

/// Rows of cells under a heading; numbers are aligned to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns. Columns that begin with `>` are aligned to the right.
    pub fn new(columns: &[&str]) -> Table {
        Table { rows: vec![columns.iter().map(|&column| column.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has as many cells as there are columns");
        self.rows.push(cells);
    }

    /// Returns the table as lines, each with the indent.
    pub fn render(&self, indent: &str) -> String {
        let head = &self.rows[0];
        let right: Vec<bool> = head.iter().map(|column| column.starts_with('>')).collect();
        let cell = |text: &str| text.strip_prefix('>').unwrap_or(text).to_owned();
        let width = |place: usize| self.rows.iter().map(|row| cell(&row[place]).chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|place| width(place).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (place, content) in row.iter().enumerate() {
                let (content, width) = (cell(content), widths[place]);
                line += &if right[place] {
                    format!("{content:>width$}  ")
                } else {
                    format!("{content:<width$}  ")
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_the_widest_cell() {
        let mut table = Table::new(&["device", ">used", "path"]);
        table.row(vec!["d0".into(), "1 GiB".into(), "/dev/sda".into()]);
        table.row(vec!["d1".into(), "17 B".into(), "memory".into()]);
        let expected = "  device   used  path\n  d0      1 GiB  /dev/sda\n  d1       17 B  memory\n";
        assert_eq!(table.render("  "), expected);
    }
}
