//! Power cuts: after one, the file system is as at the last sync, or as at the sync during which the power was cut.

use deepram_testkit::{Crash, FaultyDevice, seeds};
use rand::RngExt;

use crate::common::{listing, new_pool, open};
use crate::model::Model;
use crate::random::Pair;

#[test]
fn after_a_power_cut_the_files_are_as_at_a_sync() {
    let image = new_pool();
    seeds::each(60, |seed| {
        let mut rng = seeds::rng(seed);
        let device = FaultyDevice::from_image(image.clone());
        let mut pair = Pair::new(open(&device).expect("an empty file system"));
        let mut kept: Option<Model> = None;
        device.crash_after(device.ops() + rng.random_range(1..400));
        let (mut syncs, mut under_way) = (0, None);
        for _ in 0..400 {
            if pair.step(&mut rng).is_err() {
                break;
            }
            if rng.random_bool(0.1) {
                // A sync that fails may have reached the device.
                under_way = Some(pair.model.clone());
                if pair.files.sync().is_err() {
                    break;
                }
                kept = under_way.take();
                syncs += 1;
            }
        }
        drop(pair);
        let crashed = FaultyDevice::from_image(device.crash_image(Crash::Random(seed)));
        let files = open(&crashed).expect("the pool survives a power cut");
        let found = listing(&files);
        let candidates: Vec<Model> = [kept, under_way].into_iter().flatten().collect();
        let expected = |model: &Model| found == model.listing();
        let is_new = syncs == 0 && found == Model::new().listing();
        assert!(is_new || candidates.iter().any(expected), "after {syncs} syncs the files are another state");
        let state = candidates.into_iter().find(expected).unwrap_or_else(Model::new);
        let mut pair = Pair::reopened(files, state);
        pair.check();
        for _ in 0..100 {
            pair.step(&mut rng).expect("the device works again");
        }
        pair.check();
    });
}
