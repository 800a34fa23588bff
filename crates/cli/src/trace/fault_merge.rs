//! The records of a run's processes as one trace.
//!
//! Faults come in the order of time, in picoseconds after the first. A trace has offsets on a device, not addresses
//! of processes: memory is taken in pieces of 256 KiB, from which on every mapping is paged, and every piece in which a fault
//! lay gets the next place, by process and address. So neighbours stay neighbours, processes are apart, and the
//! offsets begin at 0 and go little further than the memory touched.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use deepram_pool::pager::{FaultKind, FaultLog, PAGE};
use deepram_trace::compact::CompactWriter;
use deepram_trace::{Item, Op, Request, TraceReader};

/// Bytes of a piece.
const PIECE: u64 = 256 << 10;
/// Records merged at once: each is an open file.
const AT_ONCE: usize = 128;

/// Pieces by process and address, with their place.
type Places = HashMap<(u32, u64), u64>;

/// Writes the records in the folder as a trace of the compact format. Returns how many faults there are.
///
/// # Errors
/// A record cannot be read, or the trace cannot be written.
pub(super) fn merge(folder: &Path, out: impl Write) -> anyhow::Result<u64> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).context("reading the records")? {
        names.push(entry?.path());
    }
    names.sort();
    let (places, first_ns, faults) = places(&names)?;
    let mut parts: Vec<Part> =
        names.into_iter().zip(faults).map(|(path, faults)| Part::Record { path, faults }).collect();
    // Many processes: groups of them become traces, which are merged in turn.
    let mut made = 0;
    while parts.len() > AT_ONCE {
        let rest = parts.split_off(AT_ONCE);
        let path = folder.join(format!("merged-{made}"));
        made += 1;
        let file = std::io::BufWriter::new(std::fs::File::create_new(&path)?);
        join(&parts, &places, first_ns, file)?;
        for part in &parts {
            std::fs::remove_file(part.path())?;
        }
        parts = rest;
        parts.push(Part::Trace(path));
    }
    join(&parts, &places, first_ns, out)
}

/// Where every piece comes to lie, the time of the first fault, and how many faults each record has: a process
/// that is still running may add to its own.
fn places(names: &[PathBuf]) -> anyhow::Result<(Places, u64, Vec<usize>)> {
    let mut pieces = BTreeSet::new();
    let mut first_ns = u64::MAX;
    let mut counts = vec![0; names.len()];
    for (name, faults) in names.iter().zip(&mut counts) {
        let Some(log) = FaultLog::open(name)? else { continue };
        let process = log.process();
        for fault in log {
            let fault = fault?;
            *faults += 1;
            pieces.insert((process, fault.page / PIECE));
            first_ns = first_ns.min(fault.time_ns);
        }
    }
    Ok((pieces.into_iter().zip((0..).map(|n| n * PIECE)).collect(), first_ns, counts))
}

/// What is merged.
enum Part {
    Record { path: PathBuf, faults: usize },
    Trace(PathBuf),
}

/// Requests in the order of time.
type Requests<'a> = Box<dyn Iterator<Item = anyhow::Result<Request>> + 'a>;

impl Part {
    fn path(&self) -> &Path {
        let (Self::Record { path, .. } | Self::Trace(path)) = self;
        path
    }

    fn requests<'a>(&self, places: &'a Places, first_ns: u64) -> anyhow::Result<Requests<'a>> {
        match self {
            Self::Trace(path) => {
                let reader = TraceReader::open(path, &Default::default())?;
                Ok(Box::new(reader.map(|item| match item? {
                    Item::Block(request) => Ok(request),
                    other => anyhow::bail!("{other:?} is no block request"),
                })))
            }
            Self::Record { path, faults } => {
                let Some(log) = FaultLog::open(path)? else { return Ok(Box::new(std::iter::empty())) };
                let process = log.process();
                Ok(Box::new(log.take(*faults).map(move |fault| {
                    let fault = fault?;
                    let place = places.get(&(process, fault.page / PIECE));
                    let place = place.context("a record has changed while it was read")?;
                    let write = fault.write || fault.kind == FaultKind::Stored;
                    Ok(Request {
                        time_ps: Some(fault.time_ns.saturating_sub(first_ns) * 1000),
                        device: 0,
                        offset: place + fault.page % PIECE,
                        len: PAGE as u64,
                        op: if write { Op::Write } else { Op::Read },
                    })
                })))
            }
        }
    }
}

