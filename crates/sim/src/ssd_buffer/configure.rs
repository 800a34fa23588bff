//! The options of core's buffer from the presets.

use deepram_core::hybrid_buffer::{Coolness, Hotness, HybridBuffer, HybridOptions, Memory, Scheme};
use deepram_core::migration::{CoolnessForm, ExpectedWrites, FilterDecay, HotnessForm};
use deepram_core::write_buffer::{SectorBuffer, WriteBufferOptions, WriteBufferPolicy};
use deepram_media::{
    Array, BufferPolicy, BufferScheme, CoolnessRule, ExpectedRule, FilterRule, HotnessRule, KeptReads,
    MovedCounter, PartialWrite, PcmHit, PeriodUnit, PromotingWrite, Ssd, WriteBuffer, endurance_ratio,
};

use super::decisions::Decisions;
use crate::error::SimError;
use crate::ssd::serial::checked_u32;

/// The buffer of `preset` in front of the drive `ssd`, whose pages have `page_sectors` sectors.
pub(super) fn decisions(preset: &WriteBuffer, ssd: &Ssd, page_sectors: u32) -> Result<Decisions, SimError> {
    let options = options(preset, ssd, page_sectors)?;
    if !preset.has_policy() {
        return Ok(Decisions::Hybrid(Box::new(HybridBuffer::new(&options))));
    }
    let pages = options.dram_pages as usize;
    let policy = match preset.policy {
        BufferPolicy::Lru => WriteBufferPolicy::Lru,
        BufferPolicy::Cflru => WriteBufferPolicy::Cflru,
        BufferPolicy::LruWsr => WriteBufferPolicy::LruWsr,
        BufferPolicy::CcfLru => WriteBufferPolicy::CcfLru,
        BufferPolicy::Fab => WriteBufferPolicy::Fab,
        BufferPolicy::Bplru => WriteBufferPolicy::Bplru,
    };
    let buffer = policy.build(&WriteBufferOptions {
        keep_reads: match preset.keep_reads {
            KeptReads::Published => None,
            KeptReads::Always => Some(true),
            KeptReads::Never => Some(false),
        },
        clean_first_pages: Some((preset.clean_first.0 * pages as f64).round() as usize),
        padding: preset.padding,
        ..WriteBufferOptions::new(pages, checked_u32("pages_per_block", ssd.nand.pages_per_block)?)
    });
    Ok(Decisions::Policy(SectorBuffer::new(buffer, page_sectors, options.fetch_on_write)))
}

/// The options of the buffer of `preset` in front of the drive `ssd`, whose pages have `page_sectors`
/// sectors.
fn options(preset: &WriteBuffer, ssd: &Ssd, page_sectors: u32) -> Result<HybridOptions, SimError> {
    let pages = |key, array: &Array| checked_u32(key, array.size.0 / array.page.0);
    let pcm = &preset.pcm;
    Ok(HybridOptions {
        scheme: match preset.scheme {
            BufferScheme::DramOnly => Scheme::DramOnly,
            BufferScheme::PcmOnly => Scheme::PcmOnly,
            BufferScheme::TwoLevel => Scheme::TwoLevel,
            BufferScheme::ToSsd => Scheme::ToSsd,
            BufferScheme::ToPcm => Scheme::ToPcm,
        },
        dram_pages: pages("dram.size", &preset.dram)?,
        pcm_pages: pages("pcm.size", pcm)?,
        page_sectors,
        period: checked_u32("period", preset.period)?,
        reads_end_periods: preset.period_of == PeriodUnit::Accesses,
        hotness: match preset.hotness {
            HotnessRule::Adaptive => Hotness::Adaptive(HotnessForm::Corrected),
            HotnessRule::Scaled => Hotness::Scaled(HotnessForm::Corrected),
            HotnessRule::Literal => Hotness::Adaptive(HotnessForm::Literal),
            HotnessRule::Fixed => Hotness::Fixed(preset.hot_threshold as u8),
        },
        coolness: match preset.coolness {
            CoolnessRule::Adaptive => Coolness::Adaptive(CoolnessForm::Corrected),
            CoolnessRule::Literal => Coolness::Adaptive(CoolnessForm::Literal),
            CoolnessRule::Off => Coolness::Off,
        },
        endurance_ratio: endurance_ratio(
            (pcm.size, pcm.endurance.unwrap_or(0)),
            (ssd.raw_bytes(), ssd.nand.endurance),
        ),
        expected: match preset.expected_writes {
            ExpectedRule::OfActual => ExpectedWrites::OfActual,
            ExpectedRule::OfPeriod => ExpectedWrites::OfPeriod,
        },
        decay: match preset.filter_decay {
            FilterRule::Reset => FilterDecay::Reset,
            FilterRule::Shift => FilterDecay::Shift,
        },
        filter_bytes: checked_u32("filter_size", preset.filter_size.0)?,
        filter_hashes: checked_u32("filter_hashes", preset.filter_hashes)?,
        promoting_write: match preset.promoting_write {
            PromotingWrite::Dram => Memory::Dram,
            PromotingWrite::Pcm => Memory::Pcm,
        },
        write_hit_moves: preset.pcm_hit == PcmHit::Move,
        move_resets_count: preset.moved_counter == MovedCounter::Reset,
        fetch_on_write: preset.partial_write == PartialWrite::Fetch,
    })
}
