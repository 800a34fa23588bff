//! Spatial locality: each request is overlapped, sequential, strided or random with respect to the requests shortly
//! before it (the hybrid SSD cache paper, section IV-A, figures 4 to 6).

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::workload::mix64;

/// Spatial class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpatialClass {
    /// The request has a page in common with an earlier request.
    Overlapped,
    /// The request begins with the page after the last page of an earlier request.
    Sequential,
    /// The request begins behind an earlier request, with a gap of 1 page up to the stride length.
    Strided,
    /// None of these.
    Random,
}

impl SpatialClass {
    /// All classes; [`SpatialClass::Random`] is the last.
    pub const ALL: [Self; 4] = [Self::Overlapped, Self::Sequential, Self::Strided, Self::Random];

    /// The lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overlapped => "overlapped",
            Self::Sequential => "sequential",
            Self::Strided => "strided",
            Self::Random => "random",
        }
    }
}

/// Largest stride length, in pages.
pub const MOST_STRIDE: u32 = 1 << 16;
/// Largest request order difference.
pub const MOST_ROD: u32 = 1 << 12;

/// How far apart, in addresses and in order, two requests may be to count as related. Written `STRIDE/ROD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct SpatialSetting {
    /// Longest gap between the pages of a strided request and those of the earlier one, in pages.
    pub stride_pages: u32,
    /// Request order difference: a request is compared with this many requests before it.
    pub rod: u32,
}

impl SpatialSetting {
    /// The settings of figures 4, 5 and 6 of the paper.
    pub const PAPER: [Self; 3] = [
        Self { stride_pages: 2, rod: 1 },
        Self { stride_pages: 2, rod: 64 },
        Self { stride_pages: 16, rod: 64 },
    ];
}

impl fmt::Display for SpatialSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stride_pages, self.rod)
    }
}

impl FromStr for SpatialSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (stride, rod) = text.split_once('/').ok_or("expected STRIDE/ROD, such as 16/64")?;
        let number = |what: &str, text: &str, least: u32, most: u32| match text.trim().parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!("the {what} is \"{text}\", expected a number from {least} to {most}")),
        };
        Ok(Self {
            stride_pages: number("stride length", stride, 0, MOST_STRIDE)?,
            rod: number("request order difference", rod, 1, MOST_ROD)?,
        })
    }
}

/// Order in which the classes are tried where several apply, because a request relates to several earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precedence([SpatialClass; 3]);

impl Default for Precedence {
    /// Overlapped, sequential, strided.
    fn default() -> Self {
        Self([SpatialClass::Overlapped, SpatialClass::Sequential, SpatialClass::Strided])
    }
}

impl Precedence {
    /// The three classes in order; the class of a request to which none applies is random.
    #[must_use]
    pub const fn order(&self) -> [SpatialClass; 3] {
        self.0
    }
}

impl fmt::Display for Precedence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(SpatialClass::name).join(","))
    }
}

impl FromStr for Precedence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "expected overlapped, sequential and strided, each once, separated by commas".to_owned();
        let named =
            |name: &str| SpatialClass::ALL[..3].iter().copied().find(|class| class.name() == name.trim());
        let classes: Option<Vec<_>> = text.split(',').map(named).collect();
        let order: [SpatialClass; 3] = classes.and_then(|c| c.try_into().ok()).ok_or_else(wrong)?;
        let distinct = order[0] != order[1] && order[1] != order[2] && order[0] != order[2];
        if distinct { Ok(Self(order)) } else { Err(wrong()) }
    }
}

/// An inclusive range of pages of a device: those of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRange {
    /// Number of the device.
    pub device: u32,
    /// First page.
    pub first: u64,
    /// Last page, at least `first`.
    pub last: u64,
}

/// Requests of each class, by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpatialCounts {
    /// Reads of each class, in the order of [`SpatialClass::ALL`].
    pub read: [u64; 4],
    /// Writes of each class.
    pub write: [u64; 4],
}

impl SpatialCounts {
    /// Requests of each class.
    #[must_use]
    pub fn all(&self) -> [u64; 4] {
        std::array::from_fn(|class| self.read[class] + self.write[class])
    }

