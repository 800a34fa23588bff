//! Claims of the flash disk cache paper. Its figures have no numbers in the text at hand.

use crate::claim::{Claim, Expected, magnitude, trend};
use crate::reason::Reason;

const POWER: &str = "section 6, Figure 8";
const STRENGTH: &str = "section 5.2, Figure 9";

/// The reason of misses on generated workloads.
const DISK_BOUND: Reason = Reason::CannotBeHad(
    "The intensity and the locality of dbt2 and SPECWeb99 on the full-system simulator. Our clients have no processor time, so \
     that the disk is busy nearly all the time in each server, whatever hits before it.",
);

/// The reason of the misses of the divided flash.
const DATABASE: Reason = Reason::CannotBeHad(
    "The accesses of dbt2. How many reads hit pages that were written lately is not published, and decides whether a write \
     region of a fixed size holds too much or too little.",
);

/// A ratio of a server with flash to one without.
const fn measured(
    id: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
) -> Claim {
    magnitude(id, "power", POWER, statement, expected, metrics).hardware_dependent().synthetic().unit("%").because(DISK_BOUND).noted(
        "256 MiB of DRAM and 1 GiB of flash against 512 MiB of DRAM. Power is that of memory and of the disk's accesses, as \
         the paper computes it from access energies. Tolerance: 20 % of the published gain.",
    )
}

