//! Claims about the buffers: Table V, Figures 11 to 13, and fixed hotness thresholds.

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude, trend};
use crate::reason::{Ends, Reason};

const ENERGY: &str = "section VI-C, Figure 11";
const LIFETIME: &str = "section VI-C, Figure 12";
const RESPONSE: &str = "section VI-C, Figure 13";
const FIXED: &str = "section VI-C, fixed hotness thresholds";

/// A value that follows from Table V.
const fn table_v(
    id: &'static str,
    statement: &'static str,
    (paper, value): (&'static str, f64),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, "table-v", "Table V", statement, (paper, Expected::Value(value)), metrics)
        .held_to(Class::Exact, Tolerance::Absolute(0.05))
        .unit("%")
        .noted("Computed from the table, not printed in the paper. Tolerance: half of the last digit.")
}

const TAGS: &str = "Calibrated: the leakage of the tags, which the paper includes and does not state, has two powers that \
                    were fitted to the five published savings.";

/// A saving of energy in percent, which the tags' leakage was fitted to.
const fn saving(
    id: &'static str,
    statement: &'static str,
    (paper, value): (&'static str, f64),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, "energy", ENERGY, statement, (paper, Expected::Value(value)), metrics)
        .held_to(Class::Calibrated, Tolerance::Absolute(5.0))
        .unit("%")
        .synthetic()
        .noted(TAGS)
}

/// The same with tags that leak in proportion to the buffer, which nothing was fitted for.
const fn saving_linear(
    id: &'static str,
    statement: &'static str,
    expected: (&'static str, f64),
    metrics: &'static [&'static str],
) -> Claim {
    saving(id, statement, expected, metrics)
        .held_to(Class::Magnitude, Tolerance::Absolute(5.0))
        .noted("Tags of 0.25 mW/MiB, assumed and not fitted.")
}

const fn measured(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, experiment, source, statement, expected, metrics).synthetic()
}

const fn order(
    id: &'static str,
    experiment: &'static str,
    source: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    trend(id, experiment, source, statement, expected, metrics).synthetic()
}

const WORST: &str = "TS and TP; the collection of traces with the largest value.";
const BEST: &str = "TS and TP; the collection of traces with the smallest response time.";
const GAIN: &str = "The tolerance is 20 % of the gain. TS and TP; the buffer and collection with the largest gain over \
                    42 MB of DRAM, since the introduction says \"up to\".";

const COOLNESS: Reason = Reason::LeftOpen {
    choice: "how Algorithm 3 moves the coolness threshold",
    ends: Ends::Parameter("flat.coolness"),
};
const FULL: Reason = Reason::LeftOpen {
    choice: "whether the buffer is full of pages when the run begins",
    ends: Ends::Parameter("warm"),
};
const DESTAGE: Reason = Reason::LeftOpen {
    choice: "whether a write waits until its victim is on flash",
    ends: Ends::Parameter("buffer.destage"),
};
const RECORDINGS: Reason = Reason::CannotBeHad(
    "The recordings. Our stand-ins have the published shares of locality and the published hit ratios. After how many other \
     writes a page is written again is not published, and decides what a buffer keeps and when a threshold moves.",
);

/// The claims.
pub(super) const CLAIMS: &[Claim] = &[
    // Leakage alone.
    table_v(
        "leakage-1-20",
        "Leakage of 1-20 below that of 42",
        ("83.7 %", 83.7),
        &["leakage.1-20.saving_percent"],
    ),
    table_v(
        "leakage-2-40",
        "Leakage of 2-40 below that of 42",
        ("71.1 %", 71.1),
        &["leakage.2-40.saving_percent"],
    ),
    table_v(
        "leakage-3-18",
        "Leakage of 3-18 below that of 42",
        ("69.9 %", 69.9),
        &["leakage.3-18.saving_percent"],
    ),
    table_v(
        "leakage-12-72",
        "Leakage of 12-72 below that of 42",
        ("2.9 %", 2.9),
        &["leakage.12-72.saving_percent"],
    ),
    table_v(
        "dram-leakage-1-20",
        "Leakage of the DRAM of 1-20 below that of 42",
        ("92.7 %", 92.7),
        &["leakage.1-20.dram_saving_percent"],
    ),
    magnitude(
        "dram-power-1-20",
        "table-v",
        "section VI-C",
        "Power of DRAM and tags of 1-20 below that of 42",
        ("86 %", Expected::Value(86.0)),
        &["dram_power.1-20.saving_percent"],
    )
    .held_to(Class::Calibrated, Tolerance::Absolute(5.0))
    .unit("%")
    .noted(TAGS),
    // Energy.
    saving(
        "energy-1-20",
        "Energy of 1-20 below that of 42, largest saving",
        ("up to 77 %", 77.0),
        &["saving.1-20.max_percent"],
    ),
    saving(
        "energy-2-40",
        "Energy of 2-40 below that of 42, largest saving",
        ("up to 66 %", 66.0),
        &["saving.2-40.max_percent"],
    ),
    saving(
        "energy-3-18",
        "Energy of 3-18 below that of 42, largest saving",
        ("up to 64 %", 64.0),
        &["saving.3-18.max_percent"],
    ),
    saving(
        "energy-12-72",
        "Energy of 12-72 above that of 42, largest increase",
        ("7 %", 7.0),
        &["increase.12-72.max_percent"],
    ),
    saving_linear(
        "energy-1-20-linear",
        "The same of 1-20 with linear tags",
        ("up to 77 %", 77.0),
        &["saving.1-20.linear.max_percent"],
    ),
    saving_linear(
        "energy-2-40-linear",
        "The same of 2-40 with linear tags",
        ("up to 66 %", 66.0),
        &["saving.2-40.linear.max_percent"],
    ),
    saving_linear(
        "energy-3-18-linear",
        "The same of 3-18 with linear tags",
        ("up to 64 %", 64.0),
        &["saving.3-18.linear.max_percent"],
    )
    .because(COOLNESS),
    saving_linear(
        "energy-12-72-linear",
        "The same of 12-72 with linear tags",
        ("7 %", 7.0),
        &["increase.12-72.linear.max_percent"],
    ),
    order(
        "energy-order",
        "energy",
        ENERGY,
        "Mean energy of 1-20, 2-40, 3-18, 42, 12-72, relative to 42",
        ("rising", Expected::Rising),
        &["energy.1-20.mean", "energy.2-40.mean", "energy.3-18.mean", "energy.42.mean", "energy.12-72.mean"],
    ),
    order(
        "leakage-dominates",
        "energy",
        ENERGY,
        "Least share of leakage in the energy of a buffer, the MSE traces included",
        ("dominated", Expected::AtLeast(50.0)),
        &["leakage.least_percent"],
    )
    .unit("%"),
    order(
        "energy-4-80",
        "energy",
        ENERGY,
        "Energy of 4-80 relative to 42, largest",
        ("better in all scenarios", Expected::AtMost(1.0)),
        &["energy.4-80.max"],
    ),
    order(
        "data-at-risk",
        "energy",
        "section VI-C",
        "Most data that a power cut loses: 1-20, 4-80, 12-72, 42 (TS, 1e7)",
        ("rising", Expected::Rising),
        &["at_risk.1-20.max_mb", "at_risk.4-80.max_mb", "at_risk.12-72.max_mb", "at_risk.42.max_mb"],
    )
    .unit("MB"),
    // Lifetime.
    measured(
        "lifetime-low",
        "lifetime",
        "sections VI-C and VIII, Figure 12",
        "1e7: longest lifetime above that with 42 MB of DRAM",
        ("23 %", Expected::Value(23.0)),
        &["gain.1e7.over_42.best_percent"],
    )
    .unit("%")
    .noted(GAIN)
    .because(FULL),
    measured(
        "lifetime-high",
        "lifetime",
        "sections I, VI-C and VIII, Figure 12",
        "1e8: longest lifetime above that with 42 MB of DRAM",
        ("up to 150 %", Expected::Value(150.0)),
        &["gain.1e8.over_42.best_percent"],
    )
    .unit("%")
    .noted(GAIN)
    .because(FULL),
    measured(
        "wear-match",
        "lifetime",
        LIFETIME,
        "1e7: distance of the lifetimes of PCM and flash, largest of MSRC and Financial",
        ("within 2 %", Expected::AtMost(2.0)),
        &["match.1e7.worst_percent"],
    )
    .held_to(Class::Exact, Tolerance::None)
    .unit("%")
    .noted(WORST),
    order(
        "pcm-outlasts-mse",
        "lifetime",
        LIFETIME,
        "1e7: lifetime of PCM over that of flash in MSE, least",
        ("above 1", Expected::AtLeast(1.0)),
        &["pcm_over_flash.1e7.mse.least"],
    ),
    order(
        "levels-wear",
        "lifetime",
        LIFETIME,
        "1e7: lifetime with two levels relative to TS and TP, mean",
        ("greatly suffers", Expected::AtMost(0.5)),
        &["levels_over_flat.1e7"],
    )
    .noted("We read \"greatly\" as at most half."),
    measured(
        "levels-last",
        "lifetime",
        LIFETIME,
        "1e8: lifetime with TS relative to two levels, mean",
        ("similar", Expected::Value(1.0)),
        &["ts_over_levels.1e8"],
    ),
    order(
        "pcm-never-limits",
        "lifetime",
        LIFETIME,
        "1e8: lifetime of PCM over that of flash, least",
        ("at least 1", Expected::AtLeast(1.0)),
        &["pcm_over_flash.1e8.least"],
    ),
    order(
        "lifetime-4-80",
        "lifetime",
        LIFETIME,
        "Lifetime with 4-80 relative to 42, least of both endurances",
        ("competitive in all scenarios", Expected::AtLeast(0.8)),
        &["lifetime.4-80.least"],
    )
    .noted("We read \"competitive\" as within 20 %.")
    .because(RECORDINGS),
    order(
        "lifetime-small",
        "lifetime",
        "section VI-C",
        "1e7: mean lifetime with 1-20, then with 4-80, relative to 42",
        ("small buffers pay", Expected::Rising),
        &["lifetime.1e7.1-20.mean", "lifetime.1e7.4-80.mean"],
    ),
    // Response time.
    measured(
        "response-low-12-72",
        "response",
        RESPONSE,
        "1e7: response time with 12-72 relative to 42, farthest from 1",
        ("very close", Expected::Value(1.0)),
        &["response.1e7.12-72.farthest"],
    )
    .noted("TS and TP, three collections of traces.")
    .because(COOLNESS),
    measured(
        "response-low-4-80",
        "response",
        RESPONSE,
        "1e7: response time with 4-80 above that with 42, largest",
        ("up to 21 %", Expected::AtMost(21.0)),
        &["penalty.1e7.4-80.worst_percent"],
    )
    .unit("%")
    .noted(WORST)
    .because(COOLNESS),
    order(
        "response-low-2-40",
        "response",
        RESPONSE,
        "1e7: largest penalty with 4-80, then with 2-40",
        ("too much of a gap", Expected::Rising),
        &["penalty.1e7.4-80.worst_percent", "penalty.1e7.2-40.worst_percent"],
    )
    .unit("%")
    .noted(WORST),
    order(
        "response-low-6-36",
        "response",
        RESPONSE,
        "1e7: largest penalty with 4-80, then with 6-36",
        ("too much of a gap", Expected::Rising),
        &["penalty.1e7.4-80.worst_percent", "penalty.1e7.6-36.worst_percent"],
    )
    .unit("%")
    .noted(WORST),
    measured(
        "response-high-12-72",
        "response",
        RESPONSE,
        "1e8: response time with 12-72 below that with 42, best",
        ("up to 26 %", Expected::Value(26.0)),
        &["gain.1e8.12-72.best_percent"],
    )
    .unit("%")
    .noted(BEST)
    .because(DESTAGE),
    measured(
        "response-high-4-80",
        "response",
        RESPONSE,
        "1e8: response time with 4-80 below that with 42, best",
        ("up to 26 %", Expected::Value(26.0)),
        &["gain.1e8.4-80.best_percent"],
    )
    .unit("%")
    .noted(BEST)
    .because(DESTAGE),
    measured(
        "response-high-2-40",
        "response",
        RESPONSE,
        "1e8: response time with 2-40 above that with 42, largest",
        ("less than 8 %", Expected::AtMost(8.0)),
        &["penalty.1e8.2-40.worst_percent"],
    )
    .unit("%")
    .noted(WORST)
    .because(COOLNESS),
    measured(
        "response-high-6-36",
        "response",
        RESPONSE,
        "1e8: response time with 6-36 above that with 42, largest",
        ("less than 8 %", Expected::AtMost(8.0)),
        &["penalty.1e8.6-36.worst_percent"],
    )
    .unit("%")
    .noted(WORST)
    .because(COOLNESS),
    order(
        "levels-faster",
        "response",
        RESPONSE,
        "Buffers, collections and endurances in which two levels are faster than TS and TP",
        ("usually", Expected::AtLeast(50.0)),
        &["two_levels.faster_percent"],
    )
    .unit("%"),
    order(
        "response-small",
        "response",
        "section VI-C",
        "1e7: mean response time with 4-80, then with 1-20, relative to 42",
        ("small buffers pay", Expected::Rising),
        &["response.1e7.4-80.mean", "response.1e7.1-20.mean"],
    ),
    // Fixed thresholds.
    measured(
        "adaptive-ts",
        "hotness",
        FIXED,
        "TS: response time with the adaptive threshold above that with the best fixed one, mean",
        ("less than 1 %", Expected::AtMost(1.0)),
        &["over_best.ts.mean_percent"],
    )
    .unit("%")
    .because(RECORDINGS),
    measured(
        "adaptive-tp",
        "hotness",
        FIXED,
        "TP: response time with the adaptive threshold above that with the best fixed one, mean",
        ("less than 1 %", Expected::AtMost(1.0)),
        &["over_best.tp.mean_percent"],
    )
    .unit("%")
    .because(RECORDINGS),
    measured(
        "uncontrolled-ts",
        "hotness",
        FIXED,
        "TS without wear control: response time above that of two levels, mean",
        ("2 %", Expected::Value(2.0)),
        &["over_levels.ts.mean_percent"],
    )
    .held_to(Class::Magnitude, Tolerance::Absolute(1.0))
    .unit("%")
    .noted("The tolerance is a percentage point: 20 % of 2 % would be less than the digits given.")
    .because(RECORDINGS),
    measured(
        "uncontrolled-tp",
        "hotness",
        FIXED,
        "TP without wear control: response time above that of two levels, mean",
        ("1 %", Expected::Value(1.0)),
        &["over_levels.tp.mean_percent"],
    )
    .held_to(Class::Magnitude, Tolerance::Absolute(1.0))
    .unit("%")
    .noted("The tolerance is a percentage point: 20 % of 1 % would be less than the digits given.")
    .because(RECORDINGS),
];