    /// Shares of the classes among `counts`; `None` if there are none.
    #[must_use]
    pub fn shares(counts: [u64; 4]) -> Option<[f64; 4]> {
        let sum: u64 = counts.iter().sum();
        (sum > 0).then(|| counts.map(|count| count as f64 / sum as f64))
    }
}

/// Classifies requests under several settings at once.
///
/// Recent requests are found by the blocks of pages that hold their first and last pages, so a request costs the number
/// of recent requests near it, not the largest request order difference.
#[derive(Clone, Debug)]
pub struct SpatialClassifier {
    settings: Vec<SpatialSetting>,
    precedence: Precedence,
    same_direction: bool,
    counts: Vec<SpatialCounts>,
    /// Recent reads and writes together, or reads and writes apart if only requests of the same direction are compared.
    windows: [Window; 2],
    /// Requests so far.
    requests: u64,
    /// Classes that apply to the current request, for each setting.
    found: Vec<Found>,
}

impl SpatialClassifier {
    /// A classifier for these settings. With `same_direction`, a read is compared with reads only and a write with
    /// writes only; the request order difference counts both.
    #[must_use]
    pub fn new(settings: &[SpatialSetting], precedence: Precedence, same_direction: bool) -> Self {
        let rod = settings.iter().map(|setting| setting.rod).max().unwrap_or(1).clamp(1, MOST_ROD);
        let stride = settings.iter().map(|setting| setting.stride_pages).max().unwrap_or(0).min(MOST_STRIDE);
        Self {
            settings: settings.to_vec(),
            precedence,
            same_direction,
            counts: vec![SpatialCounts::default(); settings.len()],
            windows: [Window::new(rod, stride), Window::new(rod, stride)],
            requests: 0,
            found: vec![Found::default(); settings.len()],
        }
    }

    /// Classifies a request under each setting and counts it; [`SpatialClassifier::counts`] has the sums.
    #[inline]
    pub fn add(&mut self, request: PageRange, write: bool) {
        if self.settings.is_empty() {
            return;
        }
        self.requests += 1;
        let now = self.requests;
        let window = &mut self.windows[usize::from(write && self.same_direction)];
        self.found.fill(Found::default());
        let best = Found(1 << self.precedence.0[0] as u8);
        let (settings, found) = (&self.settings, &mut self.found);
        window.visit(request, now, |earlier, number| {
            let overlaps = earlier.first <= request.last && request.first <= earlier.last;
            // Pages between the two requests, if the earlier lies before this one.
            let gap = request.first.checked_sub(earlier.last).and_then(|after| after.checked_sub(1));
            let mut done = true;
            for (setting, found) in settings.iter().zip(found.iter_mut()) {
                if now - number <= u64::from(setting.rod) {
                    found.0 |= match gap {
                        _ if overlaps => Found::OVERLAPPED,
                        Some(0) => Found::SEQUENTIAL,
                        Some(gap) if gap <= u64::from(setting.stride_pages) => Found::STRIDED,
                        _ => 0,
                    };
                    done &= found.0 & best.0 != 0;
                }
            }
            // An older request is compared under fewer settings; all of those have found the best class.
            done
        });
        window.insert(request, now);
        for (found, counts) in self.found.iter().zip(&mut self.counts) {
            let counts = if write { &mut counts.write } else { &mut counts.read };
            counts[found.class(self.precedence) as usize] += 1;
        }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &[SpatialSetting] {
        &self.settings
    }

    /// Requests of each class so far, for each setting.
    #[must_use]
    pub fn counts(&self) -> &[SpatialCounts] {
        &self.counts
    }
}

/// The classes that apply to a request, as a set of bits.
#[derive(Clone, Copy, Debug, Default)]
struct Found(u8);

impl Found {
    const OVERLAPPED: u8 = 1 << SpatialClass::Overlapped as u8;
    const SEQUENTIAL: u8 = 1 << SpatialClass::Sequential as u8;
    const STRIDED: u8 = 1 << SpatialClass::Strided as u8;

