//! The reference model of a pool, in the simplest possible form.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Snapshots share pages through `Arc`: a snapshot copies pointers, and a later write copies one page.
type Contents = BTreeMap<u64, Arc<[u8; PAGE]>>;

/// The reference model of a pool: bytes by address, the synced epochs, and the state after a power cut.
///
/// The model treats the pool's addresses as plain numbers. Bytes that were allocated and never written are zero.
/// Drive the model with the same calls as a pool, then compare:
///
/// ```
/// use deepram_testkit::Model;
///
/// let mut model = Model::new();
/// model.write(4096, b"kept");
/// model.sync(1);
/// model.write(4096, b"lost");
/// model.crash();
///
/// // In place of the pool: one page.
/// let read = |addr: u64, buf: &mut [u8]| {
///     assert_eq!((addr, buf.len()), (4096, 4096));
///     buf.fill(0);
///     buf[..4].copy_from_slice(b"kept");
/// };
/// model.check(read).unwrap();
/// ```
///
/// A sync that a power cut interrupts may have reached the device or not. Clone the model, sync the clone, and after
/// reopening continue with the model whose [`Self::last_token`] the pool reports.
#[derive(Clone, Debug, Default)]
pub struct Model {
    now: Contents,
    /// The state after a power cut: the bytes of the last sync or rollback, and those persisted since.
    durable: Contents,
    epochs: BTreeMap<u64, Contents>,
}

impl Model {
    /// Makes an empty pool without tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates the pages of 4 KiB that the range touches, as zeros. Allocated pages do not change.
    pub fn alloc(&mut self, addr: u64, len: u64) {
        for page in pages(addr, len) {
            self.now.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
        }
    }

    /// Writes `bytes` at `addr`, with any alignment; allocates missing pages.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        put(&mut self.now, addr, bytes);
    }

    /// Fills `buf` with the bytes at `addr`; zeros where no page is allocated.
    pub fn read(&self, addr: u64, buf: &mut [u8]) {
        get(&self.now, addr, buf);
    }

    /// Frees the range; durable at the next sync.
    ///
    /// # Panics
    /// If `addr` or `len` is not a multiple of 4 KiB.
    pub fn free(&mut self, addr: u64, len: u64) {
        let whole = addr.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE as u64);
        assert!(whole, "frees whole pages, not {len} bytes at {addr:#x}");
        for page in pages(addr, len) {
            self.now.remove(&page);
        }
    }

    /// Makes the current bytes of the range survive a power cut. Unallocated pages are skipped.
    pub fn persist(&mut self, addr: u64, len: u64) {
        for page in pages(addr, len) {
            if let Some(bytes) = self.now.get(&page) {
                let from = addr.max(page);
                let to = (addr + len).min(page + PAGE as u64);
                let kept = &bytes[(from - page) as usize..(to - page) as usize];
                put(&mut self.durable, from, kept);
            }
        }
    }

    /// Makes the current state durable as `token`.
    ///
    /// # Panics
    /// If `token` is not later than every other token.
    pub fn sync(&mut self, token: u64) {
        if let Some(last) = self.last_token() {
            assert!(token > last, "token {token} is not later than {last}");
        }
        self.epochs.insert(token, self.now.clone());
        self.durable = self.now.clone();
    }

    /// Returns to the state of `token`, durably. Later tokens are gone.
    ///
    /// # Panics
    /// If no such token exists.
    pub fn rollback(&mut self, token: u64) {
        self.now = self.epoch(token).clone();
        self.durable = self.now.clone();
        self.epochs.split_off(&(token + 1));
    }

    /// Gives up `token`, so that its versions can be reclaimed.
    ///
    /// # Panics
    /// If no such token exists.
    pub fn release(&mut self, token: u64) {
        assert!(self.epochs.remove(&token).is_some(), "no token {token}");
    }

    /// Cuts the power and opens again: bytes neither synced nor persisted are gone.
    pub fn crash(&mut self) {
        self.now = self.durable.clone();
    }

    /// Returns the existing tokens, oldest first.
    pub fn tokens(&self) -> impl Iterator<Item = u64> {
        self.epochs.keys().copied()
    }

    /// Returns the latest token.
    pub fn last_token(&self) -> Option<u64> {
        self.epochs.last_key_value().map(|(&token, _)| token)
    }

    /// Returns address and bytes of every allocated page in the state of `token`, in order of address.
    ///
    /// # Panics
    /// If no such token exists.
    pub fn expect(&self, token: u64) -> impl Iterator<Item = (u64, &[u8; PAGE])> {
        self.epoch(token).iter().map(|(&addr, page)| (addr, &**page))
    }

    /// Returns address and bytes of every page allocated now, in order of address.
    pub fn expect_now(&self) -> impl Iterator<Item = (u64, &[u8; PAGE])> {
        self.now.iter().map(|(&addr, page)| (addr, &**page))
    }

    /// Compares the bytes that `read` returns with the current state.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, read: impl FnMut(u64, &mut [u8])) -> Result<(), Mismatch> {
        compare(self.expect_now(), read)
    }

    /// Compares the bytes that `read` returns with the state of `token`.
    ///
    /// # Errors
    /// The first byte that differs.
    ///
    /// # Panics
    /// If no such token exists.
    pub fn check_token(&self, token: u64, read: impl FnMut(u64, &mut [u8])) -> Result<(), Mismatch> {
        compare(self.expect(token), read)
    }

    fn epoch(&self, token: u64) -> &Contents {
        self.epochs.get(&token).unwrap_or_else(|| panic!("no token {token}"))
    }
}

