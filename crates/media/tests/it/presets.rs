//! Every built-in preset loads and agrees with its source.

use deepram_media::*;

fn builtin() -> Registry {
    Registry::builtin().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_preset_resolves_into_its_typed_form_with_a_source_behind_each_figure() {
    let registry = builtin();
    let entries = registry.list();
    assert!(entries.len() >= 70, "{}", entries.len());
    for entry in entries {
        let name = format!("{}.{}", entry.kind.word(), entry.name);
        assert!(!entry.about.is_empty(), "{name} has no description");
        let rows = registry.show(&name).unwrap();
        for row in rows {
            assert!(!row.source.is_empty() && !row.unit.is_empty() && !row.meaning.is_empty());
        }
    }
}

#[test]
fn the_technologies_of_nvmm_have_the_times_of_its_table() {
    let registry = builtin();
    for (name, read_ns, write_ns, erase_ns) in [
        ("slc-8", 3_125, 200_000, 1_500_000),
        ("slc-4", 6_250, 200_000, 1_500_000),
        ("slc-2", 12_500, 200_000, 1_500_000),
        ("slc", 25_000, 200_000, 1_500_000),
        ("mlc-50us", 50_000, 1_200_000, 3_000_000),
        ("mlc-75us", 75_000, 1_200_000, 3_000_000),
    ] {
        let flash: Nand = registry.get(name).unwrap();
        let times = (flash.read, flash.program, flash.erase);
        let ns = Picos::from_ns;
        assert_eq!(times, (ns(read_ns), ns(write_ns), ns(erase_ns)), "{name}");
    }
    for (name, read_ns, write_ns) in [("pcm-optimistic", 50, 150), ("pcm-expected", 125, 1000)] {
        let pcm: Pcm = registry.get(name).unwrap();
        assert_eq!(pcm.access(Bytes(64), false), Picos::from_ns(read_ns));
        assert_eq!(pcm.access(Bytes(64), true), Picos::from_ns(write_ns));
    }
    let dram: Dram = registry.get("ddr3-1600").unwrap();
    assert_eq!(dram.flat_read, Some(Picos::from_ns(50)));
    // The table's 50 ns is a minimum latency; the latency of the bank's commands is below it.
    assert!(dram.access(RowState::Conflict, false) < Picos::from_ns(50));
}

#[test]
fn the_flash_of_the_disk_cache_halves_its_pages_in_slc_mode() {
    let registry = builtin();
    let slc: Nand = registry.get("flash-cache-slc").unwrap();
    let mlc: Nand = registry.get("flash-cache-mlc").unwrap();
    assert_eq!((slc.block_bytes(), mlc.block_bytes()), (Bytes(128 << 10), Bytes(256 << 10)));
    assert_eq!((slc.page, slc.spare), (Bytes(2048), Bytes(64)));
    assert_eq!(
        (slc.read, slc.program, slc.erase),
        (Picos::from_us(25), Picos::from_us(250), Picos::from_us(500))
    );
    assert_eq!(
        (mlc.read, mlc.program, mlc.erase),
        (Picos::from_us(50), Picos::from_us(900), Picos::from_us(3500))
    );
    assert!(slc.endurance >= 10 * mlc.endurance);
}

#[test]
fn an_array_of_the_hybrid_cache_has_the_figures_of_table_v() {
    let registry = builtin();
    let pcm: Array = registry.get("hybrid-1-20-pcm").unwrap();
    assert_eq!((pcm.read, pcm.write), (Picos(2_775_000), Picos(44_260_000)));
    assert_eq!((pcm.read_energy, pcm.write_energy), (Picojoules(33_000), Picojoules(11_041_000)));
    assert_eq!((pcm.cells, pcm.size), (Cells::Pcm, Bytes(20 << 20)));
    let dram: Array = registry.get("hybrid-42-dram").unwrap();
    assert_eq!((dram.endurance, dram.leakage.0), (None, 0.115882));
}

#[test]
fn the_platforms_of_the_persistent_memory_study_have_the_figures_of_table_iv() {
    let registry = builtin();
    let default = (LineFlush::Clflush, FlushedLines::Every);
    for (name, latency_ns, throttle, barrier_us, flush) in [
        ("pdram", 150, 1.0, 0, default),
        ("pm-lat", 300, 1.0, 0, default),
        ("pm-bw", 300, 0.125, 0, default),
        ("nvmm-raw", 300, 0.125, 1, default),
        ("nvmm-wof", 300, 0.125, 1, (LineFlush::Wof, FlushedLines::Every)),
        ("nvmm-opt", 300, 0.125, 1, (LineFlush::Wof, FlushedLines::Selective)),
    ] {
        let platform: Platform = registry.get(&format!("platform.{name}")).unwrap();
        let figures = (platform.read_latency, platform.throttle.0, platform.barrier);
        assert_eq!(figures, (Picos::from_ns(latency_ns), throttle, Picos::from_us(barrier_us)), "{name}");
        assert_eq!((platform.flush, platform.flushed), flush, "{name}");
        assert_eq!(platform.store, DataStore::Pmfs);
    }
}
