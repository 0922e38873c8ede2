//! Borderless tables in the style of `kubectl`, easy to read and to split with `awk`.

use comfy_table::{ContentArrangement, presets};

use super::{paint, sanitize, tone_of};

/// Headers of columns whose cells are colored.
const CONDITION_HEADERS: [&str; 3] = ["CONDITION", "HEALTH", "STATUS"];

/// Header and cell of a column.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

/// Renders a row for each item. Empty cells are dashes, so that columns can be counted.
pub(crate) fn table<T>(items: &[T], columns: &[Column<T>], headers: bool) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if headers {
        table.add_row(columns.iter().map(|(header, _)| *header));
    }
    for item in items {
        table.add_row(columns.iter().map(|(_, cell)| shown(&cell(item))));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let condition = columns.iter().find(|(header, _)| CONDITION_HEADERS.contains(header));
    let conditions = items.iter().map(|item| condition.map(|(_, cell)| cell(item)));
    let conditions = headers.then_some(None).into_iter().chain(conditions);
    let lines = table.to_string();
    lines.lines().zip(conditions).map(|(line, it)| colorize(line.trim_end(), it) + "\n").collect()
}

fn shown(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { sanitize(text) }
}

/// Colors are added after the layout, so that escape sequences don't count as width.
fn colorize(line: &str, condition: Option<String>) -> String {
    match condition {
        Some(text) if !text.is_empty() => {
            line.replacen(&sanitize(&text), &paint(tone_of(&text), &sanitize(&text)), 1)
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<(&str, &str)>; 2] =
        [("NAME", |it| it.0.to_owned()), ("STATE", |it| it.1.to_owned())];

    #[test]
    fn aligns_columns_without_trailing_spaces() {
        let rows = [("hello", "RUNNING"), ("a-longer-name", "")];
        let expected = "NAME            STATE\nhello           RUNNING\na-longer-name   -\n";
        assert_eq!(table(&rows, &COLUMNS, true), expected);
        assert_eq!(table(&rows, &COLUMNS, false).lines().count(), 2);
        assert_eq!(table(&[], &COLUMNS, false), "");
    }

    #[test]
    fn colors_do_not_affect_the_layout() {
        let columns: [Column<(&str, &str)>; 2] =
            [("HEALTH", |it| it.0.to_owned()), ("AGE", |it| it.1.to_owned())];
        assert_eq!(table(&[("DOWN", "3s")], &columns, false), "\x1b[31mDOWN\x1b[0m   3s\n");
        assert_eq!(table(&[("", "3s")], &columns, true), "HEALTH   AGE\n-        3s\n");
    }
}
