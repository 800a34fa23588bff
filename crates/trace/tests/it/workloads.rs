//! Generated workloads against the closed forms and probabilities of their definitions.
//!
//! A share measured over n independent draws must lie within five standard deviations,
//! sqrt(p (1 - p) / n), of its probability p; a chi-square statistic below its mean plus six.

use deepram_trace::workload::{Spec, SpecError, WORKLOADS, Zipf, hpcc_starts, zeta};
use deepram_trace::{Item, MemRef, MemoryAccess, Op, Request, Workload};
use std::collections::BTreeMap;

fn blocks(spec: &str, n: usize) -> Vec<Request> {
    let items = Workload::new(spec, 1).unwrap_or_else(|e| panic!("{e}")).take(n);
    items.map(|item| if let Item::Block(r) = item { r } else { panic!("{item:?}") }).collect()
}

fn mems(spec: &str, n: usize) -> Vec<MemRef> {
    let items = Workload::new(spec, 1).unwrap_or_else(|e| panic!("{e}")).take(n);
    items.map(|item| if let Item::Mem(m) = item { m } else { panic!("{item:?}") }).collect()
}

fn assert_share(count: usize, of: usize, p: f64, what: &str) {
    let share = count as f64 / of as f64;
    let deviation = (p * (1.0 - p) / of as f64).sqrt();
    assert!((share - p).abs() <= 5.0 * deviation, "{what}: {share} is not {p} +- {}", 5.0 * deviation);
}

fn assert_chi_square(counts: &[u64], probabilities: &[f64]) {
    let total: u64 = counts.iter().sum();
    let expected = probabilities.iter().map(|p| p * total as f64);
    let statistic: f64 = counts.iter().zip(expected).map(|(&c, e)| (c as f64 - e).powi(2) / e).sum();
    let freedom = counts.len() as f64 - 1.0;
    assert!(
        statistic < freedom + 6.0 * (2.0 * freedom).sqrt(),
        "chi-square {statistic}, {freedom} degrees of freedom"
    );
}

