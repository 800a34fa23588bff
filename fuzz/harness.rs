//! Hostile pools: a sound image in which bytes are changed and checksums then corrected, so that every parser sees
//! inputs that mere damage would never pass to it. The fuzz target and `crates/pool/tests/hostile.rs` share this
//! file.
//!
//! For any bytes, opening and using the pool must succeed or return an error: no panic, no hang, no more memory than
//! the device's size explains.

use std::sync::Arc;

use deepram_pool::device::Device;
use deepram_pool::fuzzing::{ChecksumKind, ChecksumSite, checksum, sites};
use deepram_pool::{
    Addr, CreateOptions, Inspection, Lifetime, Mapping, OpenOptions, Pool, Retention, SegmentSize,
};
use deepram_testkit::{FaultyDevice, Image};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 1 << 16;
const KINDS: [ChecksumKind; 7] = [
    ChecksumKind::Header,
    ChecksumKind::Root,
    ChecksumKind::Chunk,
    ChecksumKind::Batch,
    ChecksumKind::EmptyBatch,
    ChecksumKind::Data,
    ChecksumKind::Line,
];

/// A sound pool to start from.
pub(crate) struct Base {
    pub(crate) image: Image,
    pub(crate) sites: Vec<ChecksumSite>,
    options: OpenOptions,
}

fn handle(device: &FaultyDevice) -> Vec<Arc<dyn Device>> {
    vec![Arc::new(device.clone())]
}

fn base(segment: SegmentSize, closed: bool) -> Base {
    let device = FaultyDevice::new(MIB + 24 * 64 * segment.bytes());
    let create = CreateOptions {
        segment,
        flash: Some(device.len()),
        retention: Retention::KeepLast(5),
        ..CreateOptions::new(6 * PAGE)
    };
    Pool::create_on(handle(&device), &create).expect("creating");
    let options = OpenOptions::new(10 * MIB + 600 * segment.bytes()).mapping(Mapping::Off);
    let pool = Pool::open_on(handle(&device), &options).expect("opening");
    let addr = pool.alloc(3 * PAGE, Lifetime::Permanent).expect("room");
    pool.set_root("root", addr, 9).expect("a root");
    let temporary = pool.alloc(PAGE, Lifetime::Temporary).expect("room");
    for value in 0..4_u8 {
        pool.write(addr, &vec![value; 20_000 + 10_000 * usize::from(value)]).expect("writing");
        pool.write(temporary, &[value; 10]).expect("writing");
        pool.sync().expect("syncing");
    }
    let oldest = pool.history().unwrap()[1].token;
    pool.rollback(oldest).expect("rolling back");
    pool.free(addr, PAGE).expect("freeing");
    pool.write(addr.offset_by(PAGE).expect("inside"), &[9; 5000]).expect("writing");
    let region = addr.offset_by(PAGE).expect("inside");
    pool.create_pmem_region(region, PAGE).expect("a persist region");
    for n in 0..6_u8 {
        pool.write(region, &[n; 900]).expect("writing");
        pool.persist(region, 1 + 150 * u64::from(n)).expect("persisting");
    }
    if closed { pool.close() } else { pool.abandon() }.expect("closing");
    let image = device.newest_image();
    let sites = sites(&image.to_vec()).expect("a sound pool");
    Base { image, sites, options }
}

/// Makes the sound pools to start from: some closed in order, some with a log to be replayed.
pub(crate) fn bases() -> Vec<Base> {
    [(SegmentSize::K4, false), (SegmentSize::K4, true), (SegmentSize::K8, false), (SegmentSize::K16, true)]
        .map(|(segment, closed)| base(segment, closed))
        .into()
}

/// Takes values off the fuzz input; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let n = self.0.len().min(N);
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..n].copy_from_slice(taken);
        bytes
    }

    fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn word(&mut self) -> usize {
        usize::from(u16::from_le_bytes(self.bytes()))
    }
}

/// Returns numbers at which parsers tend to break.
fn awkward(n: u8) -> u64 {
    let near = |bits: u32, off: u64| (1_u64 << bits).wrapping_sub(off);
    match n % 12 {
        0 => u64::MAX,
        1 => u64::MAX / 2,
        2 => u64::from(u32::MAX),
        3 => u64::from(u16::MAX),
        4 => near(28, u64::from(n) / 12),
        5 => near(30, u64::from(n) / 12),
        6 => near(24, u64::from(n) / 12),
        7 => near(63, 0),
        _ => u64::from(n) / 12,
    }
}

