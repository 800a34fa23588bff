//! Resident memory of this process, as the kernel reports it.

use anyhow::{Context, bail};

/// Resident memory of this process, in bytes (`VmRSS`).
pub(crate) fn resident_bytes() -> anyhow::Result<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?)
}

fn parse(status: &str) -> anyhow::Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = value.and_then(|v| v.trim().strip_suffix("kB")).and_then(|v| v.trim().parse::<u64>().ok());
    match kib {
        Some(kib) => Ok(kib << 10),
        None => bail!("/proc/self/status has no line VmRSS in kB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_vmrss_is_parsed_and_others_are_errors() {
        assert_eq!(parse("VmHWM:\t  99 kB\nVmRSS:\t    1234 kB\n").unwrap(), 1234 << 10);
        assert!(parse("VmSize:\t 1 kB\n").is_err());
        assert!(resident_bytes().unwrap() > 0);
    }
}
