//! What holds a run to its DRAM where the library cannot: a memory cgroup of its own. Where none can be made, a process that
//! the library is not in is named once.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use deepram_core::Bytes;
use deepram_pool::pager::{Notice, SharedBudget};

use super::program::CannotStart;
use crate::cgroups::{self, Group};

/// What a run may have beside its DRAM: pages of files, which the kernel takes back when they are too many, and memory of the
/// kernel's own. So much, and this part of the DRAM.
const BESIDE: u64 = 128 << 20;
const BESIDE_SHARE: u64 = 8;
/// A process without the library is named from so many bytes on, or this part of the DRAM if that is more.
const ESCAPED: u64 = 32 << 20;
const ESCAPED_SHARE: u64 = 16;

/// The memory cgroup of a run, or why it has none.
pub(super) struct Bound {
    group: anyhow::Result<Group>,
    dram: u64,
    /// The limit as it was last set.
    limit: u64,
}

impl Bound {
    /// Makes a group for a run of so many bytes of DRAM.
    pub(super) fn new(dram: u64) -> Self {
        let limit = limit(dram, 0);
        Self { group: Group::create(&format!("run-{}", std::process::id()), limit, false), dram, limit }
    }

    /// The group that the program goes into.
    pub(super) fn place(&self) -> Option<PathBuf> {
        self.group.as_ref().ok().map(Group::place)
    }

    /// Called now and then while the program runs: page tables grow with the memory that is paged.
    pub(super) fn renew(&mut self, budget: &SharedBudget, descriptor: i32) {
        match &self.group {
            Ok(group) => {
                let tables =
                    group.processes().into_iter().map(|pid| status(pid, "VmPTE:").unwrap_or(0)).sum();
                let limit = limit(self.dram, tables);
                if limit != self.limit && group.limit(limit).is_ok() {
                    self.limit = limit;
                }
            }
            Err(why) => name_escaped(budget, descriptor, why),
        }
    }

    /// Says so if the kernel has ended processes of the run at the limit.
    pub(super) fn end(self) {
        let Ok(group) = &self.group else { return };
        let killed = group.killed();
        if killed > 0 {
            let processes = if killed == 1 { "a process" } else { "processes" };
            eprintln!(
                "deepram: the kernel ended {processes} of this run: memory that is not paged reached the limit of {}, which \
                 is {} of DRAM and room for files and page tables. Not paged is memory of programs that the library is not \
                 in (statically linked, or started with another LD_PRELOAD), and what docs/run.md names; give more with \
                 --dram",
                Bytes(self.limit),
                Bytes(self.dram)
            );
        }
    }
}

/// Most bytes for a run whose page tables take so many.
fn limit(dram: u64, tables: u64) -> u64 {
    // A whole MiB: not every table moves it.
    let tables = tables.next_multiple_of(1 << 20);
    dram.saturating_add(dram / BESIDE_SHARE).saturating_add(BESIDE).saturating_add(tables)
}

/// A size that `/proc/PID/status` tells, in bytes.
fn status(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Names the first process of the run that takes memory without being paged: what a run starts has inherited the
/// descriptor of its budget, and those that are paged have a seat in it.
fn name_escaped(budget: &SharedBudget, descriptor: i32, why: &anyhow::Error) {
    let least = ESCAPED.max(budget.dram() / ESCAPED_SHARE);
    let Some((pid, bytes)) = escaped(budget, descriptor, least) else { return };
    if budget.is_first_notice(Notice::UntrackedProcess) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        eprintln!(
            "deepram: process {pid} ({}) takes {} beside the {} of DRAM: the library is not in it (statically linked, or \
             started with another LD_PRELOAD), and no memory cgroup bounds it ({why:#})",
            name.trim_end(),
            Bytes(bytes),
            Bytes(budget.dram())
        );
    }
}

fn escaped(budget: &SharedBudget, descriptor: i32, least: u64) -> Option<(u32, u64)> {
    let file = |pid: u32| {
        fs::metadata(format!("/proc/{pid}/fd/{descriptor}")).ok().map(|file| (file.dev(), file.ino()))
    };
    let own = file(std::process::id())?;
    let paged = budget.read().processes;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id() && !paged.iter().any(|(member, _)| member == pid))
        .filter(|pid| file(*pid) == Some(own))
        .find_map(|pid| Some((pid, status(pid, "RssAnon:").filter(|bytes| *bytes >= least)?)))
}

/// A program that goes into its group and begins.
#[derive(Debug, Args)]
pub(crate) struct WithinArgs {
    /// The group, if there is one
    #[arg(long)]
    group: Option<PathBuf>,
    /// What is loaded into the program
    #[arg(long)]
    preload: OsString,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The command that becomes this program: this one, which goes into the group first.
pub(super) fn command(
    group: Option<&Path>,
    preload: &OsString,
    program: &[OsString],
) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run-within").arg("--preload").arg(preload);
    if let Some(group) = group {
        command.arg("--group").arg(group);
    }
    // The library is for the program, not for what becomes it.
    command.arg("--").args(program).env_remove("LD_PRELOAD");
    Ok(command)
}

/// Becomes the program.
///
/// # Errors
/// The group cannot be entered, or the program not be started.
pub(crate) fn within(args: &WithinArgs) -> anyhow::Result<()> {
    if let Some(group) = &args.group {
        cgroups::enter(group)?;
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env("LD_PRELOAD", &args.preload);
    command.env("DEEPRAM_RUN_MAIN", std::process::id().to_string());
    let error = command.exec();
    Err(CannotStart::of(&error, Path::new(&args.command[0])).into())
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
    fn what_the_kernel_tells_of_a_process_is_read() {
        let own = status(std::process::id(), "RssAnon:").expect("it lives");
        assert!(own > 1 << 12 && own < 1 << 40, "{own}");
        assert_eq!(status(std::process::id(), "NoSuchThing:"), None);
    }
}