    #[inline]
    fn class(self, precedence: Precedence) -> SpatialClass {
        let applies = |class: &SpatialClass| self.0 & 1 << *class as u8 != 0;
        precedence.0.into_iter().find(applies).unwrap_or(SpatialClass::Random)
    }
}

/// Blocks of a request beyond which all recent requests are searched.
const MOST_BLOCKS: u64 = 8;

/// A recent request.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    range: PageRange,
    number: u64,
    /// The next older link of the chains of the blocks with the first and the last page.
    older: [u64; 2],
}

/// The requests within the largest request order difference.
///
/// A link is twice the number of a request (from 1), plus 1 for its second chain. A chain runs from newer to older
/// requests and ends at the first that has left the window.
#[derive(Clone, Debug)]
struct Window {
    /// A request's place is its number modulo the length, a power of two above `rod`.
    recent: Vec<Recent>,
    /// Newest link of the blocks of each bucket; 0 for none.
    heads: Vec<u64>,
    /// Numbers of the last requests that are longer than a block, in no chain; oldest first.
    long: std::collections::VecDeque<u64>,
    rod: u64,
    stride: u64,
    block_shift: u32,
}

impl Window {
    fn new(rod: u32, stride: u32) -> Self {
        let length = (rod as usize + 1).next_power_of_two();
        Self {
            recent: vec![Recent::default(); length],
            heads: vec![0; 8 * length],
            long: std::collections::VecDeque::new(),
            rod: rod.into(),
            stride: stride.into(),
            block_shift: stride.max(16).next_power_of_two().ilog2(),
        }
    }

    #[inline]
    fn bucket(&self, device: u32, block: u64) -> usize {
        mix64(block ^ u64::from(device) << 40) as usize & (self.heads.len() - 1)
    }

    #[inline]
    fn get(&self, number: u64) -> &Recent {
        &self.recent[number as usize & (self.recent.len() - 1)]
    }

    /// Calls `visit` with the range and number of each recent request on the same device that has a common page with
    /// `request` or ends at most the stride length before it, and with some others; some are visited twice. Ends once
    /// `visit` returns true, within a chain.
    #[inline]
    fn visit(&self, request: PageRange, now: u64, mut visit: impl FnMut(&PageRange, u64) -> bool) {
        let within = |number: u64| number > 0 && now - number <= self.rod;
        let mut see = |number: u64| {
            let range = &self.get(number).range;
            range.device == request.device && visit(range, number)
        };
        for &number in self.long.iter().rev().take_while(|number| within(**number)) {
            if see(number) {
                break;
            }
        }
        let first = request.first.saturating_sub(self.stride + 1) >> self.block_shift;
        let last = request.last >> self.block_shift;
        if last - first >= MOST_BLOCKS {
            self.visit_all(now, see);
            return;
        }
        for block in first..=last {
            let mut link = self.heads[self.bucket(request.device, block)];
            while within(link / 2) {
                if see(link / 2) {
                    break;
                }
                link = self.get(link / 2).older[(link % 2) as usize];
            }
        }
    }

    /// Calls `see` with all recent requests, newest first, until it returns true.
    fn visit_all(&self, now: u64, mut see: impl FnMut(u64) -> bool) {
        for number in (now.saturating_sub(self.rod).max(1)..now).rev() {
            // The place holds an older request where this number belongs to the other window.
            if self.get(number).number == number && see(number) {
                break;
            }
        }
    }

    #[inline]
    fn insert(&mut self, range: PageRange, number: u64) {
        let (first, last) = (range.first >> self.block_shift, range.last >> self.block_shift);
        let mut older = [0; 2];
        if range.last - range.first >> self.block_shift > 0 {
            while self.long.front().is_some_and(|long| number - long >= self.rod) {
                self.long.pop_front();
            }
            self.long.push_back(number);
        } else {
            let bucket = self.bucket(range.device, last);
            older[0] = std::mem::replace(&mut self.heads[bucket], 2 * number);
            if first != last {
                let bucket = self.bucket(range.device, first);
                older[1] = std::mem::replace(&mut self.heads[bucket], 2 * number + 1);
            }
        }
        let place = number as usize & (self.recent.len() - 1);
        self.recent[place] = Recent { range, number, older };
    }
}
