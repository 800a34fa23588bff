//! The amount that opening a pool after a crash reads: it depends on the data written since the last
//! checkpoint, not on the size of the pool. Counted in bytes, because time depends on the machine.

use std::sync::Arc;

use deepram_pool::device::Device;
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};
use deepram_testkit::FaultyDevice;

const MIB: u64 = 1 << 20;
const SEGMENT: u64 = 4096;

fn devices(device: &FaultyDevice) -> Vec<Arc<dyn Device>> {
    vec![Arc::new(device.clone())]
}

/// Returns the bytes read by an opening after `syncs` syncs of 16 segments each that no checkpoint covers, in
/// a pool of `size` bytes that is full of data.
fn read_by_opening(size: u64, syncs: u64) -> u64 {
    let device = FaultyDevice::new(size * 5 / 2 + 64 * MIB);
    let options = OpenOptions::new(24 * MIB).mapping(Mapping::Off);
    Pool::create_on(devices(&device), &CreateOptions::new(size)).unwrap();
    let pool = Pool::open_on(devices(&device), &options).unwrap();
    let addr = pool.alloc(size, Lifetime::Permanent).unwrap();
    for at in (0..size).step_by(MIB as usize) {
        pool.write(addr.offset_by(at).unwrap(), &vec![at as u8 | 1; MIB as usize]).unwrap();
    }
    pool.close().unwrap();
    let pool = Pool::open_on(devices(&device), &options).unwrap();
    for n in 0..syncs * 16 {
        // Spread over the whole pool, for every size.
        let segment = n * 7919 % (size / SEGMENT);
        pool.write(addr.offset_by(segment * SEGMENT).unwrap(), &n.to_le_bytes()).unwrap();
        if n % 16 == 15 {
            pool.sync().unwrap();
        }
    }
    pool.abandon().unwrap();
    device.reset_stats();
    let pool = Pool::open_on(devices(&device), &options).unwrap();
    // At the end of each of the two streams, the opening reads the rest of a block and the next block: a cost
    // limited by the largest block.
    let ends = 4 * pool.info().unwrap().block.0;
    let read = device.stats().read_bytes;
    pool.abandon().unwrap();
    read.saturating_sub(ends)
}

#[test]
fn an_opening_reads_more_the_more_was_written_since_the_checkpoint() {
    let none = read_by_opening(16 * MIB, 0);
    let some = read_by_opening(16 * MIB, 50);
    let much = read_by_opening(16 * MIB, 200);
    // Each batch costs a header; some batches also their segments, which were written together with their
    // commit.
    assert!(some > none && much - none >= 2 * (some - none), "{none} {some} {much}");
    assert!(much < none + 200 * 18 * SEGMENT, "{none} {some} {much}");
}

#[test]
fn an_opening_reads_little_more_of_a_pool_eight_times_as_large() {
    let (small, large) = (16 * MIB, 128 * MIB);
    let (of_small, of_large) = (read_by_opening(small, 0), read_by_opening(large, 0));
    // The root record has some bytes for each block; at most one part in two thousand of the pool.
    assert!(of_large < of_small + (large - small) / 2000 + 16 * SEGMENT, "{of_small} {of_large}");
    // With a log, an opening reads a header and 16 segments for each batch, and the table chunks that the log
    // touches.
    let log = read_by_opening(large, 50).saturating_sub(of_large);
    let chunks = large / (1 << 16) * 17 / 256;
    assert!(log <= (50 * 18 + chunks) * SEGMENT, "{log}");
}
