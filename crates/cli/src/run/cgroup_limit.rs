//! Bounds the memory of a run by a memory cgroup of the run's own.
//!
//! With a DRAM budget (`--dram`), the cgroup bounds what the preload library does not page, and leaves room above the budget
//! for the page cache. Where no cgroup can be made, one message names the first large process without the library. With a
//! limit for all memory (`--memory`), the cgroup has this limit, and paged memory and page cache divide it
//! ([`MemorySplit`]).

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use deepram_core::Bytes;
use deepram_core::paging::{MemorySplit, PAGE};
use deepram_pager::{Notice, SharedBudget};

use super::program::CannotStart;
use crate::cgroups::{self, Group, MemoryUse};

/// Memory of the cgroup above the DRAM budget, bytes: file pages, which the kernel reclaims under pressure, and kernel memory.
/// The cgroup gets this constant and the budget divided by [`HEADROOM_SHARE`].
const HEADROOM: u64 = 128 << 20;
const HEADROOM_SHARE: u64 = 8;
/// Least anonymous memory of a process without the library that is reported, bytes; or the budget divided by
/// [`REPORTED_SHARE`] if that is more.
const REPORTED: u64 = 32 << 20;
const REPORTED_SHARE: u64 = 16;

/// Part of a limit for all memory that stays free, as memory is measured every 10 ms.
const SPARE_SHARE: u64 = 256;
/// The same while several processes are paged: what one of them forks brings memory that is charged later.
const FORK_SPARE_SHARE: u64 = 16;
/// Interval at which paged memory and page cache divide the memory anew.
const SPLIT_INTERVAL: Duration = Duration::from_millis(100);

/// The memory cgroup of a run, or the reason why it has none.
pub(super) struct CgroupLimit {
    group: anyhow::Result<Group>,
    dram: u64,
    /// Current limit, bytes.
    limit: u64,
    /// How paged memory and page cache divide a limit for all memory.
    divided: Option<DividedMemory>,
}

/// A limit for all memory, which paged memory and page cache divide.
struct DividedMemory {
    split: MemorySplit,
    /// Time of the last division, and what had been read by then: pages of files read again, and bytes of paged memory.
    at: Instant,
    refaults: u64,
    bytes_read: u64,
}

impl DividedMemory {
    /// Divides the memory anew, unless that was done just before.
    fn divide(&mut self, memory: MemoryUse, budget: &SharedBudget) {
        if self.at.elapsed() < SPLIT_INTERVAL {
            return;
        }
        let bytes_read = budget.read().stats.bytes_read;
        let paged = bytes_read.saturating_sub(self.bytes_read) / PAGE as u64;
        self.split.record_reads(memory.refaults.saturating_sub(self.refaults), paged);
        (self.at, self.refaults, self.bytes_read) = (Instant::now(), memory.refaults, bytes_read);
    }
}

impl CgroupLimit {
    /// Makes a cgroup for a run with a budget of `dram` bytes.
    pub(super) fn of_dram(dram: u64) -> Self {
        let limit = limit(dram, 0);
        Self { group: create_group(limit), dram, limit, divided: None }
    }

    /// Makes a cgroup for a run with `memory` bytes for everything, of which `budget` is the budget.
    ///
    /// # Errors
    /// No cgroup can be made; the message gives the reason.
    pub(super) fn of_memory(memory: u64, budget: &SharedBudget) -> anyhow::Result<Self> {
        budget.set_fork_room(memory / FORK_SPARE_SHARE - memory / SPARE_SHARE);
        let group = create_group(memory)?;
        let measured = group.memory_use().context("the kernel does not report the memory of cgroups")?;
        let split = MemorySplit::new((memory / PAGE as u64) as usize);
        let divided = DividedMemory { split, at: Instant::now(), refaults: measured.refaults, bytes_read: 0 };
        Ok(Self { group: Ok(group), dram: memory, limit: memory, divided: Some(divided) })
    }

    /// Path of the cgroup that the program enters; `None` if there is none.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.group.as_ref().ok().map(Group::process_path)
    }

    /// Tells the budget how much memory the run has in DRAM: processes without a pager yet, and unpaged memory since its last
    /// measurement, are charged to no member, and what forked processes share to several. Where all memory has one limit, the
    /// budget also leaves room for the page cache and for memory of the kernel. Without a cgroup nothing is known of that.
    pub(super) fn measure(&mut self, budget: &SharedBudget) {
        let Some(memory) = self.group.as_ref().ok().and_then(Group::memory_use) else { return };
        let other = self.divided.as_mut().map_or(0, |divided| {
            divided.divide(memory, budget);
            let share = if budget.members() > 1 { FORK_SPARE_SHARE } else { SPARE_SHARE };
            let cache = divided.split.kept_for_cache((memory.files / PAGE as u64) as usize);
            (cache * PAGE) as u64 + memory.kernel + self.limit / share
        });
        budget.set_in_dram(memory.anonymous, memory.shared, other);
    }

    /// Adapts the limit above a DRAM budget to the size of the page tables, which grow with the paged memory. Without a cgroup,
    /// looks for a large process without the library.
    pub(super) fn update(&mut self, budget: &SharedBudget, descriptor: i32) {
        match &self.group {
            Ok(_) if self.divided.is_some() => {}
            Ok(group) => {
                let tables =
                    group.processes().into_iter().map(|pid| status_bytes(pid, "VmPTE:").unwrap_or(0)).sum();
                let limit = limit(self.dram, tables);
                if limit != self.limit && group.set_limit(limit).is_ok() {
                    self.limit = limit;
                }
            }
            Err(why) => report_unpaged_process(budget, descriptor, why),
        }
    }

    /// Reports processes that the kernel killed at the limit.
    pub(super) fn report_kills(self) {
        let Ok(group) = &self.group else { return };
        let killed = group.oom_kills();
        if killed > 0 {
            let processes = if killed == 1 { "a process" } else { "processes" };
            let (limit, option) = match &self.divided {
                Some(_) => (Bytes(self.limit).to_string(), "--memory"),
                None => {
                    let (limit, dram) = (Bytes(self.limit), Bytes(self.dram));
                    let text = format!(
                        "{limit}, which is the DRAM budget of {dram} and room for files and page tables"
                    );
                    (text, "--dram")
                }
            };
            eprintln!(
                "deepram: the kernel killed {processes} of this run: its unpaged memory reached the limit of {limit}. Memory is \
                 unpaged in a program without the library (statically linked, or started with another LD_PRELOAD); \
                 `man deepram-run` lists the other kinds. Give a larger {option}"
            );
        }
    }
}

