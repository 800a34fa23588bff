//! The possible contents of a device after a power cut.
//!
//! By the media assumptions ([`deepram_pool::device`]), every unflushed write may be kept, lost, torn at sector
//! boundaries, or reordered with any other unflushed write. So each sector independently holds either its durable
//! contents or those of any unflushed write that covers it. [`EveryCrash`] enumerates all combinations where their
//! number is small; [`Crash::Random`] samples them elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use deepram_pool::device::SECTOR;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use crate::image::Image;

/// A choice among the possible states after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Every unflushed write is lost.
    DropAll,
    /// Every unflushed write is kept, completely and in order.
    KeepAll,
    /// This many of the oldest unflushed writes are kept, completely and in order; the others are lost.
    Prefix(usize),
    /// Every unflushed write is kept, in order, but the last one is torn: only its leading or only its trailing
    /// sectors are new.
    TornLast,
    /// Each unflushed write is kept, lost, or torn (a prefix, a suffix or any subset of its sectors), and the writes
    /// are applied in their order or in another. The seed determines all choices.
    Random(u64),
}

/// A write that is not known to be durable.
#[derive(Clone, Debug)]
pub(crate) struct Unflushed {
    offset: u64,
    data: Arc<[u8]>,
    /// For each sector: false if a later durable write has replaced it, since no reordering can then bring it back.
    live: Vec<bool>,
    /// A flush has failed since this write: no later flush makes it durable.
    pub(crate) doubtful: bool,
}

impl Unflushed {
    pub(crate) fn new(offset: u64, data: &[u8]) -> Self {
        Self { offset, data: data.into(), live: vec![true; data.len() / SECTOR], doubtful: false }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    fn sectors(&self) -> usize {
        self.live.len()
    }

    /// Applies the sectors that `keep` selects to `image`.
    pub(crate) fn apply(&self, image: &mut Image, mut keep: impl FnMut(usize) -> bool) {
        let mut sector = 0;
        while sector < self.sectors() {
            let first = sector;
            while sector < self.sectors() && self.live[sector] && keep(sector) {
                sector += 1;
            }
            if first < sector {
                let bytes = &self.data[first * SECTOR..sector * SECTOR];
                image.write(self.offset + (first * SECTOR) as u64, bytes);
            }
            // Either the end of the write, or a sector that is not kept.
            sector += 1;
        }
    }

    /// Returns whether this write may determine the byte at `offset`.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        offset
            .checked_sub(self.offset)
            .and_then(|at| self.live.get(usize::try_from(at).ok()? / SECTOR))
            .is_some_and(|&live| live)
    }

    /// Removes the sectors that a durable write of `len` bytes at `offset` has replaced; returns false when no sector
    /// is left.
    pub(crate) fn supersede(&mut self, offset: u64, len: usize) -> bool {
        let end = offset + len as u64;
        if end <= self.offset || self.offset + self.data.len() as u64 <= offset {
            return true;
        }
        for (index, live) in self.live.iter_mut().enumerate() {
            let at = self.offset + (index * SECTOR) as u64;
            if (offset..end).contains(&at) {
                *live = false;
            }
        }
        self.live.contains(&true)
    }
}

/// The durable bytes and the unflushed writes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) durable: Image,
    pub(crate) unflushed: Vec<Unflushed>,
}

impl Moment {
    pub(crate) fn random(&self, rng: &mut (impl Rng + ?Sized)) -> Image {
        // With even odds, most states lose about half of the writes. Some recovery bugs appear only when nearly all
        // writes are kept or nearly all are lost, so the odds are random too.
        let kept_of_16 = [1, 8, 15][rng.random_range(0..3)];
        let mut order: Vec<&Unflushed> = self.unflushed.iter().collect();
        if rng.random() {
            order.shuffle(rng);
        }
        let mut image = self.durable.clone();
        for write in order {
            let sectors = write.sectors();
            if rng.random_ratio(kept_of_16, 16) {
                write.apply(&mut image, |_| true);
                continue;
            }
            match rng.random_range(0..6) {
                0..3 => {}
                3 => {
                    let kept = rng.random_range(0..=sectors);
                    write.apply(&mut image, |sector| sector < kept);
                }
                4 => {
                    let lost = rng.random_range(0..=sectors);
                    write.apply(&mut image, |sector| sector >= lost);
                }
                _ => write.apply(&mut image, |_| rng.random()),
            }
        }
        image
    }

    fn prefix(&self, writes: usize) -> Image {
        let mut image = self.durable.clone();
        for write in self.unflushed.iter().take(writes) {
            write.apply(&mut image, |_| true);
        }
        image
    }

