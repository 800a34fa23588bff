//! Bounds how much of a program's code the kernel reads for one page fault (ADR 49).
//!
//! The kernel reads as many pages of code around a fault as the readahead of the disk has, which can be megabytes: more than
//! the page cache of a run may have, so that each fault displaces code that is used. The advice `MADV_RANDOM` makes the kernel
//! read single pages of a mapping, but not of code from Linux 6.16 on, where the readahead ends with the mapping. So
//! code is divided into small mappings: every second piece gets an advice that changes nothing else.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use deepram_core::paging::PAGE;

use crate::kernel;

/// Size of a mapping of code, bytes, as of the block of pages in the page cache that the kernel maps at one fault.
const PIECE: usize = 64 << 10;
/// Largest number of pieces of a mapping; the kernel bounds the number of mappings of a process.
const MOST_PIECES: usize = 1024;

/// Bounds the readahead of all objects that are loaded. Called before the program's own code runs.
pub(crate) fn bound() {
    // SAFETY: the function takes what `dl_iterate_phdr` gives, and no data.
    unsafe { libc::dl_iterate_phdr(Some(bound_object), std::ptr::null_mut()) };
}

/// # Safety
/// `object` describes a loaded object.
unsafe extern "C" fn bound_object(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: by the caller.
    let object = unsafe { &*object };
    // SAFETY: the loader gives so many program headers, which stay while the object is loaded.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = (object.dlpi_addr + header.p_vaddr) as usize;
        let pages = start / PAGE * PAGE..(start + header.p_filesz as usize).next_multiple_of(PAGE);
        // Neither advice changes the contents of memory. Without it, more is read.
        kernel::madvise(pages.start, pages.len(), libc::MADV_RANDOM);
        if header.p_flags & libc::PF_X != 0 {
            for piece in pieces(&pages) {
                kernel::madvise(piece.start, piece.len(), libc::MADV_NOHUGEPAGE);
            }
        }
    }
    0
}

/// Every second piece of the mapping.
fn pieces(mapping: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let size = PIECE.max((mapping.len() / MOST_PIECES).next_power_of_two());
    let end = mapping.end;
    (mapping.start.next_multiple_of(size)..end).step_by(2 * size).map(move |at| at..(at + size).min(end))
}
