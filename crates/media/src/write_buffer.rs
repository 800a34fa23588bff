//! Configuration of the write buffer of an SSD: a DRAM and a PCM partition, their tags, and the policy
//! that places pages (hybrid SSD cache). The simulator implements the buffer.

use deepram_core::units::Bytes;

use crate::array::{Array, Cells};
use crate::model::{InvalidFigure, kind, words};
use crate::value::{Fraction, Watts};

words! {
    /// Organisation of the buffer.
    BufferScheme {
        /// One partition, of DRAM.
        DramOnly = "dram-only",
        /// One partition, of PCM.
        PcmOnly = "pcm-only",
        /// Two levels: pages enter DRAM, retire to PCM, and then go to flash.
        TwoLevel = "2l",
        /// Flat; victims of DRAM go to flash.
        ToSsd = "ts",
        /// Flat; victims of DRAM go to PCM, unless they are cold.
        ToPcm = "tp",
    }
}

words! {
    /// The replacement policy of a buffer of DRAM alone.
    BufferPolicy {
        /// Least recently used page.
        Lru = "lru",
        /// Clean-first LRU.
        Cflru = "cflru",
        /// LRU with write sequence reordering.
        LruWsr = "lru-wsr",
        /// Cold clean first LRU.
        CcfLru = "ccf-lru",
        /// Flash-aware buffer: the erase block with the most pages.
        Fab = "fab",
        /// Block padding LRU: the least recently written erase block.
        Bplru = "bplru",
    }
}

words! {
    /// Whether a page that the host reads from flash enters the buffer.
    KeptReads {
        /// As the policy's publication says: cflru, lru-wsr, ccf-lru and fab keep it.
        Published = "published",
        /// It does.
        Always = "always",
        /// It does not.
        Never = "never",
    }
}

words! {
    /// The accesses that count towards the length of a period.
    PeriodUnit {
        /// Page writes.
        Writes = "writes",
        /// Page reads and writes.
        Accesses = "accesses",
    }
}

words! {
    /// The choice of the hotness threshold.
    HotnessRule {
        /// Algorithm 2, corrected.
        Adaptive = "adaptive",
        /// Algorithm 2, corrected, its registers scaled from the pages of a period to the resident pages.
        Scaled = "scaled",
        /// Algorithm 2 as printed.
        Literal = "literal",
        /// The constant `hot_threshold`.
        Fixed = "fixed",
    }
}

words! {
    /// The choice of the coolness threshold.
    CoolnessRule {
        /// Algorithm 3, corrected.
        Adaptive = "adaptive",
        /// Algorithm 3 as printed.
        Literal = "literal",
        /// No wear control: every page enters the PCM.
        Off = "off",
    }
}

words! {
    /// The number of SSD writes that a period is compared with.
    ExpectedRule {
        /// The SSD's share of the writes to PCM and SSD that the period had.
        OfActual = "of-actual",
        /// The SSD's share of the period's length.
        OfPeriod = "of-period",
    }
}

words! {
    /// The change of the admission filters at a period's end.
    FilterRule {
        /// All become empty.
        Reset = "reset",
        /// Every count falls by one.
        Shift = "shift",
    }
}

words! {
    /// The memory that receives a write that moves its page to DRAM.
    PromotingWrite {
        /// DRAM.
        Dram = "dram",
        /// PCM, from where the page then moves.
        Pcm = "pcm",
    }
}

words! {
    /// The effect of a write of a page in PCM in the two-level buffer.
    PcmHit {
        /// The page is written in PCM.
        InPlace = "in-place",
        /// The page moves back to DRAM.
        Move = "move",
    }
}

words! {
    /// The counter of a page that moves between the memories.
    MovedCounter {
        /// Keeps its count.
        Keep = "keep",
        /// Starts again at 1.
        Reset = "reset",
    }
}

words! {
    /// The handling of a write of a part of a page that is not in the buffer.
    PartialWrite {
        /// The page holds the written sectors only; the others are read from flash when it is destaged.
        Merge = "merge",
        /// The other sectors are read from flash at once.
        Fetch = "fetch",
    }
}

words! {
    /// Time and energy of an access to a part of a page.
    AccessCharge {
        /// Those of the whole page.
        Page = "page",
        /// The share of the accessed sectors.
        Sectors = "sectors",
    }
}

words! {
    /// When a write that evicts a page completes.
    DestageRule {
        /// When its data are in the buffer; the victim waits in the destage queue.
        Queued = "queued",
        /// When, in addition, the victim is on flash.
        Synchronous = "synchronous",
    }
}

words! {
    /// Leakage of the tags.
    TagRule {
        /// `tags_small` up to `tags_step`, `tags_large` above.
        Step = "step",
        /// In proportion to the size: the arrays' `tag_leakage`.
        Linear = "linear",
        /// None.
        None = "none",
    }
}

