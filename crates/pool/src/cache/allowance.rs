//! Keeps background writes within the bytes that may be written to each device in a day
//! ([`crate::OpenOptions::writes_per_day`]). Core decides; see [`WriteAllowance`].

use std::sync::{Arc, Mutex};
use std::time::Instant;

use deepram_core::Bytes;
use deepram_core::write_allowance::{AllowanceChange, WriteAllowance};

use super::Cache;
use crate::endurance::Endurance;
use crate::stats::add;
use crate::store::Store;
use deepram_linux::lock::lock;

/// The allowance of each device; empty without a limit.
pub(super) struct Allowance {
    started: Instant,
    devices: Mutex<Vec<WriteAllowance>>,
}

impl Allowance {
    /// Begins with full allowances of `per_day` bytes, or of the limit that the pool was created with.
    pub(super) fn new(per_day: Option<u64>, stores: &[Arc<Store>]) -> Self {
        let limit = |store: &Arc<Store>| per_day.unwrap_or(store.wear_limits().per_day);
        let limited = stores.iter().filter(|store| limit(store) > 0);
        let devices =
            limited.map(|store| WriteAllowance::new(limit(store), 0, store.wear().written)).collect();
        Self { started: Instant::now(), devices: Mutex::new(devices) }
    }
}

impl Cache {
    /// Returns whether writes may be made now that no caller waits for.
    pub(super) fn may_write_in_background(&self) -> bool {
        let now_ns = self.allowance.started.elapsed().as_nanos() as u64;
        let mut devices = lock(&self.allowance.devices);
        for (allowance, store) in devices.iter_mut().zip(&self.stores) {
            let change = allowance.update(now_ns, store.wear().written);
            let (device, limit) = (store.device().name(), Bytes(allowance.bytes_per_day()));
            match change {
                Some(AllowanceChange::Deferring) => {
                    add(&self.counters.write_deferrals, 1);
                    tracing::warn!(device, %limit, "the writes allowed in a day are used up: background writes wait");
                }
                Some(AllowanceChange::Allowed) => {
                    tracing::info!(device, %limit, "background writes go on");
                }
                None => {}
            }
        }
        !devices.iter().any(WriteAllowance::is_deferring)
    }

    /// Adds the limit that is in force, and whether writes wait because of it.
    pub(crate) fn add_allowance(&self, endurance: &mut Endurance) {
        let devices = lock(&self.allowance.devices);
        endurance.writes_per_day = devices.first().map(|allowance| Bytes(allowance.bytes_per_day()));
        endurance.deferring = devices.iter().any(WriteAllowance::is_deferring);
    }
}