fn join(parts: &[Part], places: &Places, first_ns: u64, out: impl Write) -> anyhow::Result<u64> {
    let mut sources = Vec::new();
    for part in parts {
        sources.push(part.requests(places, first_ns)?);
    }
    let mut next: Vec<Option<Request>> = Vec::new();
    // Times, the earliest on top; at the same time the first source.
    let mut heap = BinaryHeap::new();
    for (n, source) in sources.iter_mut().enumerate() {
        let request = source.next().transpose()?;
        heap.extend(request.map(|request| Reverse((request.time_ps, n))));
        next.push(request);
    }
    let mut writer = CompactWriter::new(out)?;
    let mut written = 0;
    while let Some(Reverse((_, n))) = heap.pop() {
        let request = sources[n].next().transpose()?;
        heap.extend(request.map(|request| Reverse((request.time_ps, n))));
        if let Some(request) = std::mem::replace(&mut next[n], request) {
            writer.write(&Item::Block(request))?;
            written += 1;
        }
    }
    writer.finish()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_trace::ReadOptions;

    /// A record as `deepram_pool` writes it: a head, then time and page of each fault.
    fn record(folder: &Path, process: u32, faults: &[(u64, u64, FaultKind, bool)]) {
        let mut bytes = b"deepramF".to_vec();
        bytes.extend([1, process].map(u32::to_le_bytes).as_flattened());
        for (time_ns, page, kind, write) in faults {
            let what = page | *kind as u64 | u64::from(*write) << 2;
            bytes.extend([*time_ns, what].map(u64::to_le_bytes).as_flattened());
        }
        std::fs::write(folder.join(format!("{process}-0")), bytes).unwrap();
    }

    fn merged(folder: &Path) -> Vec<Request> {
        let mut trace = Vec::new();
        let written = merge(folder, &mut trace).unwrap();
        let reader = TraceReader::new(std::io::Cursor::new(trace), &ReadOptions::default()).unwrap();
        let all: Vec<Request> = reader
            .map(|item| match item.unwrap() {
                Item::Block(request) => request,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(all.len() as u64, written);
        all
    }

    #[test]
    fn neighbours_stay_neighbours_and_processes_apart() {
        use FaultKind::{Fresh, Read, Returned, Stored};
        let folder = tempfile::tempdir().unwrap();
        let high = 0x7f00_0000_0000;
        record(folder.path(), 7, &[(1005, high, Fresh, true), (1020, high + 4096, Read, false)]);
        record(folder.path(), 8, &[(1000, high, Returned, false), (1010, 4096, Stored, true)]);
        let shown: Vec<_> = merged(folder.path())
            .iter()
            .map(|request| (request.time_ps.unwrap(), request.offset, request.op))
            .collect();
        let (read, write) = (Op::Read, Op::Write);
        let wanted =
            [(0, 2 * PIECE, read), (5000, 0, write), (10_000, PIECE + 4096, write), (20_000, 4096, read)];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn many_processes_are_merged_in_groups_and_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let processes = AT_ONCE as u32 * 2 + 50;
        for process in 1..=processes {
            let fault = |n: u64| (1000 + n * 7 + u64::from(process % 13), n << 12, FaultKind::Read, false);
            record(folder.path(), process, &(0..5).map(fault).collect::<Vec<_>>());
        }
        let all = merged(folder.path());
        assert_eq!(all.len(), processes as usize * 5);
        assert!(all.is_sorted_by_key(|request| request.time_ps));
        let distinct: std::collections::HashSet<_> = all.iter().map(|request| request.offset).collect();
        assert_eq!(distinct.len(), all.len(), "every process has its own memory");
    }

    #[test]
    fn no_records_make_an_empty_trace_and_damaged_ones_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(merged(folder.path()), []);
        std::fs::write(folder.path().join("9-0"), [7; 64]).unwrap();
        assert!(merge(folder.path(), Vec::new()).unwrap_err().to_string().contains("9-0"));
    }
}
