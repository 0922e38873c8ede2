//! Borderless tables in the style of `kubectl`, easy to read and to split with `awk`.

use comfy_table::{Cell, ContentArrangement, Row, presets};

use super::{Tone, sanitize};

#[derive(Debug)]
pub(crate) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<(String, Option<Tone>)>>,
}

impl Table {
    pub(crate) fn new(headers: &[&'static str]) -> Self {
        Self { headers: headers.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row<I: Into<String>>(&mut self, cells: impl IntoIterator<Item = I>) {
        self.rows.push(cells.into_iter().map(|cell| (cell.into(), None)).collect());
    }

    /// Adds a row whose cell `at` is colored by its condition.
    pub(crate) fn row_colored(&mut self, cells: Vec<String>, at: usize) {
        let tone = cells.get(at).map(|cell| super::tone_of(cell));
        let paint = |(index, cell)| (cell, if index == at { tone } else { None });
        self.rows.push(cells.into_iter().enumerate().map(paint).collect());
    }

    /// Empty cells are dashes, so that columns can be counted.
    pub(crate) fn render(&self, headers: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        if headers {
            table.add_row(Row::from(self.headers.clone()));
        }
        for row in &self.rows {
            table.add_row(Row::from(row.iter().map(|(text, _)| Cell::new(shown(text)))));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 3));
        }
        let lines = table.to_string();
        let mut text = String::new();
        let tones = headers.then_some(&[][..]).into_iter();
        let tones = tones.chain(self.rows.iter().map(Vec::as_slice));
        for (line, cells) in lines.lines().zip(tones) {
            text.push_str(&colorize(line.trim_end(), cells));
            text.push('\n');
        }
        text
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { sanitize(text) }
}

/// Colors are added after the layout, so that escape sequences don't count as width.
fn colorize(line: &str, cells: &[(String, Option<Tone>)]) -> String {
    let toned = cells.iter().find_map(|(text, tone)| Some((shown(text), (*tone)?)));
    match toned {
        Some((text, tone)) if text != "-" => line.replacen(&text, &super::paint(tone, &text), 1),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns_without_trailing_spaces() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(["hello", "RUNNING"]);
        table.row(["a-longer-name", ""]);
        let expected = "NAME            STATE\nhello           RUNNING\na-longer-name   -\n";
        assert_eq!(table.render(true), expected);
        assert_eq!(table.render(false).lines().count(), 2);
        assert_eq!(Table::new(&["NAME"]).render(false), "");
    }

    #[test]
    fn colors_do_not_affect_the_layout() {
        let mut table = Table::new(&["STATE", "AGE"]);
        table.row_colored(vec!["DOWN".to_owned(), "3s".to_owned()], 0);
        assert_eq!(table.render(false), "\x1b[31mDOWN\x1b[0m   3s\n");
    }
}