fn patch(image: &mut Image, base: &Base, input: &mut Input<'_>) {
    // The most important structures are also the rarest, so the kind is chosen first, then one structure of that
    // kind.
    let kind = KINDS[usize::from(input.byte()) % KINDS.len()];
    let of_kind: Vec<&ChecksumSite> = base.sites.iter().filter(|site| site.kind == kind).collect();
    let Some(site) = of_kind.get(input.word() % of_kind.len().max(1)) else { return };
    let range = site.ranges[0].clone();
    let how = input.byte();
    // Fields are at the front of a structure.
    let window = if how & 0x80 == 0 { range.len().min(256) } else { range.len() };
    let at = range.start + input.word() % window;
    let mut bytes = [0; 8];
    image.read(at as u64, &mut bytes);
    let old = u64::from_le_bytes(bytes);
    let (len, new) = match how & 0x7F {
        0..16 => (1, old ^ 1 << (how & 7)),
        16..32 => (1, u64::from(input.byte())),
        32..48 => (2, awkward(input.byte())),
        48..72 => (4, awkward(input.byte())),
        72..88 => (8, awkward(input.byte())),
        88..100 => (4, old.wrapping_add(1)),
        100..112 => (4, old.wrapping_sub(1)),
        _ => (8, u64::from_le_bytes(input.bytes())),
    };
    let end = (at + len).min(range.end);
    image.write(at as u64, &new.to_le_bytes()[..end - at]);
}

/// Makes the image that the input describes.
pub(crate) fn image(bases: &[Base], input: &[u8]) -> (Image, OpenOptions) {
    let mut input = Input(input);
    let first = input.byte();
    let base = &bases[usize::from(first) % bases.len()];
    let mut image = base.image.clone();
    for _ in 0..=first >> 4 {
        patch(&mut image, base, &mut input);
    }
    // Most images get matching checksums.
    if input.byte() % 16 != 1 {
        for site in &base.sites {
            let read = |range: std::ops::Range<usize>| {
                let mut bytes = vec![0; range.len()];
                image.read(range.start as u64, &mut bytes);
                bytes
            };
            let sum = checksum(site, &read).to_le_bytes();
            for &at in &site.checksum_at {
                image.write(at as u64, &sum);
            }
        }
    }
    if input.byte() % 16 == 1 {
        let len = input.word() as u64 * 4096 % image.len();
        let mut bytes = image.to_vec();
        bytes.truncate(len as usize);
        image = Image::from(bytes);
    }
    (image, base.options.clone())
}

/// Opens and uses an image that may be a pool. Returns whether it could be opened.
pub(crate) fn run(bases: &[Base], input: &[u8]) -> bool {
    let (image, options) = image(bases, input);
    let device = FaultyDevice::from_image(image.clone());
    if let Ok(inspection) = Inspection::of(handle(&device)) {
        let _ = (inspection.info(), inspection.history());
        let _ = inspection.check(&mut |_, _| {});
    }
    assert!(device.newest_image().first_difference(&image).is_none(), "an inspection writes nothing");
    let Ok(pool) = Pool::open_on(handle(&device), &options) else { return false };
    // From here on errors are as good as results.
    let _ = (pool.info().unwrap(), pool.roots(), pool.check(&mut |_, _| {}));
    let mut bytes = vec![0; PAGE as usize];
    let pages: Vec<Addr> = (0..8).map(|n| Addr::from_raw(n * PAGE)).collect();
    for &addr in &pages {
        let _ = pool.read(addr, &mut bytes);
        for token in pool.history().unwrap().iter().take(4) {
            let _ = pool.read_at(token.token, addr, &mut bytes);
        }
    }
    let _ = pool.alloc(PAGE, Lifetime::Permanent);
    for &addr in &pages[1..] {
        let _ = pool.write(addr, &[1; 5000]);
    }
    let _ = (pool.sync(), pool.compact(&mut |_, _| {}));
    let _ = (pool.free(pages[2], PAGE), pool.sync());
    if let Some(oldest) = pool.history().unwrap().first() {
        let _ = pool.rollback(oldest.token);
    }
    let _ = (pool.set_root("x", pages[1], 1), pool.check(&mut |_, _| {}), pool.close());
    true
}
