//! The stand-ins for the hybrid SSD cache paper's traces against its published figures.
//!
//! Three whole stand-ins are characterised, one of each kind; `DEEPRAM_STAND_INS=all` characterises all eight and checks the
//! means over them. With `UPDATE_DOCS=1` it writes the tables of docs/reference/stand-ins.md anew.

use std::path::Path;
use std::sync::OnceLock;

use deepram_trace::characterize::Characterization;
use deepram_trace::workload::WORKLOADS;
use deepram_trace::workload::standin::fit::{Measured, SEED, characterize, locality, loss, table_iii};
use deepram_trace::workload::standin::{Collection, PUBLISHED, PublishedTrace, StandIn};
use deepram_trace::{Item, Workload};

/// A trace with the characterisation of its whole stand-in.
struct Whole {
    trace: &'static PublishedTrace,
    report: Characterization,
}

fn all() -> bool {
    std::env::var_os("DEEPRAM_STAND_INS").is_some_and(|value| value == "all")
}

/// The characterised stand-ins.
fn wholes() -> &'static [Whole] {
    static WHOLES: OnceLock<Vec<Whole>> = OnceLock::new();
    WHOLES.get_or_init(|| {
        let chosen = PUBLISHED.iter().filter(|t| all() || ["rsrch", "wdev", "tpcc"].contains(&t.trace));
        chosen
            .map(|trace| Whole { trace, report: characterize(StandIn::new(trace, SEED), u64::MAX).unwrap() })
            .collect()
    })
}

fn assert_met(trace: &PublishedTrace, measured: &[Measured], slack: f64) {
    for one in measured {
        assert!(
            (one.value - one.goal).abs() <= slack * one.tolerance,
            "{}, seed {SEED}: {} is {}, not {} +- {}",
            trace.trace,
            one.what,
            one.value,
            one.goal,
            slack * one.tolerance
        );
    }
}

#[test]
fn whole_stand_ins_meet_table_iii_and_the_goals_of_the_fit_within_their_tolerances() {
    for Whole { trace, report } in wholes() {
        assert_eq!(report.all.requests, trace.requests, "{}", trace.trace);
        assert_met(trace, &table_iii(trace, report), 1.0);
        assert_met(trace, &locality(trace, report), 1.0);
    }
}

#[test]
fn the_committed_parameters_have_the_committed_loss() {
    for Whole { trace, report } in wholes() {
        let (found, committed) = (loss(&locality(trace, report)), trace.fitted().loss);
        assert!((found - committed).abs() < 1e-9, "{}: loss {found}, committed {committed}", trace.trace);
    }
}

#[test]
fn another_seed_than_that_of_the_fit_meets_the_goals_within_twice_their_tolerances() {
    let trace = PublishedTrace::named("wdev").unwrap();
    let seed = SEED + 6;
    let report = characterize(StandIn::new(trace, seed), u64::MAX).unwrap();
    for one in table_iii(trace, &report).iter().chain(&locality(trace, &report)) {
        assert!((one.value - one.goal).abs() <= 2.0 * one.tolerance, "seed {seed}: {one:?}");
    }
}

#[test]
fn traces_with_much_locality_touch_fewer_pages_than_those_of_mse_and_keep_their_addresses() {
    let pages = |whole: &Whole| {
        let set = whole.report.working_sets.iter().find(|set| set.window_requests == 10_000).unwrap();
        set.mean_pages
    };
    let (mse, others): (Vec<_>, Vec<_>) =
        wholes().iter().partition(|whole| whole.trace.collection == Collection::Mse);
    let least = mse.iter().map(|whole| pages(whole)).fold(f64::INFINITY, f64::min);
    for whole in others {
        // A request of stg has nine pages, one of the MSE traces two.
        if whole.trace.trace != "stg" {
            assert!(2.0 * pages(whole) < least, "{}: {} pages", whole.trace.trace, pages(whole));
            let common = common_share(whole);
            assert!(common > 0.7, "{}: {common} of the accesses in common", whole.trace.trace);
        }
    }
}

/// Share of the accesses that the first and the last phase have in common, by bin of the address space.
fn common_share(whole: &Whole) -> f64 {
    let phases = &whole.report.addresses.phases;
    let shares = |at: usize| {
        let bins = &phases[at].bins;
        let all: u64 = bins.iter().map(|bin| bin.reads + bin.writes).sum();
        let share = move |reads: u64, writes: u64| (reads + writes) as f64 / all as f64;
        bins.iter().map(|bin| (bin.first_page, share(bin.reads, bin.writes))).collect::<Vec<_>>()
    };
    let (first, last) = (shares(0), shares(phases.len() - 1));
    let in_last = |page: u64| last.iter().find(|(other, _)| *other == page).map_or(0.0, |(_, share)| *share);
    first.iter().map(|&(page, share)| share.min(in_last(page))).sum()
}

