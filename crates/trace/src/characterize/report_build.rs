//! Makes the report of a finished characterisation.

use super::hit_ratio::{Counted, Denominator, DistanceHistogram};
use super::optimum::OPTIMUM;
use super::options::{CharacterizeError, CharacterizeOptions, HIT_RATIOS};
use super::page_figures::PageFigures;
use super::report::{
    CapacityForHitRatio, Characterization, HitRatios, PolicyHitRatios, SampleReport, Sizes, SpatialReport,
    Times,
};
use super::sampling::Sample;
use super::spatial::SpatialCounts;
use super::{Characterizer, Traffic};

impl Characterizer {
    /// The report of the records added.
    pub(super) fn report(self) -> Result<Characterization, CharacterizeError> {
        let requests = self.requests();
        let pages = self.pages.finish()?;
        let [read, write] = self.traffic;
        let accesses = [read.page_accesses, write.page_accesses];
        let factor = pages.sample.as_ref().map_or(1.0, |sample| 1.0 / sample.rate());
        let estimate = |pages: u64| (pages as f64 * factor).round() as u64;
        let [read_pages, write_pages] = pages.working_sets.unique();
        let all = Traffic {
            requests,
            bytes: read.bytes + write.bytes,
            page_accesses: read.page_accesses + write.page_accesses,
            unique_pages: estimate(pages.index.len().into()),
        };
        let capacities = capacities(all.unique_pages);
        let options = &self.options;
        let exact = pages.sample.is_none().then_some(&pages.distances);
        let of_writes = options.write_only_stack.then_some(&pages.write_distances);
        let lru = match &pages.sample {
            None => exact_hit_ratios(&pages.distances, &capacities, options),
            Some(sample) => sampled_hit_ratios(sample, &capacities, accesses, options),
        };
        let [sizes_read, sizes_write] = &self.sizes;
        let mut sizes_all = sizes_read.clone();
        sizes_all.merge(sizes_write);
        Ok(Characterization {
            page_bytes: options.page_bytes,
            records: self.records,
            all,
            read: Traffic { unique_pages: estimate(read_pages), ..read },
            write: Traffic { unique_pages: estimate(write_pages), ..write },
            write_share: (requests > 0).then(|| write.requests as f64 / requests as f64),
            trims: self.trims,
            flushes: self.flushes,
            empty: self.empty,
            times: self.times.map(|(first_ps, last_ps)| Times {
                first_ps,
                last_ps,
                timed: self.timed,
                out_of_order: self.out_of_order,
                requests_per_s: (last_ps > first_ps)
                    .then(|| self.timed as f64 / ((last_ps - first_ps) as f64 / 1e12)),
            }),
            sample: pages
                .sample
                .as_ref()
                .map(|sample| SampleReport { rate: sample.rate(), pages: sample.len().into() }),
            spatial: spatial(self.spatial.settings().iter().copied().zip(self.spatial.counts())),
            lru,
            lru_of_writes: of_writes.map_or_else(Vec::new, |d| exact_hit_ratios(d, &capacities, options)),
            capacity_for_hit_ratio: exact.map_or_else(Vec::new, |d| {
                HIT_RATIOS.iter().map(|&hit_ratio| capacity_for(d, of_writes, hit_ratio)).collect()
            }),
            policies: policy_hit_ratios(&pages, options.page_bytes),
            working_sets: pages.working_sets.finish(requests),
            addresses: self.addresses.finish(requests),
            over_time: if self.timed > 0 { self.by_time } else { self.by_request },
            over_time_unit: if self.timed > 0 { "ps" } else { "requests" },
            sizes: Sizes {
                all: sizes_all.distribution(),
                read: sizes_read.distribution(),
                write: sizes_write.distribution(),
            },
            interarrival_ps: self.interarrival.distribution(),
            distances: pages.sample.is_none().then_some(pages.distances),
            distances_of_writes: self.options.write_only_stack.then_some(pages.write_distances),
        })
    }
}

/// Capacities, in pages, at which hit ratios are reported: four an octave up to the unique pages.
fn capacities(unique_pages: u64) -> Vec<u64> {
    let steps = (0..62).flat_map(|octave| (4..8u64).map(move |step| (step << octave) / 4));
    let mut capacities: Vec<u64> = steps.take_while(|pages| *pages < unique_pages).collect();
    capacities.extend((unique_pages > 0).then_some(unique_pages));
    capacities.dedup();
    capacities
}

