//! The bytes of a device, sparse and copy-on-write, because a crash test makes thousands of images.

use std::fmt;
use std::sync::Arc;

/// Unit in bytes in which an [`Image`] is sparse and shared.
pub const PAGE: usize = 4096;

/// Pages under one pointer of the top table. A clone copies one pointer for each chunk (64 for 64 MiB); the first
/// write to a chunk after that copies this many pointers and one page.
const CHUNK_PAGES: usize = 256;

type Page = [u8; PAGE];

#[derive(Clone)]
struct Chunk {
    pages: [Option<Arc<Page>>; CHUNK_PAGES],
}

/// The bytes of a device. Cloning an image is cheap, and so is changing a few pages of a clone.
///
/// Pages that were never written are holes: they read as zeros and take no memory.
#[derive(Clone)]
pub struct Image {
    len: u64,
    chunks: Vec<Option<Arc<Chunk>>>,
    allocated: u64,
}

impl Image {
    /// Makes an image of `len` bytes, all of them holes.
    ///
    /// # Panics
    /// If `len` is not a multiple of [`PAGE`].
    pub fn new(len: u64) -> Self {
        assert!(len.is_multiple_of(PAGE as u64), "an image's length is a multiple of {PAGE}, not {len}");
        let chunks = len.div_ceil((PAGE * CHUNK_PAGES) as u64);
        Self {
            len,
            chunks: vec![None; usize::try_from(chunks).expect("an image that fits in memory")],
            allocated: 0,
        }
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the image has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory of all written [`PAGE`]s, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated * PAGE as u64
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        self.assert_inside(offset, buf.len());
        for (page, within, range) in pieces(offset, buf.len()) {
            let out = &mut buf[range];
            match self.page(page) {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + out.len()]),
                None => out.fill(0),
            }
        }
    }

    /// Writes `bytes` at `offset`, with any alignment.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.assert_inside(offset, bytes.len());
        for (page, within, range) in pieces(offset, bytes.len()) {
            let from = &bytes[range];
            self.page_mut(page)[within..within + from.len()].copy_from_slice(from);
        }
    }

    /// Flips bit `bit` (0 is the least significant) of the byte at `offset`.
    ///
    /// # Panics
    /// Beyond the end, or if `bit` is 8 or more.
    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        assert!(bit < 8, "a byte has bits 0 to 7, not {bit}");
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ (1 << bit)]);
    }

    /// Returns all bytes, holes as zeros: the contents of a file made from this image.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("an image that fits in memory")];
        self.read(0, &mut bytes);
        bytes
    }

    /// Returns the offset of the first byte in which the two images differ; holes equal zeros. If one image is a
    /// prefix of the other, returns the length of the shorter one.
    pub fn first_difference(&self, other: &Self) -> Option<u64> {
        let common = self.len.min(other.len);
        let zeros = [0; PAGE];
        let mut page = 0;
        while ((page * PAGE) as u64) < common {
            let chunk = page / CHUNK_PAGES;
            if page.is_multiple_of(CHUNK_PAGES) && same(&self.chunks[chunk], &other.chunks[chunk]) {
                page += CHUNK_PAGES;
                continue;
            }
            let (a, b) = (self.page(page), other.page(page));
            if !same(a, b) {
                let a = a.as_deref().unwrap_or(&zeros);
                let b = b.as_deref().unwrap_or(&zeros);
                if let Some(at) = (0..PAGE).find(|&i| a[i] != b[i]) {
                    return Some((page * PAGE + at) as u64);
                }
            }
            page += 1;
        }
        (self.len != other.len).then_some(common)
    }

    /// Returns the number of leading bytes of a write that fit if the write may allocate at most `spare` new
    /// [`PAGE`]s.
    pub(crate) fn fitting(&self, offset: u64, len: usize, spare: u64) -> usize {
        let mut spare = spare;
        let mut fits = 0;
        for (page, _, range) in pieces(offset, len) {
            if self.page(page).is_none() {
                if spare == 0 {
                    return fits;
                }
                spare -= 1;
            }
            fits = range.end;
        }
        fits
    }

    pub(crate) fn contains(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len)
    }

    fn assert_inside(&self, offset: u64, len: usize) {
        assert!(
            self.contains(offset, len),
            "{len} bytes at {offset} are beyond the end of an image of {} bytes",
            self.len
        );
    }

    fn page(&self, page: usize) -> &Option<Arc<Page>> {
        match &self.chunks[page / CHUNK_PAGES] {
            Some(chunk) => &chunk.pages[page % CHUNK_PAGES],
            None => &None,
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        let chunk = self.chunks[page / CHUNK_PAGES]
            .get_or_insert_with(|| Arc::new(Chunk { pages: [const { None }; CHUNK_PAGES] }));
        let slot = &mut Arc::make_mut(chunk).pages[page % CHUNK_PAGES];
        if slot.is_none() {
            self.allocated += 1;
        }
        Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; PAGE])))
    }
}

fn same<T>(a: &Option<Arc<T>>, b: &Option<Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// Splits a range at page boundaries: page, offset in the page, range in the caller's buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let start = usize::try_from(offset).expect("an offset inside an image");
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = start + done;
        let within = at % PAGE;
        let take = (PAGE - within).min(len - done);
        let range = done..done + take;
        done += take;
        Some((at / PAGE, within, range))
    })
}

/// Makes an image from the bytes of a file, padded with zeros to a multiple of [`PAGE`]; pages of zeros become holes.
impl From<&[u8]> for Image {
    fn from(bytes: &[u8]) -> Self {
        let mut image = Self::new(bytes.len().next_multiple_of(PAGE) as u64);
        for (index, page) in bytes.chunks(PAGE).enumerate() {
            if page.iter().any(|&byte| byte != 0) {
                image.write((index * PAGE) as u64, page);
            }
        }
        image
    }
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&*bytes)
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.first_difference(other).is_none()
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("len", &self.len)
            .field("allocated_bytes", &self.allocated_bytes())
            .finish_non_exhaustive()
    }
}