fn error(spec: &str) -> String {
    Workload::new(spec, 1).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_same_seed_gives_the_same_stream_and_another_seed_another() {
    let fixed = ["sequential", "gups", "dd-read", "dd-write"];
    for w in WORKLOADS {
        let small = if w.name == "pagerank" || w.name == "cc" {
            format!("{}:scale=8", w.name)
        } else {
            w.name.to_string()
        };
        let take = |seed| Workload::new(&small, seed).unwrap().take(20_000).collect::<Vec<_>>();
        assert!(take(1) == take(1), "{}", w.name);
        assert_eq!(take(1) != take(2), !fixed.contains(&w.name), "{}", w.name);
    }
}

#[test]
fn every_request_of_every_workload_ends_before_two_to_the_64() {
    for w in WORKLOADS {
        for item in Workload::new(&format!("{}:count=50k", w.name), 3).unwrap() {
            if let Item::Block(r) = item {
                assert!(
                    r.offset.checked_add(r.len).is_some() && (r.len > 0 || r.op == Op::Flush),
                    "{}: {r:?}",
                    w.name
                );
            }
        }
    }
}

#[test]
fn wrong_specs_are_refused_with_the_key_and_what_is_right() {
    assert!(error("zipff").contains("did you mean zipf?"));
    assert!(error("zipf:thet=1").contains("did you mean theta?"));
    assert!(error("zipf:theta=x").contains("theta=\"x\", expected a number"));
    assert!(error("zipf:span").contains("is no key=value"));
    assert!(error("zipf:span=1G,span=2G").contains("given twice"));
    assert!(error("zipf:method=gray,theta=1.2").contains("method=exact takes any"));
    assert!(error("zipf:layout=rankd").contains("did you mean ranked?"));
    assert!(error("uniform:size=2GiB").contains("size=\"2GiB\", expected 1 to 1073741824"));
    assert!(error("gups:table=3GiB").contains("a power of two"));
    assert!(error("gups:rate=5").contains("has no key"));
    assert!(error("uniform:arrival=poisson").contains("needs rate"));
    assert!(error("uniform:rate=5").contains("not used with arrival=closed"));
    assert!(error("uniform:arrival=uniform,lo=2us,hi=1us").contains("lo is above hi"));
    assert!(error("uniform:emit=mem,arrival=fixed,interval=1us").contains("no arrival times"));
    assert!(
        error("uniform:base=16777215TiB,span=1TiB").contains("passes 2^64")
            || error("uniform:base=16777215TiB,span=2TiB").contains("passes 2^64")
    );
    assert!(error("cc:file=/nonexistent").contains("/nonexistent"));
    assert!(matches!("nope".parse::<Spec>(), Err(SpecError::UnknownWorkload { .. })));
}

#[test]
fn the_spec_of_the_documentation_is_parsed_with_types_and_shown_with_defaults() {
    let workload = Workload::new("zipf:theta=0.99,span=1GiB,read=0.7,count=1M,size=4KiB", 1).unwrap();
    assert!(workload.spec().values().any(|v| v == ("layout", "shuffled")));
    let again: Spec = workload.spec().to_string().parse().unwrap();
    assert_eq!(again.to_string(), workload.spec().to_string());
    let requests: Vec<_> = workload.collect();
    assert_eq!(requests.len(), 1_000_000);
    let reads = requests.iter().filter(|i| matches!(i, Item::Block(r) if r.op == Op::Read)).count();
    assert_share(reads, requests.len(), 0.7, "reads");
    assert!(requests.iter().all(|i| matches!(i, Item::Block(r) if r.len == 4096 && r.offset % 4096 == 0 && r.offset < 1 << 30 && r.time_ps.is_none())));
}

#[test]
fn uniform_addresses_pass_chi_square() {
    let mut counts = vec![0u64; 256];
    for r in blocks("uniform:span=1MiB", 1_000_000) {
        counts[(r.offset / 4096) as usize] += 1;
    }
    assert_chi_square(&counts, &[1.0 / 256.0; 256]);
}

#[test]
fn zipf_addresses_have_their_ranks_probabilities_in_either_layout() {
    for theta in [0.6, 0.99, 1.0, 1.3] {
        let zipf = Zipf::new(256, theta);
        let p: Vec<f64> = (0..256).map(|r| zipf.probability(r)).collect();
        let count = |layout: &str| {
            let mut counts = vec![0u64; 256];
            for r in blocks(&format!("zipf:span=1MiB,theta={theta},layout={layout}"), 1_000_000) {
                counts[(r.offset / 4096) as usize] += 1;
            }
            counts
        };
        let mut ranked = count("ranked");
        assert_chi_square(&ranked, &p);
        // Shuffling only permutes the items: their counts stay the same.
        let mut shuffled = count("shuffled");
        assert_ne!(ranked, shuffled);
        ranked.sort_unstable();
        shuffled.sort_unstable();
        assert_eq!(ranked, shuffled);
    }
}

#[test]
fn exponential_addresses_fall_off_as_computed() {
    let lambda = 3.0f64;
    let mut counts = vec![0u64; 64];
    for r in blocks("exponential:span=256KiB,lambda=3", 500_000) {
        counts[(r.offset / 4096) as usize] += 1;
    }
    let below = |x: f64| (1.0 - (-lambda * x).exp()) / (1.0 - (-lambda).exp());
    let p: Vec<f64> = (0..64).map(|i| below((i + 1) as f64 / 64.0) - below(i as f64 / 64.0)).collect();
    assert_chi_square(&counts, &p);
}

#[test]
fn sequential_starts_over_and_mixed_is_random_to_the_degree_given() {
    let offsets: Vec<u64> =
        blocks("sequential:span=16KiB,base=1MiB", 6).iter().map(|r| (r.offset - (1 << 20)) / 4096).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 0, 1]);
    let strided: Vec<u64> =
        blocks("sequential:span=32KiB,stride=16KiB", 3).iter().map(|r| r.offset).collect();
    assert_eq!(strided, [0, 16384, 0]);
    for random in [0.0, 0.1, 0.5, 1.0] {
        let requests = blocks(&format!("mixed:random={random},span=4GiB"), 200_000);
        let follows = requests.windows(2).filter(|w| w[1].offset == w[0].offset + 4096).count();
        // A random access follows its predecessor by chance with probability 1 / places.
        let places = (1u64 << 20) as f64;
        assert_share(follows, requests.len() - 1, 1.0 - random + random / places, "sequential share");
    }
}

