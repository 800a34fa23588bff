//! The definition of the command line, from which help, manual pages and completions are made.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use deepram_core::Bytes;
use deepram_pool::{MemoryFile, Redundancy, SegmentSize};

/// Flash as byte-addressable main memory, with DRAM as its cache.
///
/// A pool is memory in a file or block device. It is larger than the DRAM that it uses, keeps its last
/// synced state across crashes, and can be rolled back to earlier states.
///
/// A size is a number with an optional unit: 4096, 512M and 1.5GiB count in powers of 1024, 512MB in powers of 1000.
/// Exit status: 0 success, 1 failure, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "deepram", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Demonstrate a pool: updates, crash, recovery and rollback, in about a minute
    ///
    /// Creates a pool several times larger than its DRAM, fills it and updates it at random (HPCC
    /// RandomAccess) through ordinary loads and stores, and kills the updating process. Then reopens
    /// the pool, verifies every word against the last token, rolls back to an earlier token and
    /// verifies every word again.
    Demo(DemoArgs),
    /// The updating process of the demo
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
    /// Run an unmodified program in less DRAM than its memory needs
    ///
    /// A library, loaded into the program and all its descendants, pages their large memory to swap files. All of them
    /// together keep within the DRAM budget. The exit status is the program's own, or 128 plus the signal's number if a
    /// signal ended the program; 127 if the program does not exist, 126 if it cannot be executed.
    ///
    /// Example: deepram run --dram 512MiB --stats -- sort -S 2G big.txt
    Run(crate::run::RunArgs),
    /// Enters the cgroup of a run and executes the program
    #[command(hide = true)]
    RunExec(crate::run::ExecArgs),
    /// Show live paging statistics of programs under `deepram run`
    ///
    /// Shows all runs of this user; the runs need no option for it. Press q or Ctrl-C to quit.
    Top(crate::top::TopArgs),
    /// Create, inspect, check, repair and mount pools
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Simulate a memory system in virtual time
    #[command(after_long_help = crate::sim::workloads())]
    Sim(Box<crate::sim::SimArgs>),
    /// Simulate every point of a grid: any parameters, in parallel, resumable
    ///
    /// FILE is a TOML file: the options of `deepram sim`, and axes with the values of those that vary. Writes
    /// OUT/results.jsonl and OUT/results.parquet in the order of the grid, and with [pareto] the Pareto front as a table and
    /// as OUT/pareto.html. Finished points are kept in OUT/journal.jsonl. A sweep that was killed resumes where it stopped,
    /// and its results have the bytes of an undisturbed sweep. The exit status is 1 if a simulation failed.
    ///
    /// Example: deepram sweep sizes.toml
    Sweep(crate::sweep::SweepArgs),
    /// Choose a memory hierarchy for a trace: latency, energy, lifetime and price of many
    ///
    /// Simulates memory systems (DRAM in front of PCM, CXL memory and flash) or drives with their write buffers under the
    /// trace and prints the Pareto front. With --target it also prints the cheapest hierarchy that keeps the goals, and why
    /// the next cheaper one fails. Price, lifetime and standby power are those of the part of a device that the data need.
    ///
    /// Example: deepram plan --trace requests.csv --target p99=200us,years=5
    Plan(crate::plan::PlanArgs),
    /// Reproduce the published results of a paper
    ///
    /// Runs the simulations behind the paper's claims and compares each claim with our value: the paper's value, ours,
    /// the tolerance, the verdict. Writes DIR/index.html, a page without external files, and DIR/results.json. Finished
    /// runs are kept in DIR/runs. Interrupted runs resume where they stopped.
    Repro(crate::repro::ReproArgs),
    /// Inspect, convert and record traces
    Trace {
        #[command(subcommand)]
        command: crate::trace::TraceCommand,
    },
    /// List and show the device presets of the simulator, every value with its source
    Media {
        #[command(subcommand)]
        command: crate::media::MediaCommand,
    },
    /// Measure deepram, its peers and the device in the same run
    Bench {
        #[command(subcommand)]
        command: crate::bench::BenchCommand,
    },
    /// Print shell completions
    ///
    /// For bash: deepram completions bash > ~/.local/share/bash-completion/completions/deepram
    Completions {
        /// Shell to print completions for
        shell: Shell,
    },
    /// Print the manual page, or write the manual pages of all commands to a folder
    Man {
        /// Folder for the manual pages of all commands
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print a generated page of the reference as Markdown
    #[command(hide = true)]
    Reference {
        /// The page
        page: crate::reference::Page,
        /// Folder of the documentation
        #[arg(long, value_name = "DIR", default_value = "docs")]
        docs: PathBuf,
    },
}

