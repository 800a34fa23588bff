//! A sync that the device holds: stores made meanwhile are not part of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::common::PAGE;
use crate::common::rig::{Shape, devices};
use crate::gate::Gated;
use deepram_core::SegmentSize;
use deepram_pool::{Lifetime, Pool};

/// Few enough that a sync does not write the segments before its cut, and too many for one batch.
const SEGMENTS: u64 = 200;
const SEGMENT: u64 = 4096;

#[test]
fn what_is_stored_while_a_sync_is_being_written_is_not_part_of_it() {
    let shape = Shape { pages: 16, ..Shape::small(SegmentSize::K4) };
    let (images, _) = shape.create();
    let gate = Gated::new(&devices(&images)[0]);
    let pool = Pool::open_on(vec![Arc::new(gate.clone())], &shape.open_options()).unwrap();
    let first = pool.alloc(SEGMENTS.div_ceil(16) * PAGE, Lifetime::Permanent).unwrap();
    let at = |n: u64| first.offset_by(n * SEGMENT + 8).unwrap();
    (0..SEGMENTS).for_each(|n| pool.write(at(n), &[1; 8]).unwrap());
    gate.armed_write.store(true, SeqCst);
    let token = std::thread::scope(|scope| {
        let sync = scope.spawn(|| pool.sync().unwrap());
        gate.until_held();
        (0..SEGMENTS).rev().take(40).for_each(|n| pool.write(at(n), &[2; 8]).unwrap());
        gate.let_go();
        sync.join().unwrap()
    });
    assert!(
        pool.stats().staged_copies > 0,
        "no segment was stored to before it was written: {:?}",
        pool.stats()
    );
    let mut found = [0; 8];
    for n in 0..SEGMENTS {
        pool.read_at(token, at(n), &mut found).unwrap();
        assert_eq!(found, [1; 8], "segment {n} at the token");
        pool.read(at(n), &mut found).unwrap();
        assert_eq!(found, if n < SEGMENTS - 40 { [1; 8] } else { [2; 8] }, "segment {n} now");
    }
}
