//! Wear: lifetimes, and the balance of two memories that are written together.

use deepram_core::units::Bytes;

/// Bytes that can be written to the medium before it is worn out, with perfectly even wear.
pub fn total_writes(capacity: Bytes, endurance: u64) -> f64 {
    capacity.0 as f64 * endurance as f64
}

/// Seconds until the medium is worn out: capacity x endurance x evenness over host bytes a second x write
/// amplification. `evenness` is the mean wear over the largest, 1 for perfect levelling. Infinite if
/// nothing is written.
pub fn lifetime_seconds(
    capacity: Bytes,
    endurance: u64,
    host_bytes_per_second: f64,
    write_amplification: f64,
    evenness: f64,
) -> f64 {
    let medium = host_bytes_per_second * write_amplification;
    if medium > 0.0 { total_writes(capacity, endurance) * evenness / medium } else { f64::INFINITY }
}

/// How many writes the cache's memory bears for each that the SSD bears: capacity x endurance of the one
/// over that of the other (hybrid SSD cache, section V-C). 0 if the SSD bears none.
pub fn endurance_ratio(cache: (Bytes, u64), ssd: (Bytes, u64)) -> f64 {
    let ssd = total_writes(ssd.0, ssd.1);
    if ssd > 0.0 { total_writes(cache.0, cache.1) / ssd } else { 0.0 }
}

/// Writes out of `period` that must go to the SSD so that both wear out together: period over ratio + 1
/// (hybrid SSD cache, section V-C).
pub fn ssd_writes(period: u64, endurance_ratio: f64) -> f64 {
    period as f64 / (endurance_ratio + 1.0)
}
