//! Arrival processes of requests.

use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use deepram_core::units::PS_PER_S;

enum ArrivalProcess {
    Closed,
    Fixed(u64),
    Uniform(u64, u64),
    /// Mean interval in picoseconds.
    Poisson(f64),
}

/// Generates arrival times, the first one interval after zero.
pub(super) struct Arrival {
    law: ArrivalProcess,
    now: u64,
    rng: Rng,
}

impl Arrival {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Arrival, SpecFault> {
        let law = if !spec.info().arrival { ArrivalProcess::Closed } else { law(spec)? };
        Ok(Arrival { law, now: 0, rng: Rng::new(seed, "arrival") })
    }

    /// Returns the next arrival time in picoseconds; `None` in a closed loop. Saturates at 2^64 ps.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u64> {
        let gap = match self.law {
            ArrivalProcess::Closed => return None,
            ArrivalProcess::Fixed(gap) => gap,
            ArrivalProcess::Uniform(low, high) => self.rng.between(low, high),
            ArrivalProcess::Poisson(mean) => (-libm::log1p(-self.rng.unit()) * mean) as u64,
        };
        self.now = self.now.saturating_add(gap);
        Some(self.now)
    }
}

fn law(spec: &Spec) -> Result<ArrivalProcess, SpecFault> {
    let law = spec.choice("arrival");
    let keys: &[&str] = match law {
        "fixed" => &["interval"],
        "uniform" => &["lo", "hi"],
        "poisson" => &["rate"],
        _ => &[],
    };
    for key in ["interval", "lo", "hi", "rate"] {
        let used = keys.contains(&key);
        if spec.given(key) && !used {
            return Err(SpecFault::Values(format!("{key} is not used with arrival={law}")));
        }
    }
    if let Some(missing) = keys.iter().find(|key| **key != "lo" && !spec.given(key)) {
        return Err(SpecFault::Values(format!("arrival={law} needs {missing}")));
    }
    if spec.given("emit") && spec.choice("emit") == "mem" && law != "closed" {
        return Err(SpecFault::Values("memory references (emit=mem) have no arrival times".to_string()));
    }
    let (low, high) = (spec.int("lo"), spec.int("hi"));
    Ok(match law {
        "fixed" => ArrivalProcess::Fixed(spec.int("interval")),
        "uniform" if low <= high => ArrivalProcess::Uniform(low, high),
        "uniform" => return Err(SpecFault::Values("lo is above hi".to_string())),
        "poisson" => ArrivalProcess::Poisson(PS_PER_S as f64 / spec.real("rate")),
        _ => ArrivalProcess::Closed,
    })
}
