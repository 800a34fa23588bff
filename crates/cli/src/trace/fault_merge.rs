//! Merges the fault records of a run's processes into one trace.
//!
//! Faults are in order of time, in picoseconds after the first fault. A trace has offsets on a device instead of the
//! addresses of processes: memory is divided into chunks of 256 KiB, the size from which every mapping is paged, and
//! each chunk with a fault gets the next offset, ordered by process and address. Adjacent pages therefore stay
//! adjacent, processes do not overlap, and the offsets begin at 0 and reach little beyond the touched memory.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use deepram_pager::{FaultKind, FaultLog, PAGE};
use deepram_trace::deepram_format::DeepramWriter;
use deepram_trace::{Item, Op, Request, TraceReader};

/// Size of a chunk, bytes.
const CHUNK: u64 = 256 << 10;
/// Most records merged at once, each an open file.
const FAN_IN: usize = 128;

/// Offset of each chunk, by process and chunk number.
type ChunkOffsets = HashMap<(u32, u64), u64>;

/// Writes the records in the folder as a trace in the compact format. Returns the number of faults.
///
/// # Errors
/// A record cannot be read, or the trace cannot be written.
pub(super) fn merge(folder: &Path, out: impl Write) -> anyhow::Result<u64> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).context("reading the records")? {
        names.push(entry?.path());
    }
    names.sort();
    let (offsets, first_ns, faults) = chunk_offsets(&names)?;
    let mut parts: Vec<MergeInput> =
        names.into_iter().zip(faults).map(|(path, faults)| MergeInput::Record { path, faults }).collect();
    // With many processes, groups of records are merged into traces, which are merged in turn.
    let mut made = 0;
    while parts.len() > FAN_IN {
        let rest = parts.split_off(FAN_IN);
        let path = folder.join(format!("merged-{made}"));
        made += 1;
        let file = std::io::BufWriter::new(std::fs::File::create_new(&path)?);
        merge_inputs(&parts, &offsets, first_ns, file)?;
        for part in &parts {
            std::fs::remove_file(part.path())?;
        }
        parts = rest;
        parts.push(MergeInput::Trace(path));
    }
    merge_inputs(&parts, &offsets, first_ns, out)
}

/// The offset of each chunk, the time of the first fault, and the number of faults in each record. A process that still runs
/// may add faults later; they are not merged.
fn chunk_offsets(names: &[PathBuf]) -> anyhow::Result<(ChunkOffsets, u64, Vec<usize>)> {
    let mut chunks = BTreeSet::new();
    let mut first_ns = u64::MAX;
    let mut counts = vec![0; names.len()];
    for (name, faults) in names.iter().zip(&mut counts) {
        let Some(log) = FaultLog::open(name)? else { continue };
        let process = log.process();
        for fault in log {
            let fault = fault?;
            *faults += 1;
            chunks.insert((process, fault.page / CHUNK));
            first_ns = first_ns.min(fault.time_ns);
        }
    }
    Ok((chunks.into_iter().zip((0..).map(|n| n * CHUNK)).collect(), first_ns, counts))
}

/// An input of a merge.
enum MergeInput {
    Record { path: PathBuf, faults: usize },
    Trace(PathBuf),
}

/// Requests in order of time.
type Requests<'a> = Box<dyn Iterator<Item = anyhow::Result<Request>> + 'a>;

impl MergeInput {
    fn path(&self) -> &Path {
        let (Self::Record { path, .. } | Self::Trace(path)) = self;
        path
    }

    fn requests<'a>(&self, offsets: &'a ChunkOffsets, first_ns: u64) -> anyhow::Result<Requests<'a>> {
        match self {
            Self::Trace(path) => {
                let reader = TraceReader::open(path, &Default::default())?;
                Ok(Box::new(reader.map(|item| match item? {
                    Item::Block(request) => Ok(request),
                    other => anyhow::bail!("{other:?}: expected a block request"),
                })))
            }
            Self::Record { path, faults } => {
                let Some(log) = FaultLog::open(path)? else { return Ok(Box::new(std::iter::empty())) };
                let process = log.process();
                Ok(Box::new(log.take(*faults).map(move |fault| {
                    let fault = fault?;
                    let offset = offsets.get(&(process, fault.page / CHUNK));
                    let offset = offset.context("a record changed during the merge")?;
                    let write = fault.write || fault.kind == FaultKind::WriteProtected;
                    Ok(Request {
                        time_ps: Some(fault.time_ns.saturating_sub(first_ns) * 1000),
                        device: 0,
                        offset: offset + fault.page % CHUNK,
                        len: PAGE as u64,
                        op: if write { Op::Write } else { Op::Read },
                    })
                })))
            }
        }
    }
}

fn merge_inputs(
    parts: &[MergeInput],
    offsets: &ChunkOffsets,
    first_ns: u64,
    out: impl Write,
) -> anyhow::Result<u64> {
    let mut sources = Vec::new();
    for part in parts {
        sources.push(part.requests(offsets, first_ns)?);
    }
    let mut next: Vec<Option<Request>> = Vec::new();
    // The earliest time is on top; at equal times the first source.
    let mut heap = BinaryHeap::new();
    for (n, source) in sources.iter_mut().enumerate() {
        let request = source.next().transpose()?;
        heap.extend(request.map(|request| Reverse((request.time_ps, n))));
        next.push(request);
    }
    let mut writer = DeepramWriter::new(out)?;
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

    /// A record as `deepram_pool` writes it: a header, then time and page of each fault.
    fn record(folder: &Path, process: u32, faults: &[(u64, u64, FaultKind, bool)]) {
        let mut bytes = b"deepramF".to_vec();
        bytes.extend([1, process].map(u32::to_le_bytes).as_flattened());
        for (time_ns, page, kind, write) in faults {
            let address = page | *kind as u64 | u64::from(*write) << 2;
            bytes.extend([*time_ns, address].map(u64::to_le_bytes).as_flattened());
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
    fn adjacent_pages_stay_adjacent_and_processes_do_not_overlap() {
        use FaultKind::{Fresh, Major, SecondChance, WriteProtected};
        let folder = tempfile::tempdir().unwrap();
        let high = 0x7f00_0000_0000;
        record(folder.path(), 7, &[(1005, high, Fresh, true), (1020, high + 4096, Major, false)]);
        record(folder.path(), 8, &[(1000, high, SecondChance, false), (1010, 4096, WriteProtected, true)]);
        let shown: Vec<_> = merged(folder.path())
            .iter()
            .map(|request| (request.time_ps.unwrap(), request.offset, request.op))
            .collect();
        let (read, write) = (Op::Read, Op::Write);
        let wanted =
            [(0, 2 * CHUNK, read), (5000, 0, write), (10_000, CHUNK + 4096, write), (20_000, 4096, read)];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn many_processes_are_merged_in_groups_without_loss() {
        let folder = tempfile::tempdir().unwrap();
        let processes = FAN_IN as u32 * 2 + 50;
        for process in 1..=processes {
            let fault = |n: u64| (1000 + n * 7 + u64::from(process % 13), n << 12, FaultKind::Major, false);
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
