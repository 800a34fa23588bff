//! The state of a drive before the run.
//!
//! The steady state of uniform random writing under greedy reclamation is estimated by the mean-field
//! model of B. Van Houdt, "A mean field model for a class of garbage collection algorithms in
//! flash-based solid state drives", SIGMETRICS 2013. With w(i) the share of blocks that hold at least i
//! live pages, rho the share of live pages and d candidates at each reclamation,
//!
//! dw(i)/dt = 1 - w(i)^d - (b - sum over j of w(j)^d) x i (w(i) - w(i+1)) / (b rho).
//!
//! d = 30 stands for greedy, as in that paper. The equation is solved by Euler steps.

use super::options::Precondition;
use super::parallel::{MappingEntry, ParallelSsd};
use crate::error::SimError;
use crate::flash_array::blocks::FrontierUse;
use deepram_trace::workload::Rng;

/// Shares of blocks with 0 to `pages` live pages in the steady state at utilisation `rho`.
pub(crate) fn steady_state(pages: usize, rho: f64, candidates: i32) -> Vec<f64> {
    let b = pages as f64;
    // The initial densities are binomial, computed by the ratio of neighbours.
    let mut density = vec![0.0; pages + 1];
    let mut log = b * (1.0 - rho).ln();
    for (i, share) in density.iter_mut().enumerate() {
        *share = log.exp();
        log += ((b - i as f64) / (i as f64 + 1.0) * rho / (1.0 - rho)).ln();
    }
    let mut at_least = vec![0.0; pages + 2];
    for i in (0..=pages).rev() {
        at_least[i] = at_least[i + 1] + density[i];
    }
    at_least[0] = 1.0;
    const STEP: f64 = 0.001;
    for _ in 0..10_000 {
        let powers: Vec<f64> = at_least.iter().map(|w| w.powi(candidates)).collect();
        let sum: f64 = powers[1..=pages].iter().sum();
        let mut change = 0.0f64;
        let before = at_least.clone();
        for i in 1..=pages {
            let leaving = (b - sum) * (i as f64 * (before[i] - before[i + 1])) / (b * rho);
            let delta = STEP * (1.0 - powers[i] - leaving);
            at_least[i] = before[i] + delta;
            change = change.max(delta.abs());
        }
        if change < 1e-10 {
            break;
        }
    }
    (0..=pages).map(|i| (at_least[i] - at_least[i + 1]).max(0.0)).collect()
}

/// Brings the drive into the state that its options request.
pub(crate) fn apply(machine: &mut ParallelSsd, seed: u64) -> Result<(), SimError> {
    let share = match machine.options.precondition {
        Precondition::Empty => return Ok(()),
        Precondition::Sequential(share) | Precondition::Steady(share) => share,
    };
    if !(0.0..=1.0).contains(&share) {
        return Err(SimError::config("precondition", format!("{share} is not a share between 0 and 1")));
    }
    let logical = machine.logical_pages();
    let wanted = (logical as f64 * share) as u64;
    match machine.options.precondition {
        Precondition::Steady(_) => steady(machine, logical, wanted, seed),
        _ => (0..wanted).try_for_each(|page| write(machine, page as u32).map(|_| ())),
    }
}

/// Writes a page without simulated time. Returns true if its block is now full.
fn write(machine: &mut ParallelSsd, page: u32) -> Result<bool, SimError> {
    let plane = machine.plane_of_page(page);
    let Some((address, full)) = machine.planes.allocate(plane, FrontierUse::Host, page) else {
        return Err(SimError::Full {
            time_ps: 0,
            what: format!("plane {plane} is full during preconditioning"),
        });
    };
    machine.planes.programmed(address)?;
    let sectors = machine.full_sectors();
    machine.map.set(page, MappingEntry { physical: address.physical, sectors, window: 0 });
    Ok(full)
}

/// Places pages chosen at random in blocks whose live counts follow the steady state.
fn steady(machine: &mut ParallelSsd, logical: u64, wanted: u64, seed: u64) -> Result<(), SimError> {
    let planes = machine.order.len() as u32;
    let (blocks, pages) = (machine.planes.blocks, machine.planes.pages);
    let mut random = Rng::new(seed, "precondition");
    let mut of_plane: Vec<Vec<u32>> = vec![Vec::new(); planes as usize];
    let mut left = wanted;
    for page in 0..logical {
        // Selection sampling: exactly `wanted` pages, each set of them equally likely.
        if random.below(logical - page) < left {
            left -= 1;
            of_plane[machine.plane_of_page(page as u32) as usize].push(page as u32);
        }
    }
    let threshold = ((f64::from(blocks) * machine.ssd.reclaim_below.0) as u32).max(1);
    let goal = blocks - threshold / 2;
    let rho = wanted as f64
        / (f64::from(planes) * f64::from(blocks) * f64::from(pages))
        / (1.0 - f64::from(threshold) / f64::from(blocks));
    if rho >= 1.0 {
        return Err(SimError::config("precondition", "leaves no room for writes; use a smaller share"));
    }
    let density = steady_state(pages as usize, rho, 30);
    let model: f64 = density.iter().enumerate().map(|(i, share)| share * i as f64 / f64::from(pages)).sum();
    for plane in 0..planes {
        let mut list = std::mem::take(&mut of_plane[plane as usize]);
        let real = list.len() as f64 / (f64::from(goal) * f64::from(pages));
        let shift = if (model - real).abs() * f64::from(pages) > 0.9999 {
            ((real - model) * f64::from(pages)) as i64
        } else {
            0
        };
        let shares: Vec<f64> = (0..=i64::from(pages))
            .map(|i| usize::try_from(i - shift).ok().and_then(|i| density.get(i)).copied().unwrap_or(0.0))
            .collect();
        let counts: Vec<u64> = shares.iter().map(|share| (share * f64::from(goal)) as u64).collect();
        let held: u64 = counts.iter().enumerate().map(|(i, count)| i as u64 * count).sum();
        let mut short = (list.len() as u64).saturating_sub(held);
        let mut room = u64::from(goal);
        for live in (0..=pages as usize).rev() {
            let mut count = counts[live];
            if count > 0 && short > 0 && live > 0 {
                count += short.div_ceil(live as u64);
                short = 0;
            }
            count = count.min(room);
            room -= count;
            for _ in 0..count {
                let take = live.min(list.len());
                for _ in 0..take {
                    if let Some(page) = list.pop() {
                        write(machine, page)?;
                    }
                }
                if take < pages as usize {
                    machine.planes.fill_with_dead_pages(plane, FrontierUse::Host)?;
                }
            }
        }
        for page in list {
            write(machine, page)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_state_is_a_distribution_with_the_mean_asked_for() {
        for rho in [0.5, 0.7, 0.85] {
            let density = steady_state(64, rho, 30);
            let sum: f64 = density.iter().sum();
            let mean: f64 = density.iter().enumerate().map(|(i, p)| i as f64 * p).sum::<f64>() / 64.0;
            assert!((sum - 1.0).abs() < 1e-6, "{sum}");
            assert!((mean - rho).abs() < 0.02, "{mean} {rho}");
        }
    }
}
