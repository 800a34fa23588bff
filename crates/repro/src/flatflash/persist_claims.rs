//! What the paper claims of the two case studies of persistence (facts.md section 6, row S1 sections 5.5 and 5.6).

use crate::claim::{Claim, Class, Expected, Tolerance, magnitude};

const SPEED: &str = "section 5.5, Figure 13";
const TABLE: &str = "Table 1";
const RANGE: &str = "The claim has the paper's range; the least and the greatest of ours are judged by it.";

/// One end of a range of which the paper names both.
const fn within(
    id: &'static str,
    place: &'static str,
    what: &'static str,
    (paper, low, high): (&'static str, f64, f64),
    figure: &'static [&'static str],
) -> Claim {
    magnitude(id, "filesystem", place, what, (paper, Expected::Range(low, high)), figure).guest().noted(RANGE)
}

macro_rules! range {
    ($id:literal, $place:expr, $what:literal, $figure:literal, $paper:literal, $low:literal, $high:literal) => {
        [
            within(
                concat!($id, "-least"),
                $place,
                concat!($what, ", the least"),
                ($paper, $low, $high),
                &[concat!($figure, ".least")],
            ),
            within(
                concat!($id, "-most"),
                $place,
                concat!($what, ", the most"),
                ($paper, $low, $high),
                &[concat!($figure, ".most")],
            ),
        ]
    };
}

const RANGES: [[Claim; 2]; 13] = [
    range!("fs-ext4", SPEED, "speedup over unified-mmap with EXT4", "ext4.speedup", "2.6 to 18.9", 2.6, 18.9),
    range!("fs-xfs", SPEED, "speedup over unified-mmap with XFS", "xfs.speedup", "5.3 to 11.2", 5.3, 11.2),
    range!(
        "fs-btrfs",
        SPEED,
        "speedup over unified-mmap with BtrFS",
        "btrfs.speedup",
        "3.2 to 15.3",
        3.2,
        15.3
    ),
    range!("fs-create", TABLE, "speedup of creating files", "create.speedup", "3.6 to 11.2", 3.6, 11.2),
    range!("fs-rename", TABLE, "speedup of renaming files", "rename.speedup", "2.6 to 6.7", 2.6, 6.7),
    range!("fs-mkdir", TABLE, "speedup of creating directories", "mkdir.speedup", "3.6 to 15.3", 3.6, 15.3),
    range!("fs-varmail", TABLE, "speedup of Varmail", "varmail.speedup", "3.2 to 6.2", 3.2, 6.2),
    range!("fs-webserver", TABLE, "speedup of Webserver", "webserver.speedup", "5.3 to 18.9", 5.3, 18.9),
    range!("fs-create-life", TABLE, "lifetime, creating files", "create.lifetime", "2.2 to 8.4", 2.2, 8.4),
    range!("fs-rename-life", TABLE, "lifetime, renaming files", "rename.lifetime", "1.5 to 12.1", 1.5, 12.1),
    range!(
        "fs-mkdir-life",
        TABLE,
        "lifetime, creating directories",
        "mkdir.lifetime",
        "1.4 to 9.8",
        1.4,
        9.8
    ),
    range!("fs-varmail-life", TABLE, "lifetime, Varmail", "varmail.lifetime", "1.9 to 8.0", 1.9, 8.0),
    range!("fs-webserver-life", TABLE, "lifetime, Webserver", "webserver.lifetime", "1.5 to 3.1", 1.5, 3.1),
];

/// What the paper claims of file systems.
pub(super) fn filesystem() -> Vec<Claim> {
    let most = within(
        "fs-most",
        "abstract, section 5.5",
        "the greatest speedup of any operation",
        ("18.9", 18.9, 18.9),
        &["all.speedup.most"],
    );
    let most = Claim { expected: Expected::Value(18.9), note: "", ..most };
    RANGES.as_flattened().iter().cloned().chain([most]).collect()
}

