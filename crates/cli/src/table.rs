//! Aligned columns. Every cell is escaped here, so no caller can forget it.

use crate::terminal::plain;

/// Longer cells end in an ellipsis; `--json` has them whole.
const WIDEST: usize = 40;

fn cell(text: &str) -> String {
    let text = plain(text);
    if text.is_empty() {
        return "-".into();
    }
    match text.char_indices().nth(WIDEST) {
        Some(_) => text.chars().take(WIDEST - 1).chain(['…']).collect(),
        None => text,
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    let joined = padded.collect::<Vec<_>>().join("  ");
    format!("{}\n", joined.trim_end())
}

/// A heading and rows.
pub(crate) fn render<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows.iter().map(|row| std::array::from_fn(|i| cell(&row[i]))).collect();
    let heading = heading.map(str::to_owned);
    let width = |i: usize| rows.iter().chain([&heading]).map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    std::iter::once(&heading).chain(&rows).map(|row| line(row, &widths)).collect()
}

/// Names and values, one a line; values are shown whole.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {}\n", plain(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_are_escaped() {
        let rows = [
            ["3f2a11bc".to_owned(), "running".into(), "x\x1b[31m".into()],
            ["00112233".to_owned(), String::new(), "l".repeat(60)],
        ];
        insta::assert_snapshot!(render(["ID", "STATUS", "LABELS"], &rows), @r"
        ID        STATUS   LABELS
        3f2a11bc  running  x\u{1b}[31m
        00112233  -        lllllllllllllllllllllllllllllllllllllll…
        ");
        insta::assert_snapshot!(fields(&[("id", "1".into()), ("status", "a\nb".into())]), @r"
        id      1
        status  a\nb
        ");
    }
}
