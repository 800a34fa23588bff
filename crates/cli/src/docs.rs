//! Manual pages and shell completions, made from the definition of the command line.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::emit;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "deepram", &mut script);
    emit(|out| out.write_all(&script))
}

/// Prints the manual page of deepram, or writes the manual pages of all commands to a folder.
pub(crate) fn man(out: Option<&Path>) -> anyhow::Result<()> {
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        clap_mangen::generate_to(Cli::command(), dir)
            .with_context(|| format!("writing manual pages to {}", dir.display()))?;
        return Ok(());
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    emit(|out| out.write_all(&page))
}
