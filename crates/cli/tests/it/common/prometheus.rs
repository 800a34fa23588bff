//! A strict reader of the text format of Prometheus, version 0.0.4. Parts of the format that deepram does not use are errors.

use std::collections::BTreeMap;

/// Checks a whole page. Returns the value of each metric that is not a histogram.
pub(crate) fn check(page: &str) -> BTreeMap<String, u64> {
    assert!(page.ends_with('\n'), "the last line lacks a newline");
    let mut simple = BTreeMap::new();
    let mut seen = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, about) = comment(line, "HELP");
        assert!(!about.is_empty() && !about.contains('\\'), "{line}");
        let (typed, kind) = comment(lines.next().unwrap_or_default(), "TYPE");
        assert_eq!(name, typed, "HELP and TYPE are of different metrics");
        assert!(is_name(name), "{name} is not a metric name");
        assert!(!seen.contains(&name), "{name} occurs twice");
        seen.push(name);
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (what, value) = line.split_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            samples.push((what, value.parse::<u64>().unwrap_or_else(|_| panic!("no number: {line}"))));
        }
        match kind {
            "counter" | "gauge" => {
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
                let [(what, value)] = samples[..] else { panic!("{name} has {} samples", samples.len()) };
                assert_eq!(what, name);
                simple.insert(name.to_owned(), value);
            }
            "histogram" => histogram(name, &samples),
            other => panic!("{name} is of type {other}"),
        }
    }
    assert!(seen.iter().any(|name| !simple.contains_key(*name)), "there is no histogram");
    simple
}

fn histogram(name: &str, samples: &[(&str, u64)]) {
    let [buckets @ .., (sum, sum_value), (count, count_value)] = samples else {
        panic!("{name} has {} samples", samples.len())
    };
    assert_eq!((*sum, *count), (&*format!("{name}_sum"), &*format!("{name}_count")));
    let ends: Vec<(f64, u64)> = buckets
        .iter()
        .map(|(what, value)| {
            let end =
                what.strip_prefix(&format!("{name}_bucket{{le=\"")).and_then(|rest| rest.strip_suffix("\"}"));
            let end = end.unwrap_or_else(|| panic!("no bucket: {what}"));
            (if end == "+Inf" { f64::INFINITY } else { end.parse().expect("a number") }, *value)
        })
        .collect();
    assert!(ends.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} is not cumulative: {ends:?}");
    assert_eq!(ends.last(), Some(&(f64::INFINITY, *count_value)), "{name}: the last bucket must count all");
    assert!(*count_value > 0 || *sum_value == 0, "{name}: a sum without samples");
}

fn comment<'a>(line: &'a str, kind: &str) -> (&'a str, &'a str) {
    let rest =
        line.strip_prefix(&format!("# {kind} ")).unwrap_or_else(|| panic!("{kind} is expected: {line}"));
    rest.split_once(' ').unwrap_or_else(|| panic!("{kind} without a name: {line}"))
}

fn is_name(name: &str) -> bool {
    let mut all = name.chars();
    all.next().is_some_and(|c| c.is_ascii_lowercase())
        && all.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