    /// Returns the image with all writes but the last, and with the sectors `kept` of the last write.
    fn torn_last(&self, kept: std::ops::Range<usize>) -> Image {
        let mut image = self.prefix(self.unflushed.len().saturating_sub(1));
        if let Some(last) = self.unflushed.last() {
            last.apply(&mut image, |sector| kept.contains(&sector));
        }
        image
    }

    pub(crate) fn image(&self, crash: Crash) -> Image {
        match crash {
            Crash::DropAll => self.durable.clone(),
            Crash::KeepAll => self.prefix(usize::MAX),
            Crash::Prefix(writes) => self.prefix(writes),
            Crash::TornLast => {
                let sectors = self.unflushed.last().map_or(0, Unflushed::sectors);
                self.torn_last(0..sectors / 2)
            }
            Crash::Random(seed) => self.random(&mut crate::seeds::rng(seed)),
        }
    }
}

/// The images of one [`Crash`] mode, made on demand; see
/// [`FaultyDevice::crash_images`](crate::FaultyDevice::crash_images).
#[derive(Clone, Debug)]
pub struct CrashImages {
    moment: Moment,
    crash: Crash,
    next: usize,
    count: usize,
}

impl CrashImages {
    pub(crate) fn new(moment: Moment, crash: Crash) -> Self {
        let count = match (crash, moment.unflushed.last()) {
            // Every proper prefix except the empty one, then every proper suffix.
            (Crash::TornLast, Some(last)) => 2 * (last.sectors() - 1),
            (Crash::TornLast, None) => 0,
            _ => 1,
        };
        Self { moment, crash, next: 0, count }
    }
}

impl Iterator for CrashImages {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        if self.next == self.count {
            return None;
        }
        let index = self.next;
        self.next += 1;
        Some(match (self.crash, self.moment.unflushed.last()) {
            (Crash::TornLast, Some(last)) => {
                let sectors = last.sectors();
                if index < sectors - 1 {
                    self.moment.torn_last(0..index + 1)
                } else {
                    self.moment.torn_last(index + 2 - sectors..sectors)
                }
            }
            (crash, _) => self.moment.image(crash),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for CrashImages {}

/// Every image that a power cut may leave, each combination of sectors once; see
/// [`FaultyDevice::every_crash`](crate::FaultyDevice::every_crash).
///
/// In the first image every unflushed write is lost; the last image has the newest contents of each sector.
#[derive(Clone, Debug)]
pub struct EveryCrash {
    moment: Moment,
    sectors: Vec<SectorChoice>,
    done: bool,
}

/// The choice for one sector: one digit of the enumeration.
#[derive(Clone, Debug)]
struct SectorChoice {
    offset: u64,
    /// Indices of the unflushed writes that cover the sector, oldest first.
    writes: Vec<usize>,
    /// 0: the durable contents; `i`: the contents from `writes[i - 1]`.
    chosen: usize,
}

impl EveryCrash {
    pub(crate) fn new(moment: Moment) -> Self {
        let mut covering: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, write) in moment.unflushed.iter().enumerate() {
            for (sector, _) in write.live.iter().enumerate().filter(|(_, live)| **live) {
                let offset = write.offset + (sector * SECTOR) as u64;
                covering.entry(offset).or_default().push(index);
            }
        }
        let sectors =
            covering.into_iter().map(|(offset, writes)| SectorChoice { offset, writes, chosen: 0 }).collect();
        Self { moment, sectors, done: false }
    }

    /// Returns the total number of images, or `u128::MAX` if there are more. Check it before iterating: one unflushed
    /// write of 4 KiB has 2⁸ images, two have 2¹⁶.
    pub fn total(&self) -> u128 {
        self.sectors
            .iter()
            .fold(1, |total: u128, sector| total.saturating_mul(sector.writes.len() as u128 + 1))
    }

    fn image(&self) -> Image {
        let mut image = self.moment.durable.clone();
        for sector in &self.sectors {
            if sector.chosen > 0 {
                let write = &self.moment.unflushed[sector.writes[sector.chosen - 1]];
                let at = usize::try_from(sector.offset - write.offset).expect("inside the write");
                image.write(sector.offset, &write.data[at..at + SECTOR]);
            }
        }
        image
    }
}

impl Iterator for EveryCrash {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        if self.done {
            return None;
        }
        let image = self.image();
        self.done = true;
        for sector in &mut self.sectors {
            if sector.chosen < sector.writes.len() {
                sector.chosen += 1;
                self.done = false;
                break;
            }
            sector.chosen = 0;
        }
        Some(image)
    }
}