#[test]
fn memory_streams_are_loads_and_stores() {
    let refs = mems("uniform:emit=mem,size=64B,read=0.25", 100_000);
    assert_share(refs.iter().filter(|m| m.access == MemoryAccess::Load).count(), refs.len(), 0.25, "loads");
    assert!(refs.iter().all(|m| m.size == 64 && m.addr % 64 == 0));
    let maps = mems("mmap-random:span=1MiB", 1 << 20);
    assert_eq!(maps.len(), 10_000);
    assert!(
        maps.iter()
            .all(|m| m.access == MemoryAccess::Load && m.size == 8 && m.addr % 8 == 0 && m.addr < 1 << 20)
    );
}

#[test]
fn gups_updates_the_words_that_the_sequence_names_four_times_the_table() {
    let refs = mems("gups:table=4KiB", usize::MAX);
    assert_eq!(refs.len(), 2 * 4 * 512);
    for (n, pair) in refs.chunks(2).enumerate() {
        let addr = hpcc_starts(n as u64 + 1) % 512 * 8;
        assert_eq!((pair[0].addr, pair[0].access), (addr, MemoryAccess::Load));
        assert_eq!((pair[1].addr, pair[1].access), (addr, MemoryAccess::Store));
    }
    let mut one: Vec<u64> = refs.iter().map(|m| m.addr).collect();
    let mut many: Vec<u64> = mems("gups:table=4KiB,streams=128", usize::MAX).iter().map(|m| m.addr).collect();
    assert_ne!(one, many);
    one.sort_unstable();
    many.sort_unstable();
    assert_eq!(one, many, "128 streams make the same updates in another order");
}

#[test]
fn dd_goes_through_the_file_once() {
    let reads = blocks("dd-read:span=10KiB,bs=4KiB", 99);
    assert_eq!(
        reads.iter().map(|r| (r.offset, r.len, r.op)).collect::<Vec<_>>(),
        [(0, 4096, Op::Read), (4096, 4096, Op::Read), (8192, 2048, Op::Read)]
    );
    let ops = |sync| {
        blocks(&format!("dd-write:span=8KiB,bs=4KiB,sync={sync}"), 99)
            .iter()
            .map(|r| r.op)
            .collect::<Vec<_>>()
    };
    assert_eq!(ops("none"), [Op::Write, Op::Write]);
    assert_eq!(ops("end"), [Op::Write, Op::Write, Op::Flush]);
    assert_eq!(ops("each"), [Op::Write, Op::Flush, Op::Write, Op::Flush]);
}

#[test]
fn ycsb_mixes_are_as_published() {
    for (name, reads) in [("a", 0.5), ("b", 0.95), ("c", 1.0), ("d", 0.95)] {
        let requests = blocks(&format!("ycsb-{name}:records=10k,count=200k"), 200_000);
        assert_eq!(requests.len(), 200_000);
        assert_share(requests.iter().filter(|r| r.op == Op::Read).count(), requests.len(), reads, name);
    }
    let requests = blocks("ycsb-f:records=10k", 300_000);
    let writes = requests.iter().filter(|r| r.op == Op::Write).count();
    let operations = requests.iter().filter(|r| r.op == Op::Read).count();
    assert_share(writes, operations, 0.5, "read-modify-writes");
    for pair in requests.windows(2).filter(|w| w[1].op == Op::Write) {
        let within = pair[1].offset - pair[0].offset;
        assert!(pair[0].op == Op::Read && within < 1000 && within % 100 == 0 && pair[1].len == 100);
    }
}