/// All claims of the paper, in the order of its figures.
#[must_use]
pub fn claims() -> Vec<Claim> {
    vec![
        trend(
            "reclamation-rises",
            "reclamation",
            "section 2.1, Figure 2b",
            "The share of time in reclamation rises with the occupied share of the flash",
            ("rising", Expected::Rising),
            &["mlc.share.50_percent", "mlc.share.70_percent", "mlc.share.80_percent", "mlc.share.90_percent"],
        ),
        trend(
            "reclamation-overwhelms",
            "reclamation",
            "section 2.1, Figure 2b",
            "Reclamation is overwhelming well before all of the memory is used: at 90 % it takes more than half of the time",
            ("overwhelming", Expected::AtLeast(50.0)),
            &["mlc.share.90_percent"],
        )
        .unit("%")
        .noted("The paper gives no number; half of the time is our reading of the word."),
        trend(
            "regions-misses",
            "regions",
            "section 3.1",
            "Splitting the flash into a read and a write region reduces the misses of the database substantially",
            ("fewer", Expected::Rising),
            &["split.miss_percent", "unified.miss_percent"],
        )
        .synthetic()
        .noted("384 MiB of flash, a tenth of it for writes, reads and writes together.")
        .because(DATABASE),
        trend(
            "regions-reclamations",
            "regions",
            "section 3.1",
            "Splitting the flash cuts down on reclamations: fewer pages are moved",
            ("fewer", Expected::Rising),
            &["split.reclaim_moves_per_1000", "unified.reclaim_moves_per_1000"],
        )
        .synthetic()
        .noted("384 MiB of flash, a tenth of it for writes."),
        trend(
            "regions-literal",
            "regions",
            "section 3.1, Figure 4",
            "Where a reclamation handles all blocks with dead pages, splitting reduces the pages programmed",
            ("fewer", Expected::Rising),
            &["split-all.programs_per_1000", "unified-all.programs_per_1000"],
        )
        .synthetic(),
        trend(
            "endurance-strength",
            "endurance",
            "section 3.2, Figure 5",
            "Stronger codes tolerate more cycles",
            ("rising", Expected::Rising),
            &["cycles.10.1", "cycles.10.4", "cycles.10.8", "cycles.10.12"],
        ),
        trend(
            "endurance-deviation",
            "endurance",
            "section 3.2, Figure 5",
            "The more pages differ, the fewer cycles are tolerated at the same strength",
            ("falling with the deviation", Expected::Rising),
            &["cycles.20.12", "cycles.10.12", "cycles.5.12", "cycles.0.12"],
        ),
        trend(
            "partition-all-slc",
            "partition",
            "section 3.2, Figure 7",
            "Flash that holds the whole workload is best with single-level cells alone",
            ("only SLC", Expected::AtLeast(99.9)),
            &["least.full.slc_percent"],
        )
        .unit("%")
        .synthetic(),
        trend(
            "partition-skew",
            "partition",
            "section 3.2, Figure 7",
            "A workload with hot pages (Financial2) gives more of a middling flash to single-level cells than one without \
             (WebSearch1)",
            ("Financial2 above WebSearch1", Expected::Rising),
            &["even.half.slc_percent", "skewed.half.slc_percent"],
        )
        .synthetic(),
        measured(
            "oltp-throughput",
            "Throughput of dbt2 with flash, above DRAM alone",
            ("over 25 %", Expected::Value(25.0)),
            &["oltp.throughput_gain_percent"],
        ),
        measured(
            "oltp-power",
            "Power of memory and disk under dbt2, below DRAM alone",
            ("44 %", Expected::Value(44.0)),
            &["oltp.power_saving_percent"],
        ),
        measured(
            "web-throughput",
            "Throughput of SPECWeb99 with flash, above DRAM alone",
            ("about 11 %", Expected::Value(11.0)),
            &["web.throughput_gain_percent"],
        ),
        measured(
            "web-power",
            "Power of memory and disk under SPECWeb99, below DRAM alone",
            ("73 %", Expected::Value(73.0)),
            &["web.power_saving_percent"],
        ),
        trend(
            "strength-slows",
            "strength",
            STRENGTH,
            "Throughput of the database falls with the strength of the code",
            ("falling", Expected::Rising),
            &["oltp.at.50", "oltp.at.30", "oltp.at.15", "oltp.at.1"],
        )
        .synthetic()
        .because(DISK_BOUND),
        trend(
            "strength-slowly",
            "strength",
            STRENGTH,
            "Up to 12 bits, the web server loses little throughput",
            ("slowly", Expected::AtLeast(0.9)),
            &["web.at.12"],
        )
        .synthetic()
        .noted("The paper gives no number; a tenth is our reading of slowly."),
        trend(
            "strength-oltp",
            "strength",
            STRENGTH,
            "Beyond 15 bits, the database loses more than the web server",
            ("dbt2 below SPECWeb99", Expected::Rising),
            &["oltp.at.50", "web.at.50"],
        )
        .synthetic()
        .because(DISK_BOUND),
        magnitude(
            "lifetime-mean",
            "lifetime",
            "section 5.3, Figure 10",
            "Accesses until all flash has failed, programmable controller over one of a single bit, mean over the workloads",
            ("20", Expected::Value(20.0)),
            &["ratio.mean"],
        )
        .synthetic()
        .noted("Arithmetic mean. Deviation of pages 10 %."),
        magnitude(
            "lifetime-years",
            "lifetime",
            "section 5.3",
            "Where a code of one bit lasts six months, the programmable controller lasts longer than ten years, for some workload",
            ("over 10 years", Expected::AtLeast(10.0)),
            &["years.longest"],
        )
        .unit("years")
        .synthetic()
        .noted("The workload with the largest ratio. Deviation of pages 10 %."),
        trend(
            "latency-rises",
            "lifetime",
            "section 5.3",
            "Read latency rises as flash wears out",
            ("rising", Expected::Rising),
            &["growth.1", "growth.5", "growth.10"],
        )
        .synthetic(),
        trend(
            "latency-gracefully",
            "lifetime",
            "section 5.3",
            "Read latency rises gracefully: in no tenth of its life is flash twice as slow as in the one before",
            ("gracefully", Expected::AtMost(2.0)),
            &["growth.largest_step"],
        )
        .synthetic()
        .noted("The paper gives no number; twice is our reading of the word."),
    ]
}
