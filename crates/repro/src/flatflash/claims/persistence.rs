//! Claims about the two case studies of persistence: sections 5.5 and 5.6, and their rows of Table 1.

use super::TABLE_1;
use super::reasons::{BATCH, BTRFS, ENGINE, FILES, FLUSHED, SHORE};
use crate::claim::{Claim, Class, Expected, Tolerance, magnitude};

const FILE_SYSTEMS: &str = "section 5.5, Figure 13";
const RANGE: &str = "The paper gives a range: our least and our greatest value are both judged by it.";

/// One end of a range: a claim that our value lies in the range.
const fn within(
    id: &'static str,
    source: &'static str,
    statement: &'static str,
    (paper, low, high): (&'static str, f64, f64),
    metric: &'static [&'static str],
) -> Claim {
    magnitude(id, "filesystem", source, statement, (paper, Expected::Range(low, high)), metric)
        .hardware_dependent()
        .noted(RANGE)
}

macro_rules! range {
    ($id:literal, $source:expr, $statement:literal, $metric:literal, $paper:literal, $low:literal, $high:literal) => {
        [
            within(
                concat!($id, "-least"),
                $source,
                concat!($statement, ", least over settings"),
                ($paper, $low, $high),
                &[concat!($metric, ".least")],
            ),
            within(
                concat!($id, "-most"),
                $source,
                concat!($statement, ", greatest over settings"),
                ($paper, $low, $high),
                &[concat!($metric, ".most")],
            ),
        ]
    };
}

const RANGES: [[Claim; 2]; 13] = [
    range!(
        "fs-ext4",
        FILE_SYSTEMS,
        "Speedup over UnifiedMMap with EXT4",
        "ext4.speedup",
        "2.6 to 18.9",
        2.6,
        18.9
    ),
    range!(
        "fs-xfs",
        FILE_SYSTEMS,
        "Speedup over UnifiedMMap with XFS",
        "xfs.speedup",
        "5.3 to 11.2",
        5.3,
        11.2
    ),
    range!(
        "fs-btrfs",
        FILE_SYSTEMS,
        "Speedup over UnifiedMMap with BtrFS",
        "btrfs.speedup",
        "3.2 to 15.3",
        3.2,
        15.3
    ),
    range!("fs-create", TABLE_1, "Speedup of creating files", "create.speedup", "3.6 to 11.2", 3.6, 11.2),
    range!("fs-rename", TABLE_1, "Speedup of renaming files", "rename.speedup", "2.6 to 6.7", 2.6, 6.7),
    range!("fs-mkdir", TABLE_1, "Speedup of creating directories", "mkdir.speedup", "3.6 to 15.3", 3.6, 15.3),
    range!("fs-varmail", TABLE_1, "Speedup of Varmail", "varmail.speedup", "3.2 to 6.2", 3.2, 6.2),
    range!("fs-webserver", TABLE_1, "Speedup of Webserver", "webserver.speedup", "5.3 to 18.9", 5.3, 18.9),
    range!(
        "fs-create-life",
        TABLE_1,
        "Lifetime of the drive relative to UnifiedMMap, creating files",
        "create.lifetime",
        "2.2 to 8.4",
        2.2,
        8.4
    ),
    range!(
        "fs-rename-life",
        TABLE_1,
        "Lifetime of the drive relative to UnifiedMMap, renaming files",
        "rename.lifetime",
        "1.5 to 12.1",
        1.5,
        12.1
    ),
    range!(
        "fs-mkdir-life",
        TABLE_1,
        "Lifetime of the drive relative to UnifiedMMap, creating directories",
        "mkdir.lifetime",
        "1.4 to 9.8",
        1.4,
        9.8
    ),
    range!(
        "fs-varmail-life",
        TABLE_1,
        "Lifetime of the drive relative to UnifiedMMap, Varmail",
        "varmail.lifetime",
        "1.9 to 8.0",
        1.9,
        8.0
    ),
    range!(
        "fs-webserver-life",
        TABLE_1,
        "Lifetime of the drive relative to UnifiedMMap, Webserver",
        "webserver.lifetime",
        "1.5 to 3.1",
        1.5,
        3.1
    ),
];

/// Claims about file systems.
pub(in super::super) fn filesystem() -> Vec<Claim> {
    let most = within(
        "fs-most",
        "abstract; section 5.5, Figure 13",
        "Greatest speedup over UnifiedMMap of any operation",
        ("18.9", 18.9, 18.9),
        &["all.speedup.most"],
    );
    let most = Claim { expected: Expected::Value(18.9), note: "", ..most };
    let all = RANGES.as_flattened().iter().cloned().chain([most]);
    let reason = |id: &str| match id {
        "fs-xfs-least" | "fs-webserver-least" => Some(FILES),
        "fs-btrfs-most" | "fs-create-most" | "fs-rename-most" | "fs-mkdir-most" | "fs-varmail-most"
        | "fs-most" => Some(BTRFS),
        "fs-create-life-most"
        | "fs-mkdir-life-most"
        | "fs-varmail-life-most"
        | "fs-webserver-life-least"
        | "fs-webserver-life-most" => Some(BATCH),
        _ => None,
    };
    all.map(|claim| {
        let reason = reason(claim.id);
        if let Some(reason) = reason { claim.because(reason) } else { claim }
    })
    .collect()
}