/// Measured values of all traces for which `wanted` holds, of the goal that begins with `what`.
fn values(what: &str, wanted: impl Fn(&PublishedTrace) -> bool) -> Vec<f64> {
    let of = wholes().iter().filter(|whole| wanted(whole.trace));
    of.filter_map(|whole| {
        let all = locality(whole.trace, &whole.report);
        all.iter().find(|one| one.what.starts_with(what)).map(|one| one.value)
    })
    .collect()
}

/// A statement of the paper over several traces: what, the bound in words, the value, whether it holds.
type Statement = (&'static str, &'static str, f64, bool);

/// The statements of sections IV and VI-B over several traces.
fn statements() -> Vec<Statement> {
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let every = |what: &str| mean(values(what, |_| true));
    let six = |what: &str| mean(values(what, |trace| trace.collection != Collection::Mse));
    let near = |value: f64, paper: f64| (value - paper).abs() <= 1.0;
    let (r1, w1) = (every("random reads, 2/1"), every("random writes, 2/1"));
    let (r2, w2) = (every("random reads, 2/64"), every("random writes, 2/64"));
    let (r3, w3) = (every("random reads, 16/64"), every("random writes, 16/64"));
    let (r6, w6) = (six("random reads, 16/64"), six("random writes, 16/64"));
    let hits = |pages: u64, writes: bool| -> Vec<f64> {
        use deepram_trace::characterize::{Counted, Denominator};
        let counted = if writes { Counted::Writes } else { Counted::All };
        let ratio = |whole: &Whole| {
            let distances = whole.report.distances.as_ref().unwrap();
            100.0 * distances.hit_ratio(pages, counted, Denominator::AllAccesses).unwrap()
        };
        wholes().iter().map(ratio).collect()
    };
    let little = |at: &usize| ["stg", "tpcc", "tpce"].contains(&wholes()[*at].trace.trace);
    let at_10_000 = hits(10_000, false);
    let (low, high): (Vec<usize>, Vec<usize>) = (0..at_10_000.len()).partition(little);
    let least = high.iter().map(|at| at_10_000[*at]).fold(f64::INFINITY, f64::min);
    let most = low.iter().map(|at| at_10_000[*at]).fold(0.0, f64::max);
    let above = |writes| hits(10_240, writes).into_iter().filter(|ratio| *ratio > 70.0).count();
    let gain = |from, to| mean(hits(to, false)) - mean(hits(from, false));
    let (early, late) = (gain(5_120, 10_240), gain(10_240, 20_480));
    vec![
        ("Figure 4: random reads, mean, %", "83", r1, near(r1, 83.0)),
        ("Figure 4: random writes, mean, %", "90", w1, near(w1, 90.0)),
        ("Figure 5: random reads, mean, %", "< 46", r2, r2 < 46.0),
        ("Figure 5: random writes, mean, %", "< 53", w2, w2 < 53.0),
        ("Figure 6: random reads, mean, %", "< 37", r3, r3 < 37.0),
        ("Figure 6: random writes, mean, %", "< 48", w3, w3 < 48.0),
        ("Figure 6: random reads without MSE, mean, %", "< 17", r6, r6 < 17.0),
        ("Figure 6: random writes without MSE, mean, %", "< 31", w6, w6 < 31.0),
        ("Figure 8: hit ratio, 10,000 pages, least of five, %", "near or above 80", least, least >= 80.0),
        ("Figure 8: the same, most of stg, tpcc, tpce, %", "much lower", most, most < 40.0),
        ("Figure 10: traces above 70 % in 80 MB, all", "most of 8", above(false) as f64, above(false) >= 5),
        ("Figure 10: traces above 70 % in 80 MB, writes", "most of 8", above(true) as f64, above(true) >= 5),
        ("Figure 10: gain from 40 to 80 MB, mean, points", "above the next", early, early > late),
        ("Figure 10: gain from 80 to 160 MB, mean, points", "diminishes", late, late < early),
    ]
}

