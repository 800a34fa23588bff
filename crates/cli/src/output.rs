//! Output: tables, numbers, JSON and progress bars.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, UNIX_EPOCH};

use deepram_core::Bytes;
pub(crate) use deepram_metrics::duration;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Writes to standard output. A closed pipe, as with `| head`, is not an error.
pub(crate) fn emit(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes text to standard output.
pub(crate) fn emit_text(text: &str) -> anyhow::Result<()> {
    emit(|out| out.write_all(text.as_bytes()))
}

/// Writes a value as indented JSON to standard output.
pub(crate) fn emit_json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    emit(|out| writeln!(out, "{text}"))
}

/// A count with thousands separators: `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes with three significant digits, for tables.
pub(crate) fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A rate with three significant digits: `26.3 k/s`.
pub(crate) fn rate(n: u64, time: Duration) -> String {
    let per_second = n as f64 / time.as_secs_f64().max(1e-9);
    match per_second {
        r if r < 1e3 => format!("{r:.0} /s"),
        r if r < 1e6 => format!("{:.1} k/s", r / 1e3),
        r if r < 1e9 => format!("{:.1} M/s", r / 1e6),
        r => format!("{:.1} G/s", r / 1e9),
    }
}

/// Nanoseconds since 1970 as a date; `-` for 0, the time of the empty pool.
pub(crate) fn date(wall_ns: u64) -> String {
    if wall_ns == 0 {
        return "-".into();
    }
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(wall_ns)).to_string()
}

/// A text table. Columns whose heading starts with `<` are left-aligned, all others right-aligned.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left: Vec<bool>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        let left = headings.iter().map(|h| h.starts_with('<')).collect();
        let first = headings.iter().map(|h| h.trim_start_matches('<').to_string()).collect();
        Self { rows: vec![first], left }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.left.len());
        self.rows.push(cells);
    }

    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.left.len())
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &left) in row.iter().zip(&widths).zip(&self.left) {
                let gap = " ".repeat(width - cell.chars().count());
                let (before, after) = if left { ("", gap.as_str()) } else { (gap.as_str(), "") };
                // Writing to a string cannot fail.
                let _ = write!(line, "{before}{cell}{after}  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Names and values in two columns.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    pairs.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// A progress bar on standard error; hidden where standard error is not a terminal.
pub(crate) fn progress(message: &'static str) -> ProgressBar {
    let target =
        if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target).with_message(message);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4}");
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let times = [12, 1_500, 23_456_000, 61_000_000_000].map(|ns| duration(Duration::from_nanos(ns)));
        assert_eq!(times, ["12 ns", "1.50 µs", "23.5 ms", "61.0 s"]);
        assert_eq!(rate(52_600, Duration::from_secs(2)), "26.3 k/s");
        assert_eq!(date(1_795_301_689_123_000_000), "2026-11-21T22:54:49.123Z");
    }

    #[test]
    fn columns_align_by_characters_not_bytes() {
        let mut table = Table::new(&["<what", "n"]);
        table.row(vec!["µs".into(), "7".into()]);
        table.row(vec!["others".into(), "1,000".into()]);
        assert_eq!(table.render(), "what        n\nµs          7\nothers  1,000\n");
        assert_eq!(pairs(&[("a", "1".into()), ("long", "2".into())]), "a     1\nlong  2\n");
    }
}
