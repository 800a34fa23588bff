//! The workloads: YCSB A to F, and memtier's mixes of sets and gets.

use std::io;
use std::time::{Duration, Instant};

use deepram_trace::workload::{Rng, Zipf};

use super::client::{Connection, Protocol, Request};

/// Records of a YCSB database, and bytes of each (Table III of the study).
pub(super) const RECORDS: u64 = 1000;
const RECORD_BYTES: usize = 1000;
/// Most records of a scan.
const SCAN: u64 = 100;
/// Exponent of the popularity of records in YCSB.
const SKEW: f64 = 0.99;
/// Longest YCSB run.
const LONGEST: Duration = Duration::from_secs(3);
/// Name of the stream of random numbers: the same requests for every memory.
const STREAM: &str = "real applications";
/// Prefix of memtier's keys.
const MEMTIER: &str = "memtier";
/// Connections of a memtier client.
const CONNECTIONS: usize = 50;

/// A YCSB workload: shares of reads, updates, scans, inserts and read-modify-writes, percent (Table V).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ycsb {
    pub(super) name: &'static str,
    shares: [u64; 5],
}

pub(super) const YCSB: [Ycsb; 6] = [
    Ycsb { name: "A", shares: [50, 50, 0, 0, 0] },
    Ycsb { name: "B", shares: [95, 5, 0, 0, 0] },
    Ycsb { name: "C", shares: [100, 0, 0, 0, 0] },
    Ycsb { name: "D", shares: [95, 0, 0, 5, 0] },
    Ycsb { name: "E", shares: [0, 0, 95, 5, 0] },
    Ycsb { name: "F", shares: [50, 0, 0, 0, 50] },
];

impl Ycsb {
    /// Whether it writes.
    pub(super) const fn writes(self) -> bool {
        self.shares[1] + self.shares[3] + self.shares[4] > 0
    }
}

/// Key of a record of the workload of this prefix.
fn key(prefix: &str, record: u64) -> String {
    format!("{prefix}{record:012}")
}

/// Writes the records of a workload.
pub(super) fn load(connection: &mut Connection, prefix: &str) -> io::Result<()> {
    for record in 0..RECORDS {
        connection.call(Request::Set(key(prefix, record), vec![b'x'; RECORD_BYTES]))?;
    }
    Ok(())
}

/// Runs operations on the records of a prefix, one after the other by one client, for [`LONGEST`] at most. Returns operations
/// a second.
///
/// # Errors
/// The connection fails, or a record that exists is not found.
pub(super) fn ycsb(
    connection: &mut Connection,
    workload: Ycsb,
    prefix: &str,
    operations: u64,
    seed: u64,
) -> io::Result<f64> {
    let key = |record| key(prefix, record);
    let (mut random, zipf, mut records) = (Rng::new(seed, STREAM), Zipf::new(RECORDS, SKEW), RECORDS);
    let set = |key: String| Request::Set(key, vec![b'y'; RECORD_BYTES]);
    let (begin, mut done) = (Instant::now(), 0);
    while done < operations && begin.elapsed() < LONGEST {
        done += 1;
        let mut share = random.below(100);
        let kind = workload.shares.iter().position(|part| {
            let found = share < *part;
            share = share.wrapping_sub(*part);
            found
        });
        // Popular records are spread over all, as in YCSB; those of D are the newest.
        let rank = zipf.sample(&mut random);
        let record = if workload.name == "D" {
            records - 1 - rank
        } else {
            rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % RECORDS
        };
        match kind.unwrap_or(0) {
            0 => expect(connection.call(Request::Get(vec![key(record)]))?, 1)?,
            1 => drop(connection.call(set(key(record)))?),
            2 => {
                let last = (record + 1 + random.below(SCAN)).min(records);
                expect(
                    connection.call(Request::Get((record..last).map(&key).collect()))?,
                    (last - record) as usize,
                )?;
            }
            3 => {
                connection.call(set(key(records)))?;
                records += 1;
            }
            _ => {
                expect(connection.call(Request::Get(vec![key(record)]))?, 1)?;
                connection.call(set(key(record)))?;
            }
        }
    }
    Ok(f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / begin.elapsed().as_secs_f64())
}

fn expect(found: usize, wanted: usize) -> io::Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("the store has {found} of {wanted} records")))
}

/// memtier's mix: one set to this many gets, of values of 10 to 500 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) gets: u64,
    /// Keys, all of which are written first.
    pub(super) keys: u64,
}

fn value(random: &mut Rng) -> Vec<u8> {
    vec![b'v'; 10 + random.below(491) as usize]
}

/// Writes all keys, many requests at a time.
pub(super) fn preload(port: u16, protocol: Protocol, mix: Mix, seed: u64) -> io::Result<()> {
    const BATCH: u64 = 500;
    let (mut connection, mut random) = (Connection::open(port, protocol)?, Rng::new(seed, STREAM));
    for first in (0..mix.keys).step_by(BATCH as usize) {
        let keys = first..(first + BATCH).min(mix.keys);
        let sets: Vec<Request> =
            keys.map(|one| Request::Set(key(MEMTIER, one), value(&mut random))).collect();
        connection.send(&sets)?;
        for _ in &sets {
            connection.receive()?;
        }
    }
    Ok(())
}

/// Runs requests on random keys over many connections, one request under way on each. Returns requests a second.
pub(super) fn memtier(port: u16, protocol: Protocol, mix: Mix, requests: u64, seed: u64) -> io::Result<f64> {
    let mut random = Rng::new(seed, STREAM);
    let mut all =
        (0..CONNECTIONS).map(|_| Connection::open(port, protocol)).collect::<io::Result<Vec<_>>>()?;
    let begin = Instant::now();
    let mut done = 0;
    while done < requests {
        for connection in &mut all {
            let key = key(MEMTIER, random.below(mix.keys));
            let is_set = random.below(mix.gets + 1) == 0;
            let request =
                if is_set { Request::Set(key, value(&mut random)) } else { Request::Get(vec![key]) };
            connection.send(&[request])?;
        }
        for connection in &mut all {
            connection.receive()?;
            done += 1;
        }
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_each_workload_are_whole() {
        for workload in YCSB {
            assert_eq!(workload.shares.iter().sum::<u64>(), 100, "{}", workload.name);
        }
        assert_eq!(
            YCSB.iter().filter(|workload| !workload.writes()).map(|one| one.name).collect::<Vec<_>>(),
            ["C"]
        );
    }

    #[test]
    fn popular_ranks_are_drawn_as_often_as_their_weight_says() {
        let (zipf, mut random) = (Zipf::new(RECORDS, SKEW), Rng::new(7, STREAM));
        let mut counts = vec![0_u32; RECORDS as usize];
        for _ in 0..100_000 {
            counts[zipf.sample(&mut random) as usize] += 1;
        }
        let whole: f64 = (1..=RECORDS).map(|rank| (rank as f64).powf(-0.99)).sum();
        for rank in [0_usize, 1, 9] {
            let share = (rank as f64 + 1.0).powf(-0.99) / whole;
            let found = f64::from(counts[rank]) / 100_000.0;
            assert!((found / share - 1.0).abs() < 0.1, "rank {rank}: {found} of {share}, seed 7");
        }
    }

    #[test]
    fn values_have_10_to_500_bytes() {
        let mut random = Rng::new(3, STREAM);
        let lengths: Vec<usize> = (0..10_000).map(|_| value(&mut random).len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&10), Some(&500)));
    }
}
