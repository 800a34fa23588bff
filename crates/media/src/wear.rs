//! Wear: lifetime of a medium, and the write balance of a cache and its SSD (hybrid SSD cache, section
//! V-C).

use deepram_core::units::Bytes;

use crate::value::Bandwidth;

/// Bytes that can be written to a medium before it is worn out, with perfect wear levelling.
pub fn total_writes(capacity: Bytes, endurance: u64) -> f64 {
    capacity.0 as f64 * endurance as f64
}

/// Lifetime in seconds: capacity x endurance x evenness over host bandwidth x write amplification.
/// `evenness` is the mean wear over the largest, 1 for perfect wear levelling. Infinite without writes.
pub fn lifetime_seconds(
    capacity: Bytes,
    endurance: u64,
    host_bandwidth: Bandwidth,
    write_amplification: f64,
    evenness: f64,
) -> f64 {
    let medium = host_bandwidth.0 * write_amplification;
    if medium > 0.0 { total_writes(capacity, endurance) * evenness / medium } else { f64::INFINITY }
}

/// Endurance ratio: writes that the cache's memory endures for each write that the SSD endures, which is
/// capacity x endurance of the cache over that of the SSD (hybrid SSD cache, section V-C). 0 if the SSD
/// endures none.
pub fn endurance_ratio(cache: (Bytes, u64), ssd: (Bytes, u64)) -> f64 {
    let ssd = total_writes(ssd.0, ssd.1);
    if ssd > 0.0 { total_writes(cache.0, cache.1) / ssd } else { 0.0 }
}

/// Writes of a period of `period` writes that must go to the SSD for both to wear out at the same time:
/// period over (endurance ratio + 1) (hybrid SSD cache, section V-C).
pub fn ssd_writes(period: u64, endurance_ratio: f64) -> f64 {
    period as f64 / (endurance_ratio + 1.0)
}
