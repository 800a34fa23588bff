//! What can be typed. Help, man pages and completions all come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use deepram_core::Bytes;
use deepram_pool::SegmentSize;

/// Flash as byte-addressable main memory, with DRAM as its cache.
///
/// A pool is memory in a file or block device: larger than the DRAM it uses, safe across crashes
/// up to its last sync, and able to go back to earlier ones.
///
/// Sizes are numbers with an optional unit: 4096, 512M, 1.5GiB are powers of 1024, 512MB of 1000.
/// Exit status: 0 done, 1 the work failed, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "deepram", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the whole of it, in a minute or two, on any machine
    ///
    /// Creates a pool several times larger than its DRAM, fills it and updates it at random (HPCC
    /// RandomAccess) through ordinary loads and stores, kills the process that does so, reopens
    /// the pool, verifies every word against the last token, rolls back to an earlier token and
    /// verifies that too.
    Demo(DemoArgs),
    /// The process that the demo kills
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
    /// Run a program with more memory than there is DRAM for it
    ///
    /// The program's large memory is paged to a file by a library that is loaded into it and into all that it
    /// starts; the program is not changed. Together they keep to the DRAM given. The exit status is the
    /// program's own, 128 and the signal's number if a signal ended it; 127 if there is no such program, 126 if it
    /// cannot be executed.
    ///
    /// Example: deepram run --dram 512MiB --stats -- sort -S 2G big.txt
    Run(crate::run::RunArgs),
    /// The process that becomes the program
    #[command(hide = true)]
    RunWithin(crate::run::WithinArgs),
    /// Show what programs under `deepram run` are doing, as it happens
    ///
    /// Those of this user, without having been asked for it; q or Ctrl-C ends.
    Top(crate::top::TopArgs),
    /// Create, look at and mend pools
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Simulate a memory system in virtual time
    #[command(after_long_help = crate::sim::workloads())]
    Sim(Box<crate::sim::SimArgs>),
    /// Compute the published figures of a paper anew
    ///
    /// Runs the simulations behind them, two at a time on two processors, and judges each claim: the paper's
    /// value, ours, the tolerance, the verdict. Writes DIR/index.html, a page that needs nothing else, and
    /// DIR/results.json. What is interrupted goes on where it was: finished runs are kept in DIR/runs.
    Repro(crate::repro::ReproArgs),
    /// Look at traces, turn one format into another, record a program's
    Trace {
        #[command(subcommand)]
        command: crate::trace::TraceCommand,
    },
    /// Show the devices that the simulator knows: every figure with its source
    Media {
        #[command(subcommand)]
        command: crate::media::MediaCommand,
    },
    /// Measure, each figure beside its peer or its physical limit
    Bench {
        #[command(subcommand)]
        command: crate::bench::BenchCommand,
    },
    /// Print completions for a shell
    ///
    /// For bash: deepram completions bash > ~/.local/share/bash-completion/completions/deepram
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands to a folder
    Man {
        /// Folder for the pages of all commands
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print a generated page of the reference as Markdown
    #[command(hide = true)]
    Reference {
        /// The page
        page: crate::reference::Page,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the pool's file, which is removed at the end
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Memory in the table: a power of two
    #[arg(long, default_value = "1G", value_parser = table_size)]
    pub(crate) size: Bytes,
    /// DRAM for the whole process
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) dram: Bytes,
    /// How long the table is updated before the kill
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Threads that load and store
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Leave the pool's file, at the token rolled back to
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    /// The pool's file
    #[arg(long)]
    pub(crate) pool: PathBuf,
    /// Words in the table
    #[arg(long)]
    pub(crate) words: u64,
    /// DRAM in bytes
    #[arg(long)]
    pub(crate) dram: u64,
    /// Threads
    #[arg(long)]
    pub(crate) threads: u32,
    /// Updates from token to token
    #[arg(long)]
    pub(crate) round: u64,
    /// The process that started this one
    #[arg(long)]
    pub(crate) parent: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Create a pool in new files, or on block devices, one controller each
    Create {
        #[command(flatten)]
        pool: Target,
        /// Memory that each controller offers
        #[arg(long)]
        size: Bytes,
        /// Flash that each controller uses [default: a little over twice the memory]
        #[arg(long, value_name = "SIZE")]
        flash: Option<Bytes>,
        /// Memory that will be persist regions: makes room for the log of their lines
        #[arg(long, default_value = "0", value_name = "SIZE")]
        pmem: Bytes,
        /// What is read, cached and written at once
        #[arg(long, value_name = "SIZE", default_value = "4K")]
        segment: Segment,
        /// Tokens that are kept
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
        keep: u32,
        /// Address to map the pool at, a multiple of 64 KiB [default: one of our choice]
        #[arg(long, value_name = "ADDR", value_parser = address)]
        base: Option<u64>,
        /// Overwrite a block device that holds a pool or a file system; one that is in use never is
        #[arg(long)]
        force: bool,
    },
    /// Show what a pool is; changes nothing
    Info {
        #[command(flatten)]
        pool: Target,
    },
    /// List the tokens that can be rolled back to; changes nothing
    History {
        #[command(flatten)]
        pool: Target,
    },
    /// Go back to a token: what came after it is gone
    Rollback {
        #[command(flatten)]
        pool: Target,
        /// The token, as `history` lists it
        #[arg(long, value_name = "N")]
        token: u64,
        /// DRAM that may be used for it
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
    /// Read every structure and every segment, and check them; changes nothing without --repair
    Check {
        #[command(flatten)]
        pool: Target,
        /// Repair what can be repaired first: write damaged copies anew, and where the log is damaged, give up what
        /// follows the damage
        #[arg(long)]
        repair: bool,
        /// Where the log is damaged, go back to this token; without it, to the last one before the damage
        #[arg(long, value_name = "TOKEN", requires = "repair")]
        at_token: Option<u64>,
        /// DRAM that may be used for a repair
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
    /// Empty sparsely filled blocks
    Compact {
        #[command(flatten)]
        pool: Target,
        /// DRAM that may be used for it
        #[arg(long, value_name = "SIZE", default_value = "256M")]
        dram: Bytes,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// The pool's files or block devices, all of them
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

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

/// The smallest table that spans a few pages on every thread.
const LEAST_TABLE: u64 = 16 << 20;

fn table_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size.0 >= LEAST_TABLE && size.0.is_power_of_two() {
        return Ok(size);
    }
    let near = (size.0 / 2 + 1).checked_next_power_of_two().unwrap_or(1 << 63).max(LEAST_TABLE);
    Err(format!("a table has a power of two of bytes, {} at least: try {}", Bytes(LEAST_TABLE), Bytes(near)))
}

fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(&digits.replace('_', ""), 16),
        None => text.parse(),
    };
    match parsed {
        Ok(address) if address != 0 && address % (1 << 16) == 0 => Ok(address),
        Ok(_) => Err("an address to map at is a multiple of 64 KiB (0x10000), not 0".into()),
        Err(_) => Err("write an address like 0x200000000000".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_of_the_command_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_table_is_a_power_of_two_and_the_error_names_one_near_by() {
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