#[test]
fn the_papers_statements_over_all_traces_hold() {
    if !all() {
        println!("skipped: DEEPRAM_STAND_INS=all characterises all eight stand-ins");
        return;
    }
    for (what, bound, value, holds) in statements() {
        assert!(holds, "{what}: {value}, the paper: {bound}");
    }
}

/// The table of one trace on the page.
fn table(whole: &Whole) -> String {
    let Whole { trace, report } = whole;
    let mut text = format!("### {}\n\n", trace.trace);
    text += "| figure | goal | generated | tolerance | basis of the goal |\n|---|---|---|---|---|\n";
    for one in table_iii(trace, report).iter().chain(&locality(trace, report)) {
        let Measured { what, basis, goal, tolerance, value } = one;
        let digits = if goal.fract() == 0.0 && *goal >= 1e3 { 0 } else { 2 };
        text +=
            &format!("| {what} | {goal:.digits$} | {value:.digits$} | {tolerance:.digits$} | {basis} |\n");
    }
    text
}

#[test]
fn the_page_has_the_generated_figures_of_the_stand_ins() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/stand-ins.md");
    let text = std::fs::read_to_string(&page).expect("reading the page");
    let (begin, end) = ("<!-- stand-ins: begin -->\n", "<!-- stand-ins: end -->\n");
    let mut blocks = Vec::new();
    if all() {
        let mut block = "| statement | paper | generated |\n|---|---|---|\n".to_owned();
        for (what, bound, value, _) in statements() {
            block += &format!("| {what} | {bound} | {value:.1} |\n");
        }
        blocks.push(block);
    }
    blocks.extend(wholes().iter().map(table));
    if std::env::var_os("UPDATE_DOCS").is_some() && all() {
        let (before, rest) = text.split_once(begin).expect("the page has the begin mark");
        let (_, after) = rest.split_once(end).expect("the page has the end mark");
        let new = format!("{before}{begin}{}\n{end}{after}", blocks.join("\n"));
        std::fs::write(&page, new).expect("writing the page");
    }
    let text = std::fs::read_to_string(&page).expect("reading the page");
    for block in blocks {
        assert!(
            text.contains(&block),
            "docs/reference/stand-ins.md lacks (UPDATE_DOCS=1 DEEPRAM_STAND_INS=all writes it):\n{block}"
        );
    }
}

#[test]
fn the_workload_of_a_stand_in_is_the_stand_in_with_its_times_or_without() {
    for trace in &PUBLISHED {
        let items = |text: &str, seed| {
            let workload = Workload::new(text, seed).unwrap();
            assert!(workload.ends());
            workload.map(|item| if let Item::Block(r) = item { r } else { panic!("{item:?}") }).collect()
        };
        let name = format!("standin-{}:count=2000", trace.trace);
        let found: Vec<_> = items(&name, 5);
        assert!(found.iter().copied().eq(StandIn::new(trace, 5).take(2000)), "{}", trace.trace);
        assert_eq!(found[0].time_ps, Some(0));
        assert!(found.windows(2).all(|two| two[0].time_ps <= two[1].time_ps), "{}", trace.trace);
        let untimed: Vec<_> = items(&format!("{name},duration=0"), 5);
        assert!(untimed.iter().all(|request| request.time_ps.is_none()), "{}", trace.trace);
        let other: Vec<_> = items(&name, 6);
        assert_ne!(found, other, "seeds 5 and 6 of {}", trace.trace);
    }
}

#[test]
fn the_catalogue_names_every_stand_in_synthetic_with_the_published_counts() {
    let listed: Vec<_> = WORKLOADS.iter().filter(|w| w.name.starts_with("standin-")).collect();
    assert_eq!(listed.len(), PUBLISHED.len());
    for (trace, workload) in PUBLISHED.iter().zip(listed) {
        assert_eq!(workload.name, format!("standin-{}", trace.trace));
        let digits: String = workload.description.chars().filter(|c| *c != ',').collect();
        assert!(workload.description.starts_with("synthetic stand-in"), "{}", workload.description);
        assert!(digits.contains(&format!("{} requests", trace.requests)), "{}", workload.description);
        let percent = format!("{:.0}% writes", 100.0 * trace.write_share);
        assert!(digits.contains(&percent), "{}", workload.description);
        assert_eq!(trace.fitted().trace, trace.trace);
        let seconds = workload.params[0].default.strip_suffix('s').and_then(|s| s.parse::<f64>().ok());
        assert_eq!(seconds, Some(trace.span_s), "{}", trace.trace);
    }
}