#[test]
fn ycsb_scans_are_uniform_from_1_to_100_records_and_ordered_keys_are_adjacent() {
    let requests = blocks("ycsb-e:records=1M,order=ordered,record=1KiB,page=1KiB", 500_000);
    let inserts = requests.iter().filter(|r| r.op == Op::Write).count();
    let starts =
        requests.windows(2).filter(|w| w[1].op == Op::Read && w[1].offset != w[0].offset + 1024).count();
    let mean = requests.iter().filter(|r| r.op == Op::Read).count() as f64 / starts as f64;
    // Lengths are uniform on 1..=100: mean 50.5, deviation 28.9, for some 9,900 scans.
    assert!((mean - 50.5).abs() < 5.0 * 28.9 / (starts as f64).sqrt(), "{mean}");
    assert_share(inserts, starts + inserts, 0.05, "inserts");
}

#[test]
fn ycsb_records_do_not_cross_pages_and_the_hottest_has_its_share() {
    let requests = blocks("ycsb-c:records=100k", 500_000);
    let mut counts = BTreeMap::new();
    for r in &requests {
        assert!(r.len == 1000 && r.offset % 4096 + 1000 <= 4096);
        *counts.entry(r.offset).or_insert(0usize) += 1;
    }
    assert!(counts.keys().all(|o| *o < 25_000 * 4096));
    let hottest = counts.values().copied().max().unwrap();
    // The hottest record has rank 0 of 10^10, and the ranks that hash to the same record: about (1 - p) / records.
    let p = 1.0 / zeta(10_000_000_000, 0.99);
    assert_share(hottest, requests.len(), p + (1.0 - p) / 100_000.0, "hottest record");
}

#[test]
fn ycsb_d_asks_for_the_newest_records_most() {
    let requests = blocks("ycsb-d:records=10k,order=ordered,record=1KiB,page=1KiB,count=200k", 200_000);
    let (mut newest, mut reads, mut hits) = (9_999, 0, 0);
    for r in &requests {
        let key = r.offset / 1024;
        if r.op == Op::Write {
            assert_eq!(key, newest + 1);
            newest = key;
        } else {
            reads += 1;
            hits += usize::from(key == newest);
        }
    }
    let (first, last) = (1.0 / zeta(10_000, 0.99), 1.0 / zeta(newest + 1, 0.99));
    let share = hits as f64 / reads as f64;
    let slack = 5.0 * (first / reads as f64).sqrt();
    assert!(share < first + slack && share > last - slack, "{share} not in {last}..{first}");
}

#[test]
fn ycsb_e_keeps_its_popular_records_while_others_are_inserted() {
    // Scans are one record long. Without a count, the space allows as many inserts as records; inserts are 5% of requests.
    let requests = blocks("ycsb-e:records=5k,scan=1,order=ordered,record=1KiB,page=1KiB", 90_000);
    let hottest = |part: &[Request]| {
        let mut counts = std::collections::HashMap::new();
        part.iter().filter(|r| r.op == Op::Read).for_each(|r| *counts.entry(r.offset).or_insert(0u32) += 1);
        counts.into_iter().max_by_key(|(_, n)| *n).map(|(offset, _)| offset)
    };
    assert_eq!(hottest(&requests[..30_000]), hottest(&requests[60_000..]));
}

#[test]
fn webserver_makes_ten_reads_and_a_log_append_a_loop() {
    // One thread makes 1,000 loops: each open reads an inode, and each file is read with one request of 16 KiB.
    let requests = blocks("webserver:threads=1", 21_000);
    let count = |op, len: Option<u64>| {
        requests.iter().filter(|r| r.op == op && len.is_none_or(|l| r.len == l)).count()
    };
    assert_eq!(
        (count(Op::Read, Some(256)), count(Op::Read, Some(16384)), count(Op::Write, None)),
        (10_000, 10_000, 1_000)
    );
}