fn spatial<'a>(
    counted: impl Iterator<Item = (super::SpatialSetting, &'a SpatialCounts)>,
) -> Vec<SpatialReport> {
    let report = |(setting, counts): (_, &SpatialCounts)| SpatialReport {
        setting,
        counts: *counts,
        all: SpatialCounts::shares(counts.all()),
        read: SpatialCounts::shares(counts.read),
        write: SpatialCounts::shares(counts.write),
    };
    counted.filter(|(_, counts)| counts.all() != [0; 4]).map(report).collect()
}

fn exact_hit_ratios(
    distances: &DistanceHistogram,
    capacities: &[u64],
    options: &CharacterizeOptions,
) -> Vec<HitRatios> {
    let hits =
        [Counted::All, Counted::Reads, Counted::Writes].map(|counted| distances.hits(capacities, counted));
    let [all, reads, writes] = [Counted::All, Counted::Reads, Counted::Writes].map(|c| distances.accesses(c));
    let first = [Counted::All, Counted::Writes].map(|counted| distances.first_accesses(counted));
    let ratio = |hits: u64, accesses: u64| (accesses > 0).then(|| hits as f64 / accesses as f64);
    let of = |(at, &capacity_pages): (usize, &u64)| HitRatios {
        capacity_pages,
        capacity_bytes: u128::from(capacity_pages) * u128::from(options.page_bytes),
        all: ratio(hits[0][at], all),
        read: ratio(hits[1][at], reads),
        write: ratio(hits[2][at], writes),
        all_rereferences: ratio(hits[0][at], all - first[0]),
        write_rereferences: ratio(hits[2][at], writes - first[1]),
        standard_error: None,
    };
    capacities.iter().enumerate().map(of).collect()
}

fn sampled_hit_ratios(
    sample: &Sample,
    capacities: &[u64],
    accesses: [u64; 2],
    options: &CharacterizeOptions,
) -> Vec<HitRatios> {
    let of = |&capacity_pages: &u64| {
        let [all, read, write] = [Counted::All, Counted::Reads, Counted::Writes]
            .map(|counted| sample.hit_ratio(capacity_pages, counted, accesses));
        HitRatios {
            capacity_pages,
            capacity_bytes: u128::from(capacity_pages) * u128::from(options.page_bytes),
            all: all.map(|(ratio, _)| ratio),
            read: read.map(|(ratio, _)| ratio),
            write: write.map(|(ratio, _)| ratio),
            all_rereferences: None,
            write_rereferences: None,
            standard_error: all.map(|(_, error)| error),
        }
    };
    capacities.iter().map(of).collect()
}

fn capacity_for(
    distances: &DistanceHistogram,
    of_writes: Option<&DistanceHistogram>,
    hit_ratio: f64,
) -> CapacityForHitRatio {
    let pages = |counted, over| distances.capacity_for(hit_ratio, counted, over);
    CapacityForHitRatio {
        hit_ratio,
        all: pages(Counted::All, Denominator::AllAccesses),
        write: pages(Counted::Writes, Denominator::AllAccesses),
        all_rereferences: pages(Counted::All, Denominator::Rereferences),
        write_rereferences: pages(Counted::Writes, Denominator::Rereferences),
        write_only_cache: of_writes
            .and_then(|d| d.capacity_for(hit_ratio, Counted::Writes, Denominator::AllAccesses)),
    }
}

/// The hit ratios of all simulated caches, and of the optimal replacement.
fn policy_hit_ratios(pages: &PageFigures, page_bytes: u64) -> Vec<PolicyHitRatios> {
    let of = |policy, capacity_pages, misses: [u64; 2], accesses: [u64; 2]| {
        let ratio = |counted: Counted| {
            let (misses, accesses) = (counted.of(misses), counted.of(accesses));
            (accesses > 0).then(|| 1.0 - misses as f64 / accesses as f64)
        };
        PolicyHitRatios {
            policy,
            capacity_pages,
            capacity_bytes: u128::from(capacity_pages) * u128::from(page_bytes),
            misses: Counted::All.of(misses),
            all: ratio(Counted::All),
            read: ratio(Counted::Reads),
            write: ratio(Counted::Writes),
        }
    };
    let simulated = pages.caches.iter();
    let mut all: Vec<_> = simulated
        .map(|cache| of(cache.policy.name(), cache.capacity_pages, cache.misses(), cache.accesses()))
        .collect();
    if let Some(optimum) = &pages.optimum {
        let accesses = optimum.accesses();
        all.extend(optimum.misses().into_iter().map(|(pages, misses)| of(OPTIMUM, pages, misses, accesses)));
    }
    all
}
