//! Estimates text width. Fonts differ, so the estimate errs on the wide side.

/// Estimated width in a sans-serif font, in the unit of `size`.
#[must_use]
pub fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | '(' | ')' | 'I' => 0.36,
        'f' | 't' | 'r' | ' ' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '—' => 0.96,
        'A'..='Z' | '−' | '×' | '±' | '+' => 0.74,
        _ => 0.62,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// Breaks text at spaces into at most `lines` lines of width `most`. Text that does not fit ends in an
/// ellipsis.
#[must_use]
pub fn wrap(text: &str, size: f64, most: f64, lines: usize) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = out.last().map(|line| format!("{line} {word}"));
        match longer {
            Some(longer) if width(&longer, size) <= most => {
                if let Some(line) = out.last_mut() {
                    *line = longer;
                }
            }
            _ => out.push(word.into()),
        }
    }
    let cut = out.len() > lines;
    out.truncate(lines.max(1));
    let last = out.len().saturating_sub(1);
    for (at, line) in out.iter_mut().enumerate() {
        if width(line, size) > most || (cut && at == last) {
            while !line.is_empty() && width(&format!("{line}…"), size) > most {
                line.pop();
            }
            line.push('…');
        }
    }
    out
}
