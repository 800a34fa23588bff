//! A synthetic paper whose figures are known by arithmetic, and small runs of the NVMM and FlatFlash papers.

#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use deepram_repro::chart::{Axis, Bars, Chart, Drawing, Reference, Series, Table};
use deepram_repro::sensitivity::{Headline, Parameter, Sensitivity};
use deepram_repro::{
    Claim, Class, Expected, Experiment, Metrics, Options, Outcome, Paper, Report, ReproError, Settings,
    SimulationRun, Tolerance, Verdict, paper, reproduce,
};

pub(crate) const SETTINGS: Settings = Settings { quick: false, seed: 1 };
const PROCEDURE: &str = "arithmetic";

pub(crate) const fn claim(id: &'static str, expected: Expected, metrics: &'static [&'static str]) -> Claim {
    Claim {
        id,
        experiment: "sums",
        source: "section 1 & <2>",
        statement: "a \"sum\" <of> numbers & more",
        paper: "as expected",
        expected,
        metrics,
        unit: "µs",
        tolerance: Tolerance::Relative(0.2),
        class: Class::Magnitude,
        hardware_dependent: false,
        synthetic: false,
        draft_only: false,
        note: "",
        reason: None,
    }
}

/// Called before each run: counts the run, fails it, or ends the process.
pub(crate) type Hook = Arc<dyn Fn(u32) -> Result<(), ReproError> + Send + Sync>;

pub(crate) fn counting() -> (Arc<AtomicUsize>, Hook) {
    let count = Arc::new(AtomicUsize::new(0));
    let inner = Arc::clone(&count);
    let hook: Hook = Arc::new(move |_| {
        inner.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    (count, hook)
}

/// Run `n` yields `n` squared times a factor.
pub(crate) fn square(n: u32, factor: f64, hook: &Hook) -> SimulationRun {
    let hook = Arc::clone(hook);
    let config = serde_json::json!({ "n": n, "factor": factor });
    SimulationRun::new(format!("square {n}"), PROCEDURE, config, move || {
        hook(n)?;
        let mut metrics = Metrics::new();
        metrics.set("square", f64::from(n * n) * factor);
        // A third has no exact decimal form, yet the result store must return every bit of the number.
        metrics.set("third", f64::from(n) / 3.0);
        Ok(metrics)
    })
}

fn sums(runs: u32, factor: f64, hook: &Hook) -> Experiment {
    let all = (1..=runs).map(|n| square(n, factor, hook)).collect();
    Experiment::new("sums", "Sums & <squares>", "Squares of small numbers.", all, move |finished| {
        let mut metrics = Metrics::new();
        let mut points = Vec::new();
        for n in 1..=runs {
            let square = finished.metric(&format!("square {n}"), "square")?;
            metrics.set(format!("square.{n}"), square);
            points.push((f64::from(n), square));
        }
        metrics.set("sum", points.iter().map(|point| point.1).sum());
        let cubes = points.iter().map(|&(n, square)| (n, n * square)).collect();
        let values: Vec<f64> = points.iter().map(|point| point.1).collect();
        let groups: Vec<String> = points.iter().map(|point| format!("number {}", point.0)).collect();
        let (x, y) = (Axis::log("number", ""), Axis::log("its power", "µs"));
        let series = vec![Series::new("squares", points.clone()), Series::new("cubes", cubes)];
        let bars = |stacked| Drawing::Bars {
            axis: Axis::linear("its power", "mJ"),
            groups: groups.clone(),
            series: vec![Bars::new("squares", values.clone()), Bars::new("squares again", values.clone())],
            stacked,
        };
        let chart = |title: &str, drawing| Chart {
            title: title.into(),
            about: "Rising & <rising>.".into(),
            drawing,
            references: vec![Reference { name: "paper".into(), value: 4.0 }],
        };
        let area = Drawing::Lines {
            x: Axis::linear("time", "years"),
            y: Axis::linear("usable", "%"),
            series: series.clone(),
            area: true,
        };
        let table = Table {
            title: "Squares".into(),
            headings: vec!["number".into(), "square".into()],
            rows: vec![vec!["<2>".into(), "4".into()]],
        };
        Ok(Outcome {
            metrics,
            charts: vec![
                chart("Powers", Drawing::Lines { x, y, series, area: false }),
                chart("Bars", bars(false)),
                chart("Stacks", bars(true)),
                chart("Area", area),
            ],
            tables: vec![table],
        })
    })
}

/// A paper of four runs; with the sensitivity study it has twelve.
pub(crate) fn small(hook: &Hook, studied: bool) -> Paper {
    let parameter = |key: &str, low: &str, high: &str| Parameter {
        key: key.into(),
        description: format!("the {key}"),
        low: low.into(),
        base: "1".into(),
        high: high.into(),
        why: "for the test".into(),
    };
    let parameters = vec![parameter("offset", "1", "1"), parameter("factor", "0.5", "3")];
    let headlines = vec![Headline { metric: "sum".into(), title: "the sum".into() }];
    let sensitivity = studied.then(|| {
        Sensitivity::new(headlines, parameters, &|change| {
            let factor = change.filter(|change| change.key == "factor");
            Ok(sums(4, factor.map_or(1.0, |change| change.value.parse().expect("a number")), hook))
        })
        .expect("builds")
    });
    let elsewhere =
        Claim { experiment: "missing", ..claim("elsewhere", Expected::Value(1.0), &["no.such.figure"]) };
    let trend = Claim {
        class: Class::Trend,
        tolerance: Tolerance::None,
        draft_only: true,
        hardware_dependent: true,
        ..claim("order", Expected::Rising, &["square.1", "square.2", "square.3"])
    };
    Paper {
        name: "small",
        title: "A <small> paper & its claims",
        about: "Squares.",
        claims: vec![
            claim("sum-inside", Expected::Range(30.0, 40.0), &["sum"]),
            claim("sum-outside", Expected::Value(80.0), &["sum"]),
            trend,
            elsewhere,
        ],
        experiments: vec![sums(4, 1.0, hook)],
        sensitivity,
    }
}

/// Runs these experiments of the NVMM paper on small workloads.
pub(crate) fn nvmm(only: &[&str]) -> Report {
    quick("nvmm", only)
}

/// Runs these experiments of the FlatFlash paper on small workloads.
pub(crate) fn flatflash(only: &[&str]) -> Report {
    quick("flatflash", only)
}

fn quick(name: &str, only: &[&str]) -> Report {
    let settings = Settings { quick: true, seed: 1 };
    let out = tempfile::tempdir().unwrap();
    let only = only.iter().map(|id| (*id).into()).collect();
    let options = Options { out: out.path().into(), only, jobs: 2 };
    reproduce(&paper(name, &settings).unwrap(), &settings, &options, &|_| {}).unwrap()
}

/// Checks that `claims` claims of these experiments have been run, and that their figures are above 0.
pub(crate) fn assert_metrics(report: &Report, experiments: &[&str], claims: usize) {
    let rows: Vec<_> =
        report.rows.iter().filter(|row| experiments.contains(&row.experiment.as_str())).collect();
    assert_eq!(rows.len(), claims);
    for row in rows {
        assert_ne!(row.verdict, Verdict::Unavailable, "{}", row.id);
        assert!(!row.metrics.0.is_empty(), "{}", row.id);
        for (name, value) in &row.metrics.0 {
            assert!(value.is_finite() && *value > 0.0, "{name} is {value}");
        }
    }
}
