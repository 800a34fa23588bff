//! Peers of memory controllers: the bare flush instructions, and PMDK's libpmem, which is loaded if it is installed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_linux::flush::Flusher;

use super::mapped::Mapped;

/// Memory that a program stores to and makes durable.
pub trait InPlace {
    /// The words of the memory.
    fn words(&self) -> &[AtomicU64];
    /// Makes `len` bytes from `offset` on, within the memory, durable.
    fn persist(&self, offset: usize, len: usize) -> io::Result<()>;
}

/// A mapped file and the flush instructions, without a check of the range.
pub struct Bare {
    memory: Mapped,
    flusher: Flusher,
}

impl Bare {
    /// Maps `len` bytes of a file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(file: &File, len: usize, flusher: Flusher) -> io::Result<Self> {
        Ok(Self { memory: Mapped::shared(file, len)?, flusher })
    }
}

impl InPlace for Bare {
    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    #[inline]
    fn persist(&self, offset: usize, len: usize) -> io::Result<()> {
        let start = self.memory.words().as_ptr().cast::<u8>().wrapping_add(offset);
        // SAFETY: the bench names ranges within the memory, which is mapped and writable, and stores to it in this thread only.
        unsafe { self.flusher.persist(start, len) };
        Ok(())
    }
}

type MapFile = unsafe extern "C" fn(*const c_char, usize, c_int, u32, *mut usize, *mut c_int) -> *mut c_void;
type Persist = unsafe extern "C" fn(*const c_void, usize);
type Unmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type ErrorMessage = unsafe extern "C" fn() -> *const c_char;

/// `PMEM_FILE_CREATE`.
const CREATE: c_int = 1;

/// A file that libpmem has mapped. The library stays loaded.
pub struct Libpmem {
    start: *mut c_void,
    len: usize,
    persist: Persist,
    unmap: Unmap,
}

impl Libpmem {
    /// Loads the library and maps `len` bytes of a new file with it.
    ///
    /// # Errors
    /// The library is not installed, or its message.
    pub fn map(path: &Path, len: usize) -> io::Result<Self> {
        let missing = || {
            io::Error::new(
                io::ErrorKind::NotFound,
                "libpmem.so.1 is not installed (Debian: apt-get install libpmem1)",
            )
        };
        // SAFETY: loads a library of the system, whose initialization has no conditions.
        let library = unsafe { libc::dlopen(c"libpmem.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(missing());
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is loaded and stays loaded.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() { Err(missing()) } else { Ok(symbol) }
        };
        // SAFETY: the functions have these types in libpmem(7), in all versions of libpmem.so.1.
        let (map_file, persist, unmap, message) = unsafe {
            (
                std::mem::transmute::<*mut c_void, MapFile>(symbol(c"pmem_map_file")?),
                std::mem::transmute::<*mut c_void, Persist>(symbol(c"pmem_persist")?),
                std::mem::transmute::<*mut c_void, Unmap>(symbol(c"pmem_unmap")?),
                std::mem::transmute::<*mut c_void, ErrorMessage>(symbol(c"pmem_errormsg")?),
            )
        };
        let name = CString::new(path.as_os_str().as_bytes())?;
        let mut mapped = 0;
        // SAFETY: the name ends with a zero byte, and both pointers may be null or point to room for the answer.
        let start = unsafe { map_file(name.as_ptr(), len, CREATE, 0o600, &raw mut mapped, ptr::null_mut()) };
        if start.is_null() {
            // SAFETY: the library returns its last message as a string that ends with a zero byte.
            let text = unsafe { CStr::from_ptr(message()) };
            return Err(io::Error::other(text.to_string_lossy().into_owned()));
        }
        Ok(Self { start, len: mapped, persist, unmap })
    }
}

impl InPlace for Libpmem {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the library has mapped so many bytes, aligned to a page, until `self` is dropped; every bit pattern is a word.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len / size_of::<AtomicU64>()) }
    }

    #[inline]
    fn persist(&self, offset: usize, len: usize) -> io::Result<()> {
        // SAFETY: the bench names ranges within the mapped memory.
        unsafe { (self.persist)(self.start.wrapping_byte_add(offset), len) };
        Ok(())
    }
}

impl Drop for Libpmem {
    fn drop(&mut self) {
        // SAFETY: the library mapped these bytes, which are not used any more.
        unsafe { (self.unmap)(self.start, self.len) };
    }
}

/// Stores to each line of a range.
pub fn dirty(memory: &dyn InPlace, offset: usize, len: usize, value: u64) {
    let words = &memory.words()[offset / 8..(offset + len) / 8];
    words.iter().step_by(8).for_each(|word| word.store(value, Relaxed));
}
