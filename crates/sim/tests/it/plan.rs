//! Plans: the choice against brute force, and a real trace from the file to the choice.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use deepram_media::Registry;
use deepram_sim::SimError;
use deepram_sim::plan::{
    CHEAPER_NEIGHBOURS, Estimate, Figures, Goals, Plan, PlanOptions, PlanProgress, Prices, TraceSource, Use,
    choose, dominates, front, plan, settle,
};
use deepram_trace::{Item, ObjectPlacement, ReadOptions, TraceError, TraceReader, Workload};
use proptest::prelude::*;

/// Few values, so that equal ones and dominated ones are frequent.
fn figures() -> impl Strategy<Value = Figures> {
    let small = || (1..6_u32).prop_map(f64::from);
    let years = prop::option::of(prop::sample::select(vec![1.0, 5.0, 100.0, 400.0]));
    (small(), small(), small(), small(), years, small()).prop_map(
        |(mean_ns, p99_ns, energy_nj, watts, years, usd)| Figures {
            mean_ns,
            p99_ns,
            energy_nj,
            watts,
            years,
            usd,
        },
    )
}

/// Whether `a` dominates `b`, written out.
fn beats(a: &Figures, b: &Figures) -> bool {
    let years = |f: &Figures| f.years.map_or(100.0, |years| years.min(100.0));
    let no_worse = a.mean_ns <= b.mean_ns
        && a.p99_ns <= b.p99_ns
        && a.energy_nj <= b.energy_nj
        && years(a) >= years(b)
        && a.usd <= b.usd;
    let equal = a.mean_ns == b.mean_ns
        && a.p99_ns == b.p99_ns
        && a.energy_nj == b.energy_nj
        && years(a) == years(b)
        && a.usd == b.usd;
    no_worse && !equal
}

fn goals() -> impl Strategy<Value = Goals> {
    (1..6, 1..6, 1..6).prop_map(|(p99, years, watts)| {
        format!("p99={p99}ns,years={years},watts={watts}").parse().expect("it is a target")
    })
}

proptest! {
    #[test]
    fn the_front_is_that_of_all_pairs(all in prop::collection::vec(figures(), 0..40)) {
        let undominated: Vec<usize> =
            (0..all.len()).filter(|&at| !all.iter().any(|other| beats(other, &all[at]))).collect();
        prop_assert_eq!(front(&all), undominated);
        for (a, b) in all.iter().zip(all.iter().skip(1)) {
            prop_assert_eq!(dominates(a, b), beats(a, b));
        }
    }

    #[test]
    fn the_choice_keeps_all_goals_and_everything_cheaper_misses_one(
        all in prop::collection::vec(figures(), 1..40),
        goals in goals(),
    ) {
        let choice = choose(&all, &goals);
        let keeps = |at: usize| goals.missed(&all[at]).is_empty();
        match choice.chosen {
            None => {
                prop_assert!((0..all.len()).all(|at| !keeps(at)));
                prop_assert_eq!(choice.rejected.len(), all.len());
                let worst = |at: usize| goals.missed(&all[at]).iter().map(|s| s.factor()).fold(0.0, f64::max);
                let factors: Vec<f64> = choice.rejected.iter().map(|r| worst(r.point)).collect();
                prop_assert!(factors.is_sorted() && factors.iter().all(|factor| *factor > 1.0));
            }
            Some(chosen) => {
                prop_assert!(keeps(chosen));
                let cheaper: Vec<usize> = (0..all.len()).filter(|&at| all[at].usd < all[chosen].usd).collect();
                prop_assert!(cheaper.iter().all(|&at| !keeps(at)));
                let mut rejected: Vec<usize> = choice.rejected.iter().map(|r| r.point).collect();
                prop_assert!(choice.rejected.iter().all(|r| r.missed == goals.missed(&all[r.point])));
                prop_assert!(rejected.windows(2).all(|pair| all[pair[0]].usd >= all[pair[1]].usd));
                rejected.sort_unstable();
                prop_assert_eq!(rejected, cheaper);
            }
        }
    }

    #[test]
    fn a_settled_choice_rests_on_exact_figures_alone(
        pairs in prop::collection::vec((figures(), figures()), 1..30),
        goals in goals(),
    ) {
        // Prices do not depend on the sample.
        let exact: Vec<Figures> = pairs.iter().map(|(a, b)| Figures { usd: a.usd, ..*b }).collect();
        let mut estimates: Vec<Estimate> =
            pairs.iter().map(|(sampled, _)| Estimate { sampled: *sampled, whole: None }).collect();
        let mut measured = vec![0; pairs.len()];
        let choice = settle(&mut estimates, &goals, |positions| {
            positions.iter().for_each(|&at| measured[at] += 1);
            Ok::<_, ()>(positions.iter().map(|&at| exact[at]).collect())
        }).expect("no measurement fails");
        prop_assert!(measured.iter().all(|times| *times <= 1), "{measured:?}");
        prop_assert!(estimates.iter().zip(&exact).all(|(e, exact)| e.whole.is_none_or(|whole| whole == *exact)));
        if let Some(chosen) = choice.chosen {
            prop_assert!(goals.missed(&exact[chosen]).is_empty() && measured[chosen] == 1);
        } else {
            prop_assert!(measured.iter().sum::<i32>() > 0);
        }
        for rejected in choice.rejected.iter().take(CHEAPER_NEIGHBOURS) {
            prop_assert_eq!(measured[rejected.point], 1);
            prop_assert_eq!(&rejected.missed, &goals.missed(&exact[rejected.point]));
        }
    }
}

