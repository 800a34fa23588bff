//! Former names of options and values. A command line that uses one fails with an error that names the present one.

/// A former name.
struct RenamedArgument {
    /// Subcommands before the name.
    command: &'static [&'static str],
    old: &'static str,
    new: &'static str,
}

const RENAMED: &[RenamedArgument] = &[
    RenamedArgument { command: &["bench", "persist"], old: "--ways", new: "--methods" },
    RenamedArgument { command: &["repro"], old: "ground", new: "validation" },
];

/// The error for a command line with a former name; `arguments` are those after the name of the program.
pub(crate) fn error(arguments: &[String]) -> Option<String> {
    let used = |renamed: &&RenamedArgument| {
        let after = arguments.get(renamed.command.len()..).unwrap_or_default();
        let command = renamed.command.iter().zip(arguments).all(|(wanted, word)| wanted == word);
        // A value counts in the first position only: elsewhere the word may belong to an option.
        let mut candidates =
            if renamed.old.starts_with('-') { after } else { &after[..after.len().min(1)] }.iter();
        command && candidates.any(|word| word.split('=').next() == Some(renamed.old))
    };
    let RenamedArgument { command, old, new } = RENAMED.iter().find(used)?;
    Some(format!("{old} is now {new}: use deepram {} {new}", command.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        error(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_former_name_is_an_error_that_names_the_present_one() {
        for line in ["bench persist --ways persist", "bench persist --json --ways=persist", "repro ground"] {
            let error = of(line).unwrap_or_else(|| panic!("{line}"));
            assert!(error.contains("--methods") || error.contains("validation"), "{error}");
        }
        for line in
            ["bench persist --methods persist", "repro nvmm --out ground", "trace info --ways", "repro"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