kind! {
    /// The write buffer of an SSD.
    WriteBuffer = "buffer";
    parts {
        /// The DRAM partition; of size 0 if there is none.
        dram: Array,
        /// The PCM partition; of size 0 if there is none.
        pcm: Array,
    }
    fields {
        /// Organisation.
        scheme: BufferScheme,
        /// Replacement policy; other than lru for dram-only.
        policy: BufferPolicy,
        /// Whether a page that the host reads from flash enters the buffer; always for dram-only.
        keep_reads: KeptReads,
        /// Share of the buffer that is the clean-first window of cflru.
        clean_first: Fraction,
        /// Whether bplru pads a victim to the whole erase block.
        padding: bool,
        /// Length of a period, in accesses of the kind that `period_of` names.
        period: u64,
        /// Accesses that count towards the length of a period.
        period_of: PeriodUnit,
        /// Choice of the hotness threshold.
        hotness: HotnessRule,
        /// Hotness threshold where it is fixed, 1 to 8.
        hot_threshold: u64,
        /// Choice of the coolness threshold.
        coolness: CoolnessRule,
        /// SSD writes that a period is compared with.
        expected_writes: ExpectedRule,
        /// Change of the admission filters at a period's end.
        filter_decay: FilterRule,
        /// Size of a Bloom filter.
        filter_size: Bytes,
        /// Bits that a Bloom filter sets for a page.
        filter_hashes: u64,
        /// Memory that receives a write that moves its page to DRAM.
        promoting_write: PromotingWrite,
        /// Effect of a write of a page in PCM in the two-level buffer.
        pcm_hit: PcmHit,
        /// Counter of a page that moves between the memories.
        moved_counter: MovedCounter,
        /// Handling of a write of a part of a page that is not in the buffer.
        partial_write: PartialWrite,
        /// Time and energy of an access to a part of a page.
        access_charge: AccessCharge,
        /// When a write that evicts a page completes.
        destage: DestageRule,
        /// Pages that wait for flash at once; a further write that evicts a page waits.
        destage_queue: u64,
        /// Leakage of the tags.
        tags: TagRule,
        /// Leakage power of the tags of a small buffer.
        tags_small: Watts,
        /// Leakage power of the tags of a large buffer.
        tags_large: Watts,
        /// Size of the largest small buffer.
        tags_step: Bytes,
    }
    derived {
        /// size of both partitions
        total_size: Bytes = |b| (b.dram.size.0 + b.pcm.size.0) as f64,
        /// leakage of the tags, by `tags`
        tag_power: Watts = |b| b.tag_power().0,
        /// leakage of both partitions + leakage of the tags
        total_leakage: Watts = |b| b.dram.leakage.0 + b.pcm.leakage.0 + b.tag_power().0,
    }
}

impl WriteBuffer {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        let (dram, pcm) = (self.dram.size.0 > 0, self.pcm.size.0 > 0);
        let (needs_dram, needs_pcm) = match self.scheme {
            BufferScheme::DramOnly => (true, false),
            BufferScheme::PcmOnly => (false, true),
            BufferScheme::TwoLevel | BufferScheme::ToSsd | BufferScheme::ToPcm => (true, true),
        };
        if (dram, pcm) != (needs_dram, needs_pcm) {
            let part = |needed| if needed { "more than 0" } else { "0" };
            let message = format!(
                "{} needs dram.size {} and pcm.size {}",
                self.scheme.word(),
                part(needs_dram),
                part(needs_pcm)
            );
            return Err(InvalidFigure::new("scheme", message));
        }
        if self.has_policy() && self.scheme != BufferScheme::DramOnly {
            let message = "policies other than lru, and keep_reads always, are for scheme dram-only";
            return Err(InvalidFigure::new("policy", message));
        }
        if dram && self.dram.cells != Cells::Dram || pcm && self.pcm.cells != Cells::Pcm {
            return Err(InvalidFigure::new("scheme", "dram.cells must be dram, and pcm.cells pcm"));
        }
        if self.dram.page != self.pcm.page {
            return Err(InvalidFigure::new("scheme", "dram.page and pcm.page must be equal"));
        }
        if pcm && self.pcm.endurance.is_none() {
            return Err(InvalidFigure::new("scheme", "pcm.endurance must be stated"));
        }
        let range = |key, value, least, most| {
            let valid = (least..=most).contains(&value);
            let message = || InvalidFigure::new(key, format!("must be {least} to {most}"));
            if valid { Ok(()) } else { Err(message()) }
        };
        range("period", self.period, 1, 1 << 30)?;
        range("hot_threshold", self.hot_threshold, 1, 8)?;
        range("filter_size", self.filter_size.0, 8, 1 << 28)?;
        range("filter_hashes", self.filter_hashes, 1, 64)?;
        range("destage_queue", self.destage_queue, 1, 1 << 16)
    }

    /// True if the buffer is more than one that keeps written pages in the order of their last use.
    pub fn has_policy(&self) -> bool {
        self.policy != BufferPolicy::Lru || self.keep_reads == KeptReads::Always
    }

    /// Leakage power of the tags.
    pub fn tag_power(&self) -> Watts {
        let size = self.dram.size.0 + self.pcm.size.0;
        match self.tags {
            TagRule::Step if size <= self.tags_step.0 => self.tags_small,
            TagRule::Step => self.tags_large,
            TagRule::Linear => {
                let of = |array: &Array| array.tag_leakage.0 * array.size.0 as f64;
                Watts(of(&self.dram) + of(&self.pcm))
            }
            TagRule::None => Watts(0.0),
        }
    }
}