#[test]
fn the_error_of_a_measurement_ends_the_choice() {
    let figures = Figures { mean_ns: 1.0, p99_ns: 1.0, energy_nj: 1.0, watts: 1.0, years: None, usd: 1.0 };
    let mut estimates = [Estimate { sampled: figures, whole: None }];
    assert_eq!(settle(&mut estimates, &"p99=5ns".parse().unwrap(), |_| Err("broken")), Err("broken"));
}

fn options(registry: &Registry, target: &str) -> PlanOptions {
    PlanOptions {
        goals: if target.is_empty() { Goals::default() } else { target.parse().unwrap() },
        of: None,
        data: None,
        prices: Prices::of_presets(registry).unwrap(),
        sample: 2_000,
        threads: 1,
        closed: false,
        objects: ObjectPlacement { slot_bytes: 4096, slots: 1 << 20 },
        seed: 1,
        jobs: 2,
    }
}

fn generated(
    spec: &'static str,
) -> impl Fn() -> Result<Box<dyn Iterator<Item = Result<Item, TraceError>>>, TraceError> {
    move || Ok(Box::new(Workload::new(spec, 1).expect("the workload exists").map(Ok)))
}

fn plan_of(trace: &TraceSource<'_>, options: &PlanOptions) -> Result<Plan, SimError> {
    plan(&Registry::builtin().unwrap(), trace, options, &|_| {})
}

/// The parts of a plan that its inputs determine.
fn outcome(plan: &Plan) -> String {
    format!("{:?} {:?} {:?} {:?}", plan.estimates, plan.front, plan.choice, plan.sample_error)
}

#[test]
fn loads_and_stores_get_memory_systems_and_the_number_of_threads_changes_nothing() {
    let registry = Registry::builtin().unwrap();
    let trace = generated("zipf:span=16MiB,count=6k,size=8,read=0.8,emit=mem");
    let two = plan_of(&trace, &options(&registry, "p99=5us")).unwrap();
    assert_eq!(two.of, Use::Memory);
    assert!(!two.profile.dram.is_empty() && two.points.len() == 1 + 7 * two.profile.dram.len());
    let one = plan_of(&trace, &PlanOptions { jobs: 1, ..options(&registry, "p99=5us") }).unwrap();
    assert_eq!(outcome(&one), outcome(&two));
    // All data in DRAM are the fastest and cost the most.
    let all_dram = two.points.iter().position(|point| point.config.system.name() == "dram").unwrap();
    for (at, estimate) in two.estimates.iter().enumerate().filter(|(at, _)| *at != all_dram) {
        let (dram, other) = (two.estimates[all_dram].figures(), estimate.figures());
        assert!(dram.mean_ns <= other.mean_ns, "{}", two.points[at].name());
    }
    assert!(two.estimates[all_dram].figures().years.is_none(), "DRAM does not wear");
}