const DATABASE: &str = "section 5.6, Figure 14";

const fn claim(
    id: &'static str,
    statement: &'static str,
    expected: (&'static str, Expected),
    metrics: &'static [&'static str],
    note: &'static str,
) -> Claim {
    magnitude(id, "database", DATABASE, statement, expected, metrics).hardware_dependent().noted(note)
}

const AVERAGE: &str = "Mean over 4, 8, 12 and 16 clients.";

/// Claims about databases.
pub(in super::super) fn database() -> Vec<Claim> {
    let value = |paper, number| (paper, Expected::Value(number));
    let range = |paper, low, high| (paper, Expected::Range(low, high));
    let trend = |claim: Claim| claim.held_to(Class::Trend, Tolerance::None);
    let lifetime = "Flash pages of the log programmed per byte of log, at 16 clients. The experiment's table \
                    has all pages programmed per transaction.";
    let table = |claim: Claim| Claim { source: TABLE_1, ..claim };
    let reason = |id: &str| match id {
        "db-tpcc-life" | "db-tpcb-life" | "db-tatp-life" => Some(FLUSHED),
        "db-tpcc" | "db-tpcb" | "db-stack-least" | "db-fast-grows" => Some(SHORE),
        "db-fast" => Some(ENGINE),
        _ => None,
    };
    let all = [
        claim(
            "db-unified-least",
            "Database speedup over UnifiedMMap, least over settings",
            range("1.1 to 3.0", 1.1, 3.0),
            &["unified.least"],
            RANGE,
        ),
        claim(
            "db-unified-most",
            "Database speedup over UnifiedMMap, greatest over settings",
            range("1.1 to 3.0", 1.1, 3.0),
            &["unified.most"],
            RANGE,
        ),
        claim(
            "db-stack-least",
            "Database speedup over TraditionalStack, least over settings",
            range("1.6 to 4.2", 1.6, 4.2),
            &["stack.least"],
            RANGE,
        ),
        claim(
            "db-stack-most",
            "Database speedup over TraditionalStack, greatest over settings",
            range("1.6 to 4.2", 1.6, 4.2),
            &["stack.most"],
            RANGE,
        ),
        table(claim(
            "db-tpcc",
            "Mean speedup of TPC-C over UnifiedMMap",
            value("1.9", 1.9),
            &["unified.tpcc.speedup"],
            AVERAGE,
        )),
        table(claim(
            "db-tpcb",
            "Mean speedup of TPC-B over UnifiedMMap",
            value("2.8", 2.8),
            &["unified.tpcb.speedup"],
            AVERAGE,
        )),
        table(claim(
            "db-tatp",
            "Mean speedup of TATP over UnifiedMMap",
            value("1.3", 1.3),
            &["unified.tatp.speedup"],
            AVERAGE,
        )),
        table(claim(
            "db-tpcc-life",
            "Lifetime of the drive relative to UnifiedMMap, TPC-C",
            value("1.0", 1.0),
            &["unified.tpcc.lifetime"],
            lifetime,
        )),
        table(claim(
            "db-tpcb-life",
            "Lifetime of the drive relative to UnifiedMMap, TPC-B",
            value("1.0", 1.0),
            &["unified.tpcb.lifetime"],
            lifetime,
        )),
        table(claim(
            "db-tatp-life",
            "Lifetime of the drive relative to UnifiedMMap, TATP",
            value("1.0", 1.0),
            &["unified.tatp.lifetime"],
            lifetime,
        )),
        claim(
            "db-fast",
            "Greatest database speedup over UnifiedMMap with a device of lower latency, 16 clients",
            value("up to 5.3", 5.3),
            &["unified.fast.most"],
            "The paper names no latency but 20 µs; we assume 10, 5 and 2 µs.",
        ),
        trend(claim(
            "db-fast-grows",
            "Speedup of TPC-B over UnifiedMMap grows with lower device latency",
            ("grows", Expected::Rising),
            &["unified.tpcb.20us.speedup", "unified.tpcb.2us.speedup"],
            "",
        )),
        trend(claim(
            "db-own-mixed",
            "One log per client does not make UnifiedMMap much faster with TPC-C and TATP",
            ("not significantly", Expected::AtMost(1.2)),
            &["unified.own.mixed.gain"],
            "The greater of the two gains. We take 20 % as significant.",
        )),
        trend(claim(
            "db-own-tpcb",
            "One log per client makes UnifiedMMap faster with TPC-B",
            ("brings benefit", Expected::AtLeast(1.0)),
            &["unified.own.tpcb.gain"],
            "",
        )),
    ];
    all.into_iter()
        .map(|claim| {
            let reason = reason(claim.id);
            if let Some(reason) = reason { claim.because(reason) } else { claim }
        })
        .collect()
}