#[test]
fn varmail_flushes_twice_a_loop_and_deletes_what_it_creates() {
    let requests = blocks("varmail:threads=1,meta=0", 100_000);
    let count = |op| requests.iter().filter(|r| r.op == op).count() as f64;
    let loops = count(Op::Flush) / 2.0;
    // A loop trims one file and appends twice. A file opened may be empty only if it was just
    // created by another thread, which one thread excludes.
    assert!((count(Op::Trim) / loops - 1.0).abs() < 0.01 && (count(Op::Write) / loops - 2.0).abs() < 0.01);
    assert!(count(Op::Read) / loops >= 2.0);
    let appended: u64 = requests.iter().filter(|r| r.op == Op::Write).map(|r| r.len).sum();
    let mean = appended as f64 / count(Op::Write);
    assert!((mean - 8192.5).abs() < 5.0 * 4730.0 / count(Op::Write).sqrt(), "{mean}");
}

#[test]
fn fileserver_and_webproxy_run_with_many_threads() {
    let requests = blocks("fileserver", 200_000);
    let whole = requests.iter().filter(|r| r.op == Op::Write && r.len == 128 << 10).count();
    let trims = requests.iter().filter(|r| r.op == Op::Trim).count();
    // One whole-file write and one delete a loop; the threads are at most one loop apart.
    assert!(whole.abs_diff(trims) <= 50 && whole > 10_000, "{whole} {trims}");
    let requests = blocks("webproxy", 200_000);
    assert!(requests.iter().filter(|r| r.op == Op::Read).count() > 100_000);
}

#[test]
fn oltp_writers_wake_after_their_reads() {
    // 16,000 reads lead to 16 batches of 100 writes and 5 log writes, with a flush after each batch and log write.
    let requests = blocks("oltp", 16_000 + 1_600 + 5 + 21);
    let count = |op, len| requests.iter().filter(|r| r.op == op && r.len == len).count();
    assert_eq!(
        (count(Op::Read, 2048), count(Op::Write, 2048), count(Op::Write, 256 << 10)),
        (16_000, 1_600, 5)
    );
    // The log writer also writes at random, to one of its 40 offsets.
    let log: Vec<u64> =
        blocks("oltp", 500_000).iter().filter(|r| r.len == 256 << 10).map(|r| r.offset).collect();
    assert!(log.len() > 100 && log.iter().all(|at| (100 << 20..110 << 20).contains(at)));
    let in_order = log.windows(2).filter(|w| w[1] == w[0] + (256 << 10)).count();
    assert!(in_order < log.len() / 4, "{in_order} of {}", log.len());
}

#[test]
fn tpcb_makes_three_updates_an_insert_a_log_write_and_a_flush() {
    let requests = blocks("tpcb:branches=10", 90_000);
    for t in requests.chunks(9) {
        use Op::{Flush, Read, Write};
        assert_eq!(
            t.iter().map(|r| r.op).collect::<Vec<_>>(),
            [Read, Write, Read, Write, Read, Write, Write, Write, Flush]
        );
        assert!(t[0].offset == t[1].offset && t[2].offset == t[3].offset && t[4].offset == t[5].offset);
        assert_eq!(t[7].len, 3 * 100 + 50 + 64);
    }
    let logs: Vec<_> = requests.chunks(9).map(|t| t[7].offset).collect();
    assert!(logs.windows(2).all(|w| w[1] == w[0] + 414));
    // With grain=row, the account's branch is the teller's branch in 85% of the transactions.
    let requests = blocks("tpcb:branches=10,grain=row,page=8000B", 90_000);
    let home =
        requests.chunks(9).filter(|t| (t[0].offset - 16_000) / 100 / 100_000 == t[4].offset / 100).count();
    let account_start = requests.iter().step_by(9).map(|r| r.offset).min().unwrap();
    assert!(account_start >= 16_000 && requests[0].len == 100);
    assert_share(home, 10_000, 0.85, "home accounts");
}