/// Options of `deepram demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the pool's file; the file is removed at the end
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Size of the table, a power of two
    #[arg(long, default_value = "1G", value_parser = table_size)]
    pub(crate) size: Bytes,
    /// DRAM budget of the whole process
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) dram: Bytes,
    /// Seconds of updates before the kill
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Number of updating threads
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Keep the pool's file, in the state of the token rolled back to
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of the hidden process of the demo.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    /// The pool's file
    #[arg(long)]
    pub(crate) pool: PathBuf,
    /// Words in the table
    #[arg(long)]
    pub(crate) words: u64,
    /// DRAM budget, bytes
    #[arg(long)]
    pub(crate) dram: u64,
    /// Threads
    #[arg(long)]
    pub(crate) threads: u32,
    /// Updates between two syncs
    #[arg(long)]
    pub(crate) round: u64,
    /// Process id of the demo
    #[arg(long)]
    pub(crate) parent: u32,
}

/// Commands on pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Create a pool in new files or on block devices, one controller for each
    Create {
        #[command(flatten)]
        pool: Target,
        /// Memory of each controller
        #[arg(long)]
        size: Bytes,
        /// Flash of each controller [default: 2.4 times the memory, and more for pools below 1 GiB]
        #[arg(long, value_name = "SIZE")]
        flash: Option<Bytes>,
        /// Memory for persist regions, for which the pool reserves a line log
        #[arg(long, default_value = "0", value_name = "SIZE")]
        pmem: Bytes,
        /// Segment size: the unit of reads, writes and the DRAM cache
        #[arg(long, value_name = "SIZE", default_value = "4K")]
        segment: Segment,
        /// Number of tokens to keep
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
        keep: u32,
        /// Address at which the pool is mapped, a multiple of 64 KiB [default: chosen by deepram]
        #[arg(long, value_name = "ADDR", value_parser = address)]
        base: Option<u64>,
        /// Parity: data and parity columns of each block, such as 8+1 (or 8), or 8+2 against two lost columns [default:
        /// none; damage is detected only]
        #[arg(long, value_name = "P+Q")]
        redundancy: Option<Redundancy>,
        #[command(flatten)]
        limits: WriteLimits,
        /// Also create a controller on byte-addressable memory of this size in a new file on a DAX file system, or in
        /// /dev/shm to emulate one; may be given several times
        #[arg(long, value_name = "PATH=SIZE", value_parser = memory_file)]
        memory: Vec<MemoryFile>,
        /// Overwrite a block device that holds a pool or a file system; a device in use is never overwritten
        #[arg(long)]
        force: bool,
    },
    /// Show properties, state and wear of a pool, without changing it
    Info {
        #[command(flatten)]
        pool: Target,
        /// Bytes that each device is rated for in its life, for this projection (600TB) [default: as created]
        #[arg(long, value_name = "SIZE")]
        rated_tbw: Option<Bytes>,
    },
    /// List the tokens for a rollback, without changing the pool
    History {
        #[command(flatten)]
        pool: Target,
    },
    /// Roll back to a token and discard every later change
    Rollback {
        #[command(flatten)]
        pool: Target,
        /// Token, as listed by `history`
        #[arg(long, value_name = "N")]
        token: u64,
        /// DRAM budget
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
    /// Read everything and repair what is damaged: with redundancy from parity, else only report it
    ///
    /// Reads all slots in use and all parity, rewrites damaged segments, batch headers and tables with the bytes that
    /// parity gives, and writes damaged or missing parity anew.
    Scrub {
        #[command(flatten)]
        pool: Target,
        /// DRAM budget
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
    /// Read and check every structure and every segment; without --repair the pool is not changed
    Check {
        #[command(flatten)]
        pool: Target,
        /// Repair with the check: rewrite damaged copies, and damaged segments from parity; discard the log after its
        /// first damage
        #[arg(long)]
        repair: bool,
        /// Token to roll back to if the log is damaged [default: the last token before the damage]
        #[arg(long, value_name = "TOKEN", requires = "repair")]
        at_token: Option<u64>,
        /// DRAM budget of the repair
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
    /// Move the data of sparsely filled blocks together
    Compact {
        #[command(flatten)]
        pool: Target,
        /// DRAM budget
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
    /// Mount a pool as a file system: files and directories in its memory, durable at each fsync
    ///
    /// The pool then holds files beside whatever else it holds; the first mount makes an empty file system. Each fsync makes a
    /// token, so `rollback` returns all files together to an earlier fsync. Ends by umount, Ctrl-C or SIGTERM, with a last sync;
    /// a second signal does not wait for open files. Needs /dev/fuse and, for users other than root, fusermount3.
    ///
    /// Example: deepram pool mount data.pool files
    Mount(crate::pool::mount::MountArgs),
    /// Unmount a pool, and wait until it is closed
    Umount(crate::pool::mount::UmountArgs),
}

/// Limits on the bytes written to a device.
#[derive(Debug, Clone, Args)]
pub(crate) struct WriteLimits {
    /// Bytes that each device is rated for in its life (TBW), from which `info` projects how long it lasts (600TB)
    #[arg(long, value_name = "SIZE")]
    pub(crate) rated_tbw: Option<Bytes>,
    /// Bytes written to each device in a day, above which background writes wait [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) writes_per_day: Option<Bytes>,
}

/// The pool of a command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// All files or block devices of the pool
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Segment sizes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Segment {
    #[value(name = "4K", alias = "4k", alias = "4KiB")]
    K4,
    #[value(name = "8K", alias = "8k", alias = "8KiB")]
    K8,
    #[value(name = "16K", alias = "16k", alias = "16KiB")]
    K16,
}

impl From<Segment> for SegmentSize {
    fn from(segment: Segment) -> Self {
        match segment {
            Segment::K4 => Self::K4,
            Segment::K8 => Self::K8,
            Segment::K16 => Self::K16,
        }
    }
}

/// Smallest table of the demo, bytes: several pages for each thread.
const LEAST_TABLE: u64 = 16 << 20;

/// Parses the size of a table.
fn table_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size.0 >= LEAST_TABLE && size.0.is_power_of_two() {
        return Ok(size);
    }
    let near = (size.0 / 2 + 1).checked_next_power_of_two().unwrap_or(1 << 63).max(LEAST_TABLE);
    Err(format!(
        "the size of a table is a power of two, at least {}: try {}",
        Bytes(LEAST_TABLE),
        Bytes(near)
    ))
}

/// Parses an address at which a pool can be mapped.
fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(&digits.replace('_', ""), 16),
        None => text.parse(),
    };
    match parsed {
        Ok(address) if address != 0 && address % (1 << 16) == 0 => Ok(address),
        Ok(_) => Err("expected a multiple of 64 KiB (0x10000) other than 0".into()),
        Err(_) => Err("expected an address such as 0x200000000000".into()),
    }
}

/// Parses a memory controller: its file and its size.
fn memory_file(text: &str) -> Result<MemoryFile, String> {
    let (path, size) = text
        .rsplit_once('=')
        .filter(|(path, _)| !path.is_empty())
        .ok_or("expected PATH=SIZE, such as /dev/shm/data.mem=256M")?;
    let size: Bytes = size.parse().map_err(|error| format!("the size of {path}: {error}"))?;
    Ok(MemoryFile { path: path.into(), size: size.0 })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_table_is_a_power_of_two_and_the_error_names_the_nearest() {
        assert_eq!(table_size("1G"), Ok(Bytes(1 << 30)));
        assert!(table_size("1000M").unwrap_err().contains("512 MiB"));
        assert!(table_size("1M").unwrap_err().contains("16 MiB"));
        assert!(table_size("1 lot").unwrap_err().contains("is not a size"));
    }

    #[test]
    fn a_base_is_a_multiple_of_a_page() {
        assert_eq!(address("0x2000_0000_0000"), Ok(0x2000_0000_0000));
        assert_eq!(address("65536"), Ok(65536));
        for wrong in ["0", "0x10001", "here", "0xg"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
