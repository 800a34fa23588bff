//! What a misspelt word most likely means.

/// The candidate that a misspelt `word` most likely means, if any is near enough.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|c| (distance(word.as_bytes(), c.to_ascii_lowercase().as_bytes()), c))
        .filter(|(d, c)| *d <= 1.max(c.len().max(word.len()) / 2))
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein's edit distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("thetta", ["span", "theta"]), Some("theta"));
        assert_eq!(nearest("xyzzyplugh", ["span", "theta"]), None);
    }
}