const PLACE: &str = "section 5.6, Figure 14";

const fn claim(
    id: &'static str,
    what: &'static str,
    expected: (&'static str, Expected),
    figures: &'static [&'static str],
    note: &'static str,
) -> Claim {
    magnitude(id, "database", PLACE, what, expected, figures).guest().noted(note)
}

const AVERAGE: &str = "Of 4, 8, 12 and 16 clients.";

/// What the paper claims of databases.
pub(super) fn database() -> Vec<Claim> {
    let value = |paper, number| (paper, Expected::Value(number));
    let range = |paper, low, high| (paper, Expected::Range(low, high));
    let trend = |claim: Claim| claim.held_to(Class::Trend, Tolerance::None);
    let lifetime = "Pages programmed for a transaction, at 16 clients.";
    let table = |claim: Claim| Claim { place: "Table 1", ..claim };
    vec![
        claim(
            "db-unified-least",
            "speedup over unified-mmap, the least",
            range("1.1 to 3.0", 1.1, 3.0),
            &["unified.least"],
            RANGE,
        ),
        claim(
            "db-unified-most",
            "speedup over unified-mmap, the most",
            range("1.1 to 3.0", 1.1, 3.0),
            &["unified.most"],
            RANGE,
        ),
        claim(
            "db-stack-least",
            "speedup over traditional-stack, the least",
            range("1.6 to 4.2", 1.6, 4.2),
            &["stack.least"],
            RANGE,
        ),
        claim(
            "db-stack-most",
            "speedup over traditional-stack, the most",
            range("1.6 to 4.2", 1.6, 4.2),
            &["stack.most"],
            RANGE,
        ),
        table(claim(
            "db-tpcc",
            "mean speedup of TPC-C over unified-mmap",
            value("1.9", 1.9),
            &["unified.tpcc.speedup"],
            AVERAGE,
        )),
        table(claim(
            "db-tpcb",
            "mean speedup of TPC-B over unified-mmap",
            value("2.8", 2.8),
            &["unified.tpcb.speedup"],
            AVERAGE,
        )),
        table(claim(
            "db-tatp",
            "mean speedup of TATP over unified-mmap",
            value("1.3", 1.3),
            &["unified.tatp.speedup"],
            AVERAGE,
        )),
        table(claim(
            "db-tpcc-life",
            "lifetime, TPC-C",
            value("1.0", 1.0),
            &["unified.tpcc.lifetime"],
            lifetime,
        )),
        table(claim(
            "db-tpcb-life",
            "lifetime, TPC-B",
            value("1.0", 1.0),
            &["unified.tpcb.lifetime"],
            lifetime,
        )),
        table(claim(
            "db-tatp-life",
            "lifetime, TATP",
            value("1.0", 1.0),
            &["unified.tatp.lifetime"],
            lifetime,
        )),
        claim(
            "db-fast",
            "speedup over unified-mmap with a device of less latency and 16 clients, the most",
            value("up to 5.3", 5.3),
            &["unified.fast.most"],
            "The paper names no latencies but 20 µs: 10, 5 and 2 µs are assumed.",
        ),
        trend(claim(
            "db-fast-grows",
            "with less latency of the device the speedup of TPC-B grows",
            ("grows", Expected::Rising),
            &["unified.tpcb.20us.speedup", "unified.tpcb.2us.speedup"],
            "",
        )),
        trend(claim(
            "db-own-mixed",
            "logs of their own do not make unified-mmap much faster with TPC-C and TATP",
            ("not significantly", Expected::AtMost(1.2)),
            &["unified.own.mixed.gain"],
            "The greater of the two; a fifth is taken for significant.",
        )),
        trend(claim(
            "db-own-tpcb",
            "they do with TPC-B",
            ("brings benefit", Expected::AtLeast(1.0)),
            &["unified.own.tpcb.gain"],
            "",
        )),
    ]
}
