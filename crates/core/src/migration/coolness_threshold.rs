//! The coolness threshold: from which write on a page that is not in the buffer may enter the PCM
//! partition (hybrid SSD cache, section V-C, Algorithm 3).
//!
//! Four registers count how often the present period's writes had an access count of 1 to 4. At the
//! period's end, the threshold becomes the smallest one that would have sent enough writes to the SSD:
//! the writes with smaller counts, and the write disparity of earlier periods, reach `SSD_writes`
//! ([`WearBalance`](super::WearBalance)). If even all four do not suffice, the PCM is closed: no page
//! enters it.
//!
//! The algorithm as printed differs in three places ([`CoolnessForm::Literal`]):
//!
//! - It expresses a closed PCM by a coolness threshold equal to the hotness threshold, which is also the
//!   normal state where both are 1.
//! - It does not reset its registers.
//! - Its loop goes on beyond the fourth register. Here it ends there in both forms.

/// Registers of the algorithm.
const REGISTERS: u8 = 4;

/// The form of Algorithm 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CoolnessForm {
    /// A closed PCM is a state of its own, and registers are reset.
    #[default]
    Corrected,
    /// As printed.
    Literal,
}

/// The state of Algorithm 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoolnessThreshold {
    form: CoolnessForm,
    frequency: [u64; REGISTERS as usize],
    threshold: u8,
    closed: bool,
}

impl CoolnessThreshold {
    /// The state before the first write: a threshold of 1, which lets every page in.
    #[must_use]
    pub fn new(form: CoolnessForm) -> Self {
        Self { form, frequency: [0; REGISTERS as usize], threshold: 1, closed: false }
    }

    /// Records a write of a page whose access count is now `count`, at least 1.
    #[inline]
    pub fn record(&mut self, count: u8) {
        if let Some(register) = self.frequency.get_mut(usize::from(count) - 1) {
            *register += 1;
        }
    }

    /// Ends a period: sets the threshold. `disparity` is that of the earlier periods, `ssd_writes` the
    /// SSD writes wanted of a period, `hotness` the hotness threshold.
    pub fn end_period(&mut self, disparity: f64, ssd_writes: f64, hotness: u8) {
        let mut sum = disparity;
        self.threshold = 1;
        while sum < ssd_writes && self.threshold <= REGISTERS {
            sum += self.frequency[usize::from(self.threshold) - 1] as f64;
            self.threshold += 1;
        }
        let short = sum < ssd_writes;
        match self.form {
            CoolnessForm::Corrected => {
                self.closed = short;
                self.frequency = [0; REGISTERS as usize];
            }
            CoolnessForm::Literal => {
                if short {
                    self.threshold = hotness;
                }
                self.closed = self.threshold == hotness;
            }
        }
    }

    /// The threshold, 1 to 5 (1 to 8 in the literal form).
    #[must_use]
    #[inline]
    pub fn threshold(&self) -> u8 {
        self.threshold
    }

    /// True if no page may enter the PCM.
    #[must_use]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The registers: entry n holds the writes with an access count of n + 1.
    #[must_use]
    pub fn frequency(&self) -> [u64; REGISTERS as usize] {
        self.frequency
    }
}
