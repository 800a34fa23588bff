//! The nearest valid name for a misspelt one, for error messages ("did you mean ...?").

use alloc::vec::Vec;

/// Names longer than this get no suggestion: no valid name is as long, and the distance takes quadratic
/// time.
const MAX_CHARS: usize = 64;

/// The candidate nearest to `name`, if it is near enough for `name` to be a misspelling of it; of
/// equally near candidates the first.
///
/// Nearness is the edit distance without regard to ASCII case. At most one edit plus a third of the
/// longer name's length is near enough.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = name.chars().map(|c| c.to_ascii_lowercase()).collect();
    if name.len() > MAX_CHARS {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let chars: Vec<char> = candidate.chars().map(|c| c.to_ascii_lowercase()).collect();
        let distance = edit_distance(&name, &chars);
        if distance <= 1 + name.len().max(chars.len()) / 3 && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and exchanges of neighbouring characters that turn
/// `a` into `b`, no character being changed twice (optimal string alignment).
fn edit_distance(a: &[char], b: &[char]) -> usize {
    // Rows of the table for the prefixes of `a` with two, one and no characters less.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = core::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(a: &str, b: &str) -> usize {
        edit_distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
    }

    #[test]
    fn each_kind_of_edit_counts_one() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("theta", "theta", 0),
            ("thetta", "theta", 1),
            ("teta", "theta", 1),
            ("thera", "theta", 1),
            ("hteta", "theta", 1),
            ("kitten", "sitting", 3),
            ("größe", "grosse", 3),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("thetta", ["span", "theta"]), Some("theta"));
        assert_eq!(nearest("Span", ["span", "theta"]), Some("span"));
        assert_eq!(nearest("xyzzyplugh", ["span", "theta"]), None);
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn of_equally_near_names_the_first_is_taken() {
        assert_eq!(nearest("reat", ["read", "real"]), Some("read"));
        assert_eq!(nearest("reat", ["real", "read"]), Some("real"));
    }

    #[test]
    fn a_name_longer_than_any_valid_one_gets_no_suggestion() {
        let long = "a".repeat(MAX_CHARS + 1);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }
}