#[test]
fn progress_counts_every_simulation_and_the_data_may_exceed_the_trace() {
    let registry = Registry::builtin().unwrap();
    let (added, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let observe = |event| match event {
        PlanProgress::Added(n) => drop(added.fetch_add(n, Ordering::Relaxed)),
        PlanProgress::Finished => drop(finished.fetch_add(1, Ordering::Relaxed)),
    };
    let trace = generated("zipf:span=16MiB,count=1k,size=4096,read=0.5,arrival=poisson,rate=2k");
    let small = plan(&registry, &trace, &options(&registry, ""), &observe).unwrap();
    assert_eq!(small.of, Use::Storage);
    assert_eq!(added.into_inner(), finished.into_inner());
    assert!(small.choice.is_none() && small.sample_error.is_none() && !small.front.is_empty());
    let twice = deepram_core::units::Bytes(2 * small.data.0);
    let large = plan_of(&trace, &PlanOptions { data: Some(twice), ..options(&registry, "") }).unwrap();
    for (at, (small, large)) in small.estimates.iter().zip(&large.estimates).enumerate() {
        let (small, large) = (small.figures(), large.figures());
        assert_eq!(small.mean_ns, large.mean_ns, "{}", at);
        assert!(large.usd > small.usd && large.years >= small.years, "{small:?} {large:?}");
    }
    let half = deepram_core::units::Bytes(small.data.0 / 2);
    let error = plan_of(&trace, &PlanOptions { data: Some(half), ..options(&registry, "") }).unwrap_err();
    assert!(error.to_string().contains("less than the data of the trace"), "{error}");
}

#[test]
fn a_trace_without_reads_and_writes_is_an_error() {
    let registry = Registry::builtin().unwrap();
    let empty: &TraceSource<'_> = &|| Ok(Box::new(std::iter::empty()));
    let error = plan_of(empty, &options(&registry, "")).unwrap_err();
    assert!(error.to_string().contains("nothing to plan for"), "{error}");
}

/// A real trace; `None`, with a note, where it is absent.
fn real(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("DEEPRAM_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there (set DEEPRAM_TRACES)", path.display());
        return None;
    }
    Some(path)
}

/// The choice for a real trace, made from samples, is that of simulations with the whole trace: the chosen
/// hierarchy keeps the goals, and its cheaper neighbours miss one.
#[test]
fn the_choice_for_a_real_trace_holds_with_the_whole_trace() {
    let Some(path) = real("block/fin1_first10k.ssdsim.ascii.zst") else { return };
    let registry = Registry::builtin().unwrap();
    let trace: &TraceSource<'_> = &|| Ok(Box::new(TraceReader::open(&path, &ReadOptions::default())?));
    let target = "p99=1ms,years=5";
    let goals: Goals = target.parse().unwrap();
    let planned = plan_of(trace, &options(&registry, target)).unwrap();
    let choice = planned.choice.as_ref().expect("there are goals");
    let chosen = choice.chosen.expect("a hierarchy keeps them");
    assert!(!choice.rejected.is_empty(), "a cheaper one exists");
    // Whole runs of everything, without any sampling.
    let whole = plan_of(trace, &PlanOptions { sample: 0, ..options(&registry, target) }).unwrap();
    let exact: Vec<Figures> = whole.estimates.iter().map(|estimate| *estimate.figures()).collect();
    assert!(goals.missed(&exact[chosen]).is_empty());
    assert_eq!(planned.estimates[chosen].whole, Some(exact[chosen]));
    for rejected in choice.rejected.iter().take(CHEAPER_NEIGHBOURS) {
        assert!(!goals.missed(&exact[rejected.point]).is_empty());
        assert_eq!(planned.estimates[rejected.point].whole, Some(exact[rejected.point]));
    }
    assert_eq!(whole.choice.and_then(|choice| choice.chosen), Some(chosen), "no sample misled the choice");
    let error = planned.sample_error.expect("some were simulated with both");
    assert!(error.hierarchies > 1 && error.p99.is_finite());
}

#[test]
fn a_real_memory_trace_gets_memory_systems_and_a_choice() {
    let Some(path) = real("memory/spec_ls_mcf.trace.gz") else { return };
    let registry = Registry::builtin().unwrap();
    let trace: &TraceSource<'_> = &|| {
        let items = TraceReader::open(&path, &ReadOptions::default())?;
        Ok(Box::new(items.take(20_000)))
    };
    let planned = plan_of(trace, &options(&registry, "mean=1us,years=1")).unwrap();
    assert_eq!(planned.of, Use::Memory);
    assert!(planned.choice.is_some_and(|choice| choice.chosen.is_some()));
}