#[test]
fn tpcc_transactions_come_in_their_published_mix() {
    let requests = blocks("tpcc:warehouses=10", 2_000_000);
    // The size of the log record identifies the transaction: a payment changes 89 + 95 + 655 + 46 bytes, a new order
    // 127 bytes and 360 for each of its 5 to 15 lines; all other sizes are deliveries.
    let log = requests.windows(2).filter(|w| w[1].op == Op::Flush).map(|w| w[0].len - 64).collect::<Vec<_>>();
    let payments = log.iter().filter(|l| **l == 885).count();
    let orders: Vec<u64> = log
        .iter()
        .filter(|l| (**l - 127) % 360 == 0 && **l <= 127 + 15 * 360)
        .map(|l| (l - 127) / 360)
        .collect();
    assert_share(payments, log.len(), 43.0 / 92.0, "payments");
    assert_share(orders.len(), log.len(), 45.0 / 92.0, "new orders");
    assert_share(log.len() - payments - orders.len(), log.len(), 4.0 / 92.0, "deliveries");
    let mut lines = [0u64; 11];
    orders.iter().for_each(|n| lines[(*n - 5) as usize] += 1);
    assert_chi_square(&lines, &[1.0 / 11.0; 11]);
}

#[test]
fn tatp_changes_come_in_their_published_mix() {
    let requests = blocks("tatp", 1_000_000);
    let log = requests.windows(2).filter(|w| w[1].op == Op::Flush).map(|w| w[0].len - 64).collect::<Vec<_>>();
    // "Update subscriber" is 2% of the mix and changes two rows in 62.5% of its cases; "update location" is 14% and always
    // changes one row; inserting and deleting a forwarding are 2% each and change one row in 31.25% of their cases.
    let (double, single) = (0.02 * 0.625, 0.14 + 0.04 * 0.3125);
    assert_share(
        log.iter().filter(|l| **l == 200).count(),
        log.len(),
        double / (double + single),
        "two-row changes",
    );
    assert!(log.iter().all(|l| *l == 100 || *l == 200));
}

#[test]
fn arrivals_follow_their_law() {
    let gaps = |spec: &str| -> Vec<f64> {
        let times: Vec<u64> = blocks(spec, 100_000).iter().map(|r| r.time_ps.unwrap()).collect();
        times.windows(2).map(|w| (w[1] - w[0]) as f64).collect()
    };
    assert!(gaps("uniform:arrival=fixed,interval=10us").iter().all(|g| *g == 1e7));
    let n = 99_999f64;
    let mean = |g: &[f64]| g.iter().sum::<f64>() / n;
    let g = gaps("uniform:arrival=uniform,lo=1us,hi=3us");
    assert!(g.iter().all(|g| (1e6..=3e6).contains(g)));
    assert!((mean(&g) - 2e6).abs() < 5.0 * 2e6 / 12f64.sqrt() / n.sqrt());
    let g = gaps("uniform:arrival=poisson,rate=100k");
    let m = mean(&g);
    assert!((m - 1e7).abs() < 5.0 * 1e7 / n.sqrt(), "{m}");
    // The deviation of an exponential distribution equals its mean. The relative deviation of the estimated variance is
    // sqrt(8 / n).
    let variance = g.iter().map(|g| (g - m).powi(2)).sum::<f64>() / n;
    assert!((variance / 1e14 - 1.0).abs() < 5.0 * (8.0 / n).sqrt(), "{variance}");
    assert!(blocks("uniform:device=7", 10).iter().all(|r| r.device == 7));
}

#[test]
fn arrival_and_operation_streams_do_not_disturb_the_addresses() {
    let offsets = |spec: &str| blocks(spec, 1000).iter().map(|r| r.offset).collect::<Vec<_>>();
    assert_eq!(offsets("uniform"), offsets("uniform:read=0.5,arrival=poisson,rate=1k"));
}

#[test]
fn ycsb_e_with_far_more_inserts_to_come_than_records_does_not_hang() {
    let requests = blocks("ycsb-e:records=1,scan=1,count=1G", 10_000);
    assert_eq!(requests.len(), 10_000);
}