/// Makes the cgroup of this run.
fn create_group(limit: u64) -> anyhow::Result<Group> {
    Group::create(&format!("run-{}", std::process::id()), limit, false)
}

/// Limit of the cgroup, bytes, for a budget of `dram` bytes and page tables of `tables` bytes.
fn limit(dram: u64, tables: u64) -> u64 {
    // Rounded up to a MiB, so that a single new page table does not change the limit.
    let tables = tables.next_multiple_of(1 << 20);
    dram.saturating_add(dram / HEADROOM_SHARE).saturating_add(HEADROOM).saturating_add(tables)
}

/// A size in `/proc/PID/status`, bytes.
fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Reports the first process of the run that uses much memory without a pager. Each process of a run inherits the descriptor
/// of the budget; a process with a pager is a budget member.
fn report_unpaged_process(budget: &SharedBudget, descriptor: i32, why: &anyhow::Error) {
    let least = REPORTED.max(budget.dram() / REPORTED_SHARE);
    let Some((pid, bytes)) = unpaged_process(budget, descriptor, least) else { return };
    if budget.is_first_notice(Notice::UntrackedProcess) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        eprintln!(
            "deepram: process {pid} ({}) uses {} of unpaged memory beside the DRAM budget of {}: it runs without the library \
             (statically linked, or started with another LD_PRELOAD), and no memory cgroup bounds it: {why:#}",
            name.trim_end(),
            Bytes(bytes),
            Bytes(budget.dram())
        );
    }
}

/// Process id and anonymous memory, in bytes, of a process of the run that has no pager and at least `least` bytes.
fn unpaged_process(budget: &SharedBudget, descriptor: i32, least: u64) -> Option<(u32, u64)> {
    let file = |pid: u32| {
        fs::metadata(format!("/proc/{pid}/fd/{descriptor}")).ok().map(|file| (file.dev(), file.ino()))
    };
    let own = file(std::process::id())?;
    let paged = budget.read().processes;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id() && !paged.iter().any(|(member, _)| member == pid))
        .filter(|pid| file(*pid) == Some(own))
        .find_map(|pid| Some((pid, status_bytes(pid, "RssAnon:").filter(|bytes| *bytes >= least)?)))
}

/// Options of the hidden command that enters the cgroup of a run and executes the program.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Path of the cgroup; none if the run has no cgroup
    #[arg(long)]
    group: Option<PathBuf>,
    /// LD_PRELOAD of the program
    #[arg(long)]
    preload: OsString,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The command that enters the cgroup and then executes `program`: this executable with its hidden subcommand.
pub(super) fn command(
    group: Option<&Path>,
    preload: &OsString,
    program: &[OsString],
) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run-exec").arg("--preload").arg(preload);
    if let Some(group) = group {
        command.arg("--group").arg(group);
    }
    // Only the program loads the library; this executable must not.
    command.arg("--").args(program).env_remove("LD_PRELOAD");
    Ok(command)
}

/// Enters the cgroup and executes the program in this process.
///
/// # Errors
/// The cgroup cannot be entered, or the program cannot be executed.
pub(crate) fn exec(args: &ExecArgs) -> anyhow::Result<()> {
    if let Some(group) = &args.group {
        cgroups::enter(group)?;
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env("LD_PRELOAD", &args.preload);
    command.env("DEEPRAM_RUN_MAIN", std::process::id().to_string());
    let error = command.exec();
    Err(CannotStart::from_io(&error, Path::new(&args.command[0])).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_room_for_files_and_tables() {
        assert_eq!(limit(64 << 20, 0), (64 + 8 + 128) << 20);
        assert_eq!(limit(64 << 20, 1), (64 + 8 + 128 + 1) << 20);
        assert_eq!(limit(u64::MAX, 1 << 30), u64::MAX);
    }

    #[test]
    fn sizes_in_the_status_of_a_process_are_read() {
        let own = status_bytes(std::process::id(), "RssAnon:").expect("it lives");
        assert!(own > 1 << 12 && own < 1 << 40, "{own}");
        assert_eq!(status_bytes(std::process::id(), "NoSuchThing:"), None);
    }
}
