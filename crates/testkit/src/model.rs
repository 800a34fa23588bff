//! What a pool must hold, said as simply as it can be.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Persistent by `Arc`: a snapshot copies pointers, a write after it copies one page.
type Contents = BTreeMap<u64, Arc<[u8; PAGE]>>;

/// The reference model of a pool: bytes by address, the epochs that were synced, and what a power
/// cut leaves.
///
/// Addresses are the pool's, without meaning here. Bytes that were allocated and never written
/// are zero. Drive it alongside a pool with the same calls, then compare:
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
/// When the power cut hits a sync, that sync may have reached the device or not. Take a clone of
/// the model, sync that one, and after reopening go on with whichever's [`Self::last_token`] the
/// pool reports.
#[derive(Clone, Debug, Default)]
pub struct Model {
    now: Contents,
    /// What a power cut leaves: the last sync's or rollback's bytes, and those persisted since.
    durable: Contents,
    epochs: BTreeMap<u64, Contents>,
}

impl Model {
    /// An empty pool without tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates what isn't yet of the pages of 4 KiB in which the range lies, as zeros.
    pub fn alloc(&mut self, addr: u64, len: u64) {
        for page in pages(addr, len) {
            self.now.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
        }
    }

    /// Writes `bytes` at `addr`, any alignment; allocates what isn't yet.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        put(&mut self.now, addr, bytes);
    }

    /// Fills `buf` with the bytes at `addr`; zeros where nothing is allocated.
    pub fn read(&self, addr: u64, buf: &mut [u8]) {
        get(&self.now, addr, buf);
    }

    /// Frees the range, durably only with the next sync.
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

    /// Makes the range survive a power cut as it is now. What isn't allocated is left out.
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

    /// Makes everything durable as `token`.
    ///
    /// # Panics
    /// If `token` is not later than every other one.
    pub fn sync(&mut self, token: u64) {
        if let Some(last) = self.last_token() {
            assert!(token > last, "token {token} is not later than {last}");
        }
        self.epochs.insert(token, self.now.clone());
        self.durable = self.now.clone();
    }

    /// Returns to `token`, durably. Later tokens are gone.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn rollback(&mut self, token: u64) {
        self.now = self.epoch(token).clone();
        self.durable = self.now.clone();
        self.epochs.split_off(&(token + 1));
    }

    /// Gives up `token`: what it kept may be reclaimed.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn release(&mut self, token: u64) {
        assert!(self.epochs.remove(&token).is_some(), "no token {token}");
    }

    /// Cuts the power and opens again: what is neither synced nor persisted is gone.
    pub fn crash(&mut self) {
        self.now = self.durable.clone();
    }

    /// The tokens there are, oldest first.
    pub fn tokens(&self) -> impl Iterator<Item = u64> {
        self.epochs.keys().copied()
    }

    /// The latest token.
    pub fn last_token(&self) -> Option<u64> {
        self.epochs.last_key_value().map(|(&token, _)| token)
    }

    /// Address and bytes of every allocated page as `token` kept it, in order of address.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn expect(&self, token: u64) -> impl Iterator<Item = (u64, &[u8; PAGE])> {
        self.epoch(token).iter().map(|(&addr, page)| (addr, &**page))
    }

    /// Address and bytes of every page allocated now, in order of address.
    pub fn expect_now(&self) -> impl Iterator<Item = (u64, &[u8; PAGE])> {
        self.now.iter().map(|(&addr, page)| (addr, &**page))
    }

    /// Compares what `read` gives with what the pool must hold now.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, read: impl FnMut(u64, &mut [u8])) -> Result<(), Mismatch> {
        compare(self.expect_now(), read)
    }

    /// Compares what `read` gives with what `token` kept.
    ///
    /// # Errors
    /// The first byte that differs.
    ///
    /// # Panics
    /// If there is no such token.
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
    /// Where.
    pub addr: u64,
    /// What the model holds.
    pub expected: u8,
    /// What the pool gave.
    pub found: u8,
    /// How many bytes of the 4 KiB page around it differ.
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

/// The addresses of the pages in which the range lies.
fn pages(addr: u64, len: u64) -> impl Iterator<Item = u64> {
    let first = addr / PAGE as u64 * PAGE as u64;
    // An empty range lies in no page, even when it is in the middle of one.
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
    // Bytes that `read` leaves as they are must not pass for the page before, nor for zeros.
    let mut found = [0; PAGE];
    for (addr, page) in expected {
        for (byte, expected) in found.iter_mut().zip(page) {
            *byte = !expected;
        }
        read(addr, &mut found);
        if let Some(at) = (0..PAGE).find(|&at| found[at] != page[at]) {
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
