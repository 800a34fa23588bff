//! Whole systems, as `deepram sim` runs them: with a host's requests and with the threads of a processor.

use deepram_media::{Bytes, Processor, Registry};
use deepram_sim::processor::{ProcessorOptions, workload_threads};
use deepram_sim::{RunOptions, RunResult, SimError, System, SystemConfig, requests, run, run_threads};
use deepram_trace::{ObjectPlacement, TraceError, Workload};

const MEMORIES: [System; 3] = [System::Dram, System::Nvmm, System::SsdPaging];
/// A table four times the DRAM.
const WORKLOAD: &str = "gups:table=16MiB,updates=2k";

fn config(system: System) -> SystemConfig {
    let mut config = SystemConfig::new(system);
    config.nvmm.cache = Bytes(4 << 20);
    config.paging.memory = Bytes(4 << 20);
    config
}

fn by_threads(registry: &Registry, system: System, seed: u64) -> Result<RunResult, SimError> {
    let preset: Processor = registry.get("processor.nvmm-host").unwrap();
    let processor = ProcessorOptions { blocking: true, ..ProcessorOptions::new(&preset).unwrap() };
    let threads = workload_threads(WORKLOAD, seed, 2, 4).unwrap();
    let options = RunOptions { seed, workload: WORKLOAD.into(), ..RunOptions::default() };
    run_threads(registry, &config(system), threads, &processor, &options)
}

#[test]
fn under_a_processor_dram_is_ahead_of_flash_memory_and_that_of_paging() {
    let registry = Registry::builtin().unwrap();
    let ipc = MEMORIES.map(|system| {
        let result = by_threads(&registry, system, 1).unwrap();
        let processor = result.processor.as_ref().unwrap();
        assert_eq!(processor.references, 4_000);
        let shares: f64 = processor.time_shares().iter().sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        // Only paging puts threads to sleep.
        assert_eq!(processor.threads.iter().any(|thread| thread.sleeps > 0), system == System::SsdPaging);
        processor.ipc
    });
    assert!(ipc[0] > ipc[1] && ipc[1] > ipc[2], "{ipc:?}");
}

#[test]
fn each_system_gives_the_same_bytes_again_and_others_for_another_seed() {
    let registry = Registry::builtin().unwrap();
    let json = |system, seed| by_threads(&registry, system, seed).unwrap().to_json().unwrap();
    for system in MEMORIES {
        assert_eq!(json(system, 1), json(system, 1), "{}", system.name());
        assert_ne!(json(system, 1), json(system, 2), "{}", system.name());
    }
}

#[test]
fn each_system_runs_by_requests_and_accounts_for_its_energy() {
    let registry = Registry::builtin().unwrap();
    for system in System::ALL {
        let items = Workload::new(WORKLOAD, 1).unwrap().map(Ok::<_, TraceError>);
        let objects = ObjectPlacement { slot_bytes: 0, slots: 0 };
        let result =
            run(&registry, &config(system), requests(items, objects), &RunOptions::default()).unwrap();
        assert_eq!(result.requests, 4_000, "{}", system.name());
        let sum: f64 = result.energy.iter().map(|part| part.dynamic_nj + part.static_nj).sum();
        // A measured device and the emulator of the NVMM application study have times but no energies.
        let without = matches!(system, System::Pool | System::Pmem);
        assert_eq!(sum > 0.0, !without, "{}", system.name());
        assert!((result.energy_total_nj - sum).abs() <= sum * 1e-12, "{}", system.name());
        assert!(result.to_table().contains(system.name()));
        assert_eq!(System::parse(system.name()).unwrap(), system);
    }
}

#[test]
fn a_drive_is_no_memory_of_a_processor() {
    let registry = Registry::builtin().unwrap();
    let error = by_threads(&registry, System::Ssd, 1).unwrap_err().to_string();
    assert!(error.contains("use dram, nvmm or ssd-paging"), "{error}");
    let error = by_threads(&registry, System::Pool, 1).unwrap_err().to_string();
    assert!(error.contains("would count twice"), "{error}");
    assert!(System::parse("ssd-pagin").unwrap_err().to_string().contains("did you mean ssd-paging?"));
}