/// The first byte in which a pool differs from its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Address of the byte.
    pub addr: u64,
    /// The byte in the model.
    pub expected: u8,
    /// The byte from the pool.
    pub found: u8,
    /// Number of bytes that differ in the 4 KiB page of the byte.
    pub differing: usize,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, expected, found, differing } = self;
        write!(
            f,
            "at {addr:#x}: expected {expected:#04x}, found {found:#04x} ({differing} of the page's {PAGE} bytes differ)"
        )
    }
}

impl std::error::Error for Mismatch {}

/// Returns the addresses of the pages that the range touches.
fn pages(addr: u64, len: u64) -> impl Iterator<Item = u64> {
    let first = addr / PAGE as u64 * PAGE as u64;
    // An empty range touches no page, even in the middle of one.
    let end = if len == 0 { first } else { addr + len };
    (first..end).step_by(PAGE)
}

fn put(contents: &mut Contents, addr: u64, bytes: &[u8]) {
    for page in pages(addr, bytes.len() as u64) {
        let target = contents.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
        let from = addr.max(page);
        let to = (addr + bytes.len() as u64).min(page + PAGE as u64);
        Arc::make_mut(target)[(from - page) as usize..(to - page) as usize]
            .copy_from_slice(&bytes[(from - addr) as usize..(to - addr) as usize]);
    }
}

fn get(contents: &Contents, addr: u64, buf: &mut [u8]) {
    let len = buf.len() as u64;
    for page in pages(addr, len) {
        let from = addr.max(page);
        let to = (addr + len).min(page + PAGE as u64);
        let out = &mut buf[(from - addr) as usize..(to - addr) as usize];
        match contents.get(&page) {
            Some(bytes) => out.copy_from_slice(&bytes[(from - page) as usize..(to - page) as usize]),
            None => out.fill(0),
        }
    }
}

fn compare<'a>(
    expected: impl Iterator<Item = (u64, &'a [u8; PAGE])>,
    mut read: impl FnMut(u64, &mut [u8]),
) -> Result<(), Mismatch> {
    // If `read` leaves bytes unchanged, they must equal neither the previous page nor zeros.
    let mut found = [0; PAGE];
    for (addr, page) in expected {
        // By words: builds of tests are hardly optimised.
        for (word, expected) in found.as_chunks_mut().0.iter_mut().zip(page.as_chunks().0) {
            *word = (!u64::from_ne_bytes(*expected)).to_ne_bytes();
        }
        read(addr, &mut found);
        if found != *page {
            let at = (0..PAGE).find(|&at| found[at] != page[at]).expect("the pages differ");
            return Err(Mismatch {
                addr: addr + at as u64,
                expected: page[at],
                found: found[at],
                differing: (0..PAGE).filter(|&at| found[at] != page[at]).count(),
            });
        }
    }
    Ok(())
}
