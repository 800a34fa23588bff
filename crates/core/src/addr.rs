//! The 64-bit virtual address (NVMM, Software Interface): 20 bits of controller, 28 of page number, 16
//! of offset.
//!
//! ```text
//!  63            44 43                     16 15        0
//! ┌────────────────┬─────────────────────────┬───────────┐
//! │ controller, 20 │ virtual page number, 28 │ offset 16 │
//! └────────────────┴─────────────────────────┴───────────┘
//! ```

use core::fmt;

use crate::units::{PAGE_BYTES, PageId};

const OFFSET_BITS: u32 = 16;
const PAGE_BITS: u32 = 28;
const CONTROLLER_BITS: u32 = 20;

const _: () = assert!(OFFSET_BITS + PAGE_BITS + CONTROLLER_BITS == 64, "the address is 64 bits");
const _: () = assert!(PAGE_BYTES == 1 << OFFSET_BITS, "the offset covers a page");

/// The largest number of pages of a controller: 16 TiB.
pub const MAX_PAGES: u32 = 1 << PAGE_BITS;
/// The largest number of controllers of a system.
pub const MAX_CONTROLLERS: u32 = 1 << CONTROLLER_BITS;

/// A virtual address: the controller, the page on that controller, and the byte in that page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(u64);

/// A number exceeds its field of the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddrError {
    /// The controller's number exceeds 20 bits.
    Controller(u32),
    /// The page number exceeds 28 bits.
    Page(u32),
    /// The offset exceeds 16 bits.
    Offset(u32),
    /// An address plus an offset exceeds the controller's 16 TiB.
    Overflow {
        /// The address.
        from: Addr,
        /// The offset, in bytes.
        by: u64,
    },
}

impl fmt::Display for AddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller(c) => {
                write!(f, "controller {c:#x} exceeds 20 bits: the largest is {:#x}", MAX_CONTROLLERS - 1)
            }
            Self::Page(p) => write!(f, "page {p:#x} exceeds 28 bits: the largest is {:#x}", MAX_PAGES - 1),
            Self::Offset(o) => write!(f, "offset {o:#x} exceeds 16 bits: the largest is 0xffff"),
            Self::Overflow { from, by } => {
                write!(f, "{from} plus {by} bytes is beyond the controller's 16 TiB")
            }
        }
    }
}

impl core::error::Error for AddrError {}

impl Addr {
    /// The address of the byte at `offset` of `page` on `controller`.
    ///
    /// # Errors
    /// [`AddrError`] for the first number that exceeds its field.
    pub const fn new(controller: u32, page: u32, offset: u32) -> Result<Self, AddrError> {
        if controller >= MAX_CONTROLLERS {
            return Err(AddrError::Controller(controller));
        }
        if page >= MAX_PAGES {
            return Err(AddrError::Page(page));
        }
        if offset as u64 >= PAGE_BYTES {
            return Err(AddrError::Offset(offset));
        }
        Ok(Self(
            (controller as u64) << (PAGE_BITS + OFFSET_BITS) | (page as u64) << OFFSET_BITS | offset as u64,
        ))
    }

    /// The address with these 64 bits. Every value is an address.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The 64 bits.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The controller's number.
    #[must_use]
    pub const fn controller(self) -> u32 {
        (self.0 >> (PAGE_BITS + OFFSET_BITS)) as u32
    }

    /// True if the controller field is all zeros or all ones, which means "local": no controller
    /// forwards an access to this address.
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.controller() == 0 || self.controller() == MAX_CONTROLLERS - 1
    }

    /// The page.
    #[must_use]
    pub const fn page(self) -> PageId {
        PageId((self.0 >> OFFSET_BITS) as u32 & (MAX_PAGES - 1))
    }

    /// The offset in the page, in bytes.
    #[must_use]
    pub const fn offset(self) -> u32 {
        (self.0 & (PAGE_BYTES - 1)) as u32
    }

    /// The offset in the controller's address space, in bytes.
    #[must_use]
    pub const fn controller_offset(self) -> u64 {
        self.0 & ((1 << (PAGE_BITS + OFFSET_BITS)) - 1)
    }

    /// The address `by` bytes after this one, on the same controller.
    ///
    /// # Errors
    /// [`AddrError::Overflow`] beyond the controller's last byte.
    pub const fn offset_by(self, by: u64) -> Result<Self, AddrError> {
        match self.controller_offset().checked_add(by) {
            Some(sum) if sum >> (PAGE_BITS + OFFSET_BITS) == 0 => {
                Ok(Self(self.0 - self.controller_offset() + sum))
            }
            _ => Err(AddrError::Overflow { from: self, by }),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}+{:x}", self.controller(), self.page().0, self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn fields_come_back_at_their_limits() {
        for controller in [0, 1, 0x7_FFFF, MAX_CONTROLLERS - 1] {
            for page in [0, 1, 0x0ABC_DEF0, MAX_PAGES - 1] {
                for offset in [0, 1, 0xFFFF] {
                    let addr = Addr::new(controller, page, offset).unwrap();
                    assert_eq!((addr.controller(), addr.page().0, addr.offset()), (controller, page, offset));
                    assert_eq!(Addr::from_raw(addr.raw()), addr);
                }
            }
        }
    }

    #[test]
    fn the_figures_vpn_of_29_bits_is_refused_and_the_labels_fits() {
        // The paper's figure shows 0x1234ABCD, which exceeds a 28-bit page number; its label's 0x123ABCD
        // fits.
        assert_eq!(Addr::new(0, 0x1234_ABCD, 0), Err(AddrError::Page(0x1234_ABCD)));
        assert_eq!(Addr::new(0, 0x0123_ABCD, 0).unwrap().page(), PageId(0x0123_ABCD));
    }

    #[test]
    fn values_out_of_range_are_errors_that_name_the_limit() {
        assert_eq!(Addr::new(1 << 20, 0, 0), Err(AddrError::Controller(1 << 20)));
        assert_eq!(Addr::new(0, 0, 1 << 16), Err(AddrError::Offset(1 << 16)));
        assert!(Addr::new(0, 1 << 28, 0).unwrap_err().to_string().contains("0xfffffff"));
    }

    #[test]
    fn all_zeros_and_all_ones_mean_local() {
        assert!(Addr::new(0, 5, 5).unwrap().is_local());
        assert!(Addr::new(0xF_FFFF, 5, 5).unwrap().is_local());
        assert!(!Addr::new(1, 5, 5).unwrap().is_local());
        assert!(!Addr::new(0xF_FFFE, 5, 5).unwrap().is_local());
    }

    #[test]
    fn a_sum_carries_into_the_page_but_not_into_the_controller() {
        let last = Addr::new(3, 7, 0xFFFF).unwrap();
        assert_eq!(last.offset_by(1), Addr::new(3, 8, 0));
        let end = Addr::new(3, MAX_PAGES - 1, 0xFFFF).unwrap();
        assert_eq!(end.offset_by(1), Err(AddrError::Overflow { from: end, by: 1 }));
        assert_eq!(end.offset_by(u64::MAX), Err(AddrError::Overflow { from: end, by: u64::MAX }));
        assert_eq!(end.to_string(), "3:fffffff+ffff");
    }
}
