//! The HTML report is well-formed, complete and self-contained; one small report is compared byte for byte.

use std::path::{Path, PathBuf};

use crate::common::{SETTINGS, counting, small};
use deepram_repro::{Options, Report, Verdict, html, reproduce};

fn report() -> Report {
    let out = tempfile::tempdir().unwrap();
    let (_, hook) = counting();
    let options = Options { out: out.path().into(), only: Vec::new(), jobs: 2 };
    let mut report = reproduce(&small(&hook, true), &SETTINGS, &options, &|_| {}).unwrap();
    // The version and the digests that include it change with every release, so they are replaced.
    let mut text = report.to_json().unwrap();
    for (at, run) in report.runs.iter().enumerate() {
        text = text.replace(&run.digest, &format!("digest-{at}"));
    }
    report.version = "VERSION".into();
    for (at, run) in report.runs.iter_mut().enumerate() {
        run.digest = format!("digest-{at}");
    }
    let digests = |runs: &mut Vec<String>, value: &serde_json::Value| {
        *runs = value.as_array().unwrap().iter().map(|d| d.as_str().unwrap().to_owned()).collect();
    };
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (at, row) in report.rows.iter_mut().enumerate() {
        digests(&mut row.runs, &value["rows"][at]["runs"]);
        if let Some(driver) = &mut row.driver {
            digests(&mut driver.runs, &value["rows"][at]["driver"]["runs"]);
        }
    }
    for (at, row) in report.sensitivity.as_mut().unwrap().rows.iter_mut().enumerate() {
        for (end, name) in [(&mut row.low, "low"), (&mut row.high, "high")] {
            digests(&mut end.runs, &value["sensitivity"]["rows"][at][name]["runs"]);
        }
    }
    report
}

fn golden(name: &str, now: &str) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, now).unwrap();
    }
    let then = std::fs::read_to_string(&file).unwrap();
    let line = then.lines().zip(now.lines()).position(|(a, b)| a != b);
    assert!(
        then == now,
        "{} differs first in line {:?}; if the change is meant: UPDATE_GOLDEN=1 cargo test -p deepram-repro",
        file.display(),
        line.map(|line| line + 1)
    );
}

#[test]
fn a_small_report_is_what_it_was() {
    let report = report();
    golden("results.json", &report.to_json().unwrap());
    golden("index.html", &html::page(&report));
}

#[test]
fn verdicts_and_drivers_are_those_of_the_arithmetic() {
    let report = report();
    let verdicts: Vec<Verdict> = report.rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Inside, Verdict::Outside, Verdict::TrendHolds, Verdict::Unavailable]);
    assert_eq!(report.rows[0].ours, Some(30.0), "1 + 4 + 9 + 16");
    let outside = &report.rows[1];
    assert_eq!(outside.difference, Some(-0.625));
    let driver = outside.driver.as_ref().expect("the factor drives it");
    assert_eq!((driver.parameter.as_str(), driver.value.as_str()), ("factor", "3"));
    assert_eq!((driver.ours_base.as_slice(), driver.ours.as_slice()), (&[30.0][..], &[90.0][..]));
    assert_eq!(driver.verdict, Verdict::Inside);
    assert!(outside.why.contains("factor") && outside.why.contains("3 instead of 1"), "{}", outside.why);
    assert!(report.rows[0].driver.is_none(), "a claim inside its tolerance has no driver");
    assert!(report.rows[3].why.contains("missing"));
    let effects = report.sensitivity.unwrap();
    let named: Vec<&str> = effects.rows.iter().map(|row| row.parameter.key.as_str()).collect();
    assert_eq!(named, ["factor", "offset"], "the strongest parameter comes first");
    assert_eq!(effects.rows[0].effects, [2.0], "three times the base is a relative effect of 2");
    assert_eq!(effects.rows[1].effects, [0.0]);
}

#[test]
fn the_page_is_well_formed_and_holds_every_claim() {
    let report = report();
    let page = html::page(&report);
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).expect("well-formed");
    let elements = || document.descendants().filter(|node| node.is_element());
    for row in &report.rows {
        let id = format!("claim-{}", row.id);
        let found = elements().find(|node| node.attribute("id") == Some(&id)).expect("a row for each claim");
        let text: String = found.descendants().filter_map(|node| node.text()).collect();
        assert!(text.contains(&row.statement) && text.contains(row.verdict.words()), "{text}");
        assert!(text.contains(&row.source) && text.contains(&row.paper), "{text}");
    }
    let ids: Vec<&str> = elements().filter_map(|node| node.attribute("id")).collect();
    let distinct: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), distinct.len(), "every id is unique");
    for node in elements() {
        for attribute in ["aria-labelledby", "href"] {
            let Some(targets) = node.attribute(attribute) else { continue };
            for target in targets.split_whitespace() {
                let target = target.strip_prefix('#').unwrap_or(target);
                assert!(distinct.contains(target), "{attribute}={target} leads nowhere");
            }
        }
    }
    let charts = elements().filter(|node| node.attribute("role") == Some("img")).count();
    assert_eq!(charts, 2 * 5, "four charts and the chart of the study, in two widths");
    for metric in elements().filter(|node| node.tag_name().name() == "figure") {
        assert_eq!(metric.attribute("tabindex"), Some("0"));
        assert!(metric.descendants().any(|node| node.tag_name().name() == "details"), "no data");
        for name in ["title", "desc"] {
            assert!(metric.descendants().any(|node| node.tag_name().name() == name), "{name}");
        }
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = html::page(&report());
    for word in ["http:", "https:", "//", "@import", "<script", "<link", "<img", "src="] {
        assert!(!page.contains(word), "{word}");
    }
    for (at, _) in page.match_indices("url(") {
        assert!(page[at..].starts_with("url(#p"), "{}", &page[at..at + 30]);
    }
}

#[test]
fn a_paper_without_results_has_a_page() {
    let out = tempfile::tempdir().unwrap();
    let (_, hook) = counting();
    let options = Options { out: out.path().into(), only: vec!["elsewhere".into()], jobs: 1 };
    let report = reproduce(&small(&hook, true), &SETTINGS, &options, &|_| {}).unwrap();
    assert!(report.rows.iter().all(|row| row.verdict == Verdict::Unavailable));
    let file = report.write(out.path()).unwrap();
    let page = std::fs::read_to_string(file).unwrap();
    assert!(page.contains("claim-sum-inside") && !page.contains("<figure"));
    let json = std::fs::read_to_string(out.path().join("results.json")).unwrap();
    assert_eq!(json, report.to_json().unwrap());
}
