//! The pages of a file: direct addresses in the inode, then an index page, then a page of index pages. A page that was never
//! written is a hole, which reads as zeros.

use deepram_core::units::PAGE_BYTES;
use deepram_pool::{Addr, PoolError};

use crate::error::{FilesError, Result};
use crate::layout::{DIRECT, FANOUT, FILE_PAGES, Inode};
use crate::memory::{Change, Memory};

/// Largest size of a file, bytes.
pub(crate) const MOST_BYTES: u64 = FILE_PAGES * PAGE_BYTES;

/// Place of a page's address.
enum Place {
    Direct(usize),
    /// Entry of the index page.
    Single(u64),
    /// Entry of the page of index pages, and entry of that index page.
    Double(u64, u64),
}

fn place(page: u64) -> Result<Place> {
    let direct = DIRECT as u64;
    match page {
        _ if page < direct => Ok(Place::Direct(page as usize)),
        _ if page < direct + FANOUT => Ok(Place::Single(page - direct)),
        _ if page < FILE_PAGES => {
            let rest = page - direct - FANOUT;
            Ok(Place::Double(rest / FANOUT, rest % FANOUT))
        }
        _ => Err(FilesError::TooLarge { most: MOST_BYTES }),
    }
}

/// Address of an entry of an index page.
fn entry(index: u64, number: u64) -> Result<Addr> {
    Ok(Addr::from_raw(index).offset_by(8 * number).map_err(PoolError::from)?)
}

/// Returns the addresses of `count` pages; 0 for a hole.
pub(crate) fn pages(memory: &Memory, inode: &Inode, first: u64, count: u64) -> Result<Vec<u64>> {
    let mut found = Vec::with_capacity(count as usize);
    while (found.len() as u64) < count {
        let (page, left) = (first + found.len() as u64, count - found.len() as u64);
        // Entries that lie together are read together.
        let (index, number) = match place(page)? {
            Place::Direct(number) => {
                let n = (DIRECT - number).min(left as usize);
                found.extend_from_slice(&inode.direct[number..number + n]);
                continue;
            }
            Place::Single(number) => (inode.single, number),
            Place::Double(_, number) if inode.double == 0 => (0, number),
            Place::Double(number, inner) => (memory.read_word(entry(inode.double, number)?)?, inner),
        };
        let n = (FANOUT - number).min(left) as usize;
        match index {
            0 => found.resize(found.len() + n, 0),
            _ => found.extend(memory.read_words(entry(index, number)?, n)?),
        }
    }
    Ok(found)
}

/// Sets the address of a page and makes the index pages that this needs.
fn set(change: &mut Change<'_>, inode: &mut Inode, page: u64, address: u64) -> Result<()> {
    let (index, number) = match place(page)? {
        Place::Direct(number) => {
            inode.direct[number] = address;
            return Ok(());
        }
        Place::Single(number) => {
            if inode.single == 0 {
                inode.single = change.alloc(1)?.raw();
                inode.pages += 1;
            }
            (inode.single, number)
        }
        Place::Double(number, inner) => {
            if inode.double == 0 {
                inode.double = change.alloc(1)?.raw();
                inode.pages += 1;
            }
            let at = entry(inode.double, number)?;
            let mut index = change.memory().read_word(at)?;
            if index == 0 {
                index = change.alloc(1)?.raw();
                inode.pages += 1;
                change.write_word(at, index)?;
            }
            (index, inner)
        }
    };
    change.write_word(entry(index, number)?, address)
}

/// Allocates the holes among `count` pages. Returns the addresses of all of them.
pub(crate) fn map(change: &mut Change<'_>, inode: &mut Inode, first: u64, count: u64) -> Result<Vec<u64>> {
    let mut found = pages(change.memory(), inode, first, count)?;
    let mut at = 0;
    while at < found.len() {
        if found[at] != 0 {
            at += 1;
            continue;
        }
        let hole = found[at..].iter().take_while(|&&address| address == 0).count() as u64;
        // Neighbours in the file become neighbours in memory where there is room for that.
        let (start, pages) = match change.alloc(hole) {
            Ok(start) => (start, hole),
            Err(FilesError::Pool(PoolError::NoAddressSpace { .. })) if hole > 1 => (change.alloc(1)?, 1),
            Err(error) => return Err(error),
        };
        for n in 0..pages {
            found[at] = start.raw() + n * PAGE_BYTES;
            set(change, inode, first + at as u64, found[at])?;
            at += 1;
        }
        inode.pages += pages;
    }
    Ok(found)
}

/// Makes pages holes.
pub(crate) fn punch(change: &mut Change<'_>, inode: &mut Inode, first: u64, count: u64) -> Result<()> {
    const BATCH: u64 = FANOUT;
    for start in (first..first + count).step_by(BATCH as usize) {
        let n = BATCH.min(first + count - start);
        for (page, address) in (start..).zip(pages(change.memory(), inode, start, n)?) {
            if address != 0 {
                set(change, inode, page, 0)?;
                change.free(Addr::from_raw(address));
                inode.pages -= 1;
            }
        }
    }
    Ok(())
}

/// Frees the entries of an index page from `first` on, and with `first` 0 the index page itself. Returns whether it was freed.
fn cut_index(change: &mut Change<'_>, inode: &mut Inode, index: u64, first: u64) -> Result<bool> {
    let entries = change.memory().read_words(entry(index, first)?, (FANOUT - first) as usize)?;
    let used = entries.iter().rposition(|&address| address != 0).map_or(0, |last| last + 1);
    for &address in entries.iter().filter(|&&address| address != 0) {
        change.free(Addr::from_raw(address));
        inode.pages -= 1;
    }
    if first == 0 {
        change.free(Addr::from_raw(index));
        inode.pages -= 1;
        return Ok(true);
    }
    change.write(entry(index, first)?, &vec![0; 8 * used])?;
    Ok(false)
}

/// Frees all pages from `first` on.
pub(crate) fn cut(change: &mut Change<'_>, inode: &mut Inode, first: u64) -> Result<()> {
    for number in (first as usize).min(DIRECT)..DIRECT {
        let address = std::mem::take(&mut inode.direct[number]);
        if address != 0 {
            change.free(Addr::from_raw(address));
            inode.pages -= 1;
        }
    }
    let first = first.saturating_sub(DIRECT as u64);
    if inode.single != 0 && first < FANOUT && cut_index(change, inode, inode.single, first)? {
        inode.single = 0;
    }
    let first = first.saturating_sub(FANOUT);
    if inode.double == 0 {
        return Ok(());
    }
    let outer = first / FANOUT;
    let indexes = change.memory().read_words(entry(inode.double, outer)?, (FANOUT - outer) as usize)?;
    for (number, index) in (outer..).zip(indexes) {
        let from = if number == outer { first % FANOUT } else { 0 };
        if index != 0 && cut_index(change, inode, index, from)? {
            change.write_word(entry(inode.double, number)?, 0)?;
        }
    }
    if first == 0 {
        change.free(Addr::from_raw(inode.double));
        inode.double = 0;
        inode.pages -= 1;
    }
    Ok(())
}
