//! The error correction of a flash controller: BCH code and CRC, as time and correction capability (flash
//! disk cache, sections 3.2 and 5.2). The codec itself is not here.

use deepram_core::units::{Bytes, Picos};

use crate::model::{InvalidFigure, kind, words};

words! {
    /// The time of a decoder as a function of the number of bits it can correct.
    DecodeLaw {
        /// `decode_fixed` + `decode_per_bit` x strength.
        Affine = "affine",
        /// `decode_per_bit` x strength: twice the strength takes twice the time.
        Proportional = "proportional",
        /// Clock cycles of a decoder of `width` bits a cycle.
        Hardware = "hardware",
    }
}

kind! {
    /// An error-correcting code and its decoder.
    Ecc = "ecc";
    parts {}
    fields {
        /// The law of the decoding time.
        law: DecodeLaw,
        /// Decoding time that does not depend on the strength, of the affine law.
        decode_fixed: Picos,
        /// Decoding time of each bit that can be corrected, of the affine and proportional laws.
        decode_per_bit: Picos,
        /// Bits of a symbol of the code's field: the code word has less than 2^field_bits bits.
        field_bits: u64,
        /// Bits that the hardware decoder handles in a cycle.
        width: u64,
        /// Clock cycle of the hardware decoder.
        cycle: Picos,
        /// Whether the hardware decoder solves the key equation with one multiplier.
        serial: bool,
        /// Bits that the strongest code corrects.
        strongest: u64,
        /// Bits of the checksum that finds wrong corrections.
        crc_bits: u64,
    }
    derived {}
}

impl Ecc {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if !(5..=20).contains(&self.field_bits) {
            return Err(InvalidFigure::new("field_bits", "must be 5 to 20"));
        }
        if self.strongest > 64 {
            return Err(InvalidFigure::new("strongest", "must be at most 64"));
        }
        if self.width > 1 << 16 || self.crc_bits > 1 << 16 {
            return Err(InvalidFigure::new(
                "width",
                "the widths of decoder and checksum are at most 65536 bits",
            ));
        }
        Ok(())
    }

    /// Bytes of the code's check bits and of the checksum at a strength.
    pub fn check_bytes(&self, strength: u64) -> Bytes {
        Bytes((self.field_bits * strength).div_ceil(8) + self.crc_bits.div_ceil(8))
    }

    /// The greatest strength, up to the strongest, whose check bytes fit into `spare` and whose code word of
    /// `data` bytes fits into the field; 0 if none does.
    pub fn strongest_in(&self, data: Bytes, spare: Bytes) -> u64 {
        let fits = |strength: &u64| {
            let word = u128::from(data.0) * 8 + u128::from(self.field_bits * strength);
            self.check_bytes(*strength) <= spare && word < 1 << self.field_bits
        };
        (1..=self.strongest).rev().find(fits).unwrap_or(0)
    }

    /// Decoding time of `data` bytes at a strength.
    pub fn decode(&self, data: Bytes, strength: u64) -> Picos {
        match self.law {
            DecodeLaw::Affine => self.decode_fixed + self.decode_per_bit.times(strength),
            DecodeLaw::Proportional => self.decode_per_bit.times(strength),
            DecodeLaw::Hardware => self.cycle.times(self.decode_cycles(data, strength)),
        }
    }

    /// Clock cycles of a hardware decoder: syndromes, key equation, error search (bch_verilog).
    pub fn decode_cycles(&self, data: Bytes, strength: u64) -> u64 {
        let (data, check) = (data.0.saturating_mul(8), self.field_bits * strength);
        let syndromes = data.saturating_add(check).div_ceil(self.width);
        let key_equation = if self.serial {
            (strength * (self.field_bits + 2)).saturating_sub(2)
        } else {
            (2 * strength).saturating_sub(1)
        };
        let search = 2 + data.div_ceil(self.width);
        syndromes.saturating_add(key_equation).saturating_add(search)
    }

    /// Clock cycles of a hardware encoder (bch_verilog).
    pub fn encode_cycles(&self, data: Bytes, strength: u64) -> u64 {
        data.0.saturating_mul(8).div_ceil(self.width) + (self.field_bits * strength).div_ceil(self.width)
    }
}
