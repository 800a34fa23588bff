//! Options for creating and opening pools.

use std::ffi::{CStr, c_char};

use deepram_pool::{Retention, SegmentSize};

use crate::call::{Failure, reference, write};
use crate::status::Status;

/// Whether memory outlives the process that allocated it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Freed when the pool is closed, or at the next opening after a crash.
    Temporary = 0,
    /// Kept until a program frees it.
    Permanent = 1,
}

/// Whether and how a pool is mapped.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Mapped, and system calls may access its memory. Needs the right to use userfaultfd.
    Full = 0,
    /// Mapped for user code only, which needs no privilege. System calls on memory that is not resident fail with EFAULT.
    UserOnly = 1,
    /// Not mapped: calls such as deepram_load() are the only access.
    Off = 2,
}

/// Options of a new pool. Fill it with deepram_create_options_init(), then change what should differ.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CreateOptions {
    /// Size of this structure, bytes; set by deepram_create_options_init().
    pub struct_size: usize,
    /// Virtual memory of each device, bytes.
    pub size: u64,
    /// Flash that each device provides, bytes; 0: 2.4 times the memory, and more for small pools.
    pub flash: u64,
    /// Memory of each device that will become persist regions, bytes.
    pub pmem: u64,
    /// Size of a segment, bytes: 4096, 8192 or 16384.
    pub segment: u32,
    /// Number of tokens that the pool keeps.
    pub keep: u32,
    /// Address at which the pool is mapped; 0: the pool chooses one, which stays the same.
    pub base: u64,
    /// Whether a block device that holds something may be overwritten: 0 or 1.
    pub overwrite: i32,
}

/// Options of opening a pool. Fill it with deepram_open_options_init(), then change what should differ.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// Size of this structure, bytes; set by deepram_open_options_init().
    pub struct_size: usize,
    /// DRAM budget, bytes: frames, tables and buffers together.
    pub dram: u64,
    /// Whether and how the pool is mapped: a deepram_mapping.
    pub mapping: i32,
    /// Address at which the pool is mapped instead of its own; 0: its own.
    pub base: u64,
    /// Token at which the pool opens, discarding what the log holds after it; 0: the last one.
    pub at_token: u64,
    /// Address at which the pool serves its statistics over HTTP while it is open, "unix:PATH" or "HOST:PORT" with a
    /// loopback address; null: it does not.
    pub listen: *const c_char,
}

/// Fills options with the defaults for a pool of `size` bytes of memory on each device.
///
/// # Safety
/// `options` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_create_options_init(options: *mut CreateOptions, size: u64) -> Status {
    crate::call::guarded(|| {
        let defaults = CreateOptions {
            struct_size: size_of::<CreateOptions>(),
            size,
            flash: 0,
            pmem: 0,
            segment: 4096,
            keep: 8,
            base: 0,
            overwrite: 0,
        };
        // SAFETY: passed on from the caller.
        unsafe { write(options, "options", defaults) }
    })
}

/// Fills options with the defaults for a DRAM budget of `dram` bytes.
///
/// # Safety
/// `options` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deepram_open_options_init(options: *mut OpenOptions, dram: u64) -> Status {
    crate::call::guarded(|| {
        let defaults = OpenOptions {
            struct_size: size_of::<OpenOptions>(),
            dram,
            mapping: Mapping::Full as i32,
            base: 0,
            at_token: 0,
            listen: std::ptr::null(),
        };
        // SAFETY: passed on from the caller.
        unsafe { write(options, "options", defaults) }
    })
}

fn check_size(found: usize, expected: usize, init: &str) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let why = format!("the options have {found} bytes instead of {expected}; fill them with {init}()");
    Err(Failure::new(Status::InvalidArgument, why))
}

/// The pool's options.
///
/// # Safety
/// `options` is null or points to options that are valid for reads.
pub(crate) unsafe fn create(options: *const CreateOptions) -> Result<deepram_pool::CreateOptions, Failure> {
    // SAFETY: passed on from the caller.
    let given = unsafe { reference(options, "options")? };
    check_size(given.struct_size, size_of::<CreateOptions>(), "deepram_create_options_init")?;
    let segment = match given.segment {
        4096 => SegmentSize::K4,
        8192 => SegmentSize::K8,
        16384 => SegmentSize::K16,
        other => {
            let why = format!("segment: {other} is none of 4096, 8192 and 16384 bytes");
            return Err(Failure::new(Status::InvalidArgument, why));
        }
    };
    Ok(deepram_pool::CreateOptions {
        flash: Some(given.flash).filter(|flash| *flash > 0),
        pmem: given.pmem,
        segment,
        retention: Retention::KeepLast(given.keep),
        base: Some(given.base).filter(|base| *base > 0),
        overwrite: given.overwrite != 0,
        ..deepram_pool::CreateOptions::new(given.size)
    })
}

/// The pool's options.
///
/// # Safety
/// `options` is null or points to options that are valid for reads, whose `listen` is null or a string.
pub(crate) unsafe fn open(options: *const OpenOptions) -> Result<deepram_pool::OpenOptions, Failure> {
    // SAFETY: passed on from the caller.
    let given = unsafe { reference(options, "options")? };
    check_size(given.struct_size, size_of::<OpenOptions>(), "deepram_open_options_init")?;
    let mapping = [
        (Mapping::Full, deepram_pool::Mapping::Full),
        (Mapping::UserOnly, deepram_pool::Mapping::UserOnly),
        (Mapping::Off, deepram_pool::Mapping::Off),
    ];
    let mapping = mapping.iter().find(|(number, _)| *number as i32 == given.mapping).ok_or_else(|| {
        let why = format!("mapping: {} is no deepram_mapping", given.mapping);
        Failure::new(Status::InvalidArgument, why)
    })?;
    let mut options = deepram_pool::OpenOptions::new(given.dram).mapping(mapping.1);
    options.base = Some(given.base).filter(|base| *base > 0);
    options.at_token = Some(given.at_token).filter(|token| *token > 0).map(deepram_pool::Epoch);
    if !given.listen.is_null() {
        // SAFETY: not null, so the caller passes on that it is a string with its zero.
        let address = unsafe { CStr::from_ptr(given.listen) }.to_string_lossy();
        let address = address.parse();
        let wrong = |why: String| Failure::new(Status::InvalidArgument, format!("listen: {why}"));
        options.listen = Some(address.map_err(wrong)?);
    }
    Ok(options)
}

/// The lifetime of a number.
pub(crate) fn lifetime(number: i32) -> Result<deepram_pool::Lifetime, Failure> {
    let lifetimes = [
        (Lifetime::Temporary, deepram_pool::Lifetime::Temporary),
        (Lifetime::Permanent, deepram_pool::Lifetime::Permanent),
    ];
    let found = lifetimes.iter().find(|(lifetime, _)| *lifetime as i32 == number);
    found.map(|(_, lifetime)| *lifetime).ok_or_else(|| {
        let why = format!("lifetime: {number} is no deepram_lifetime");
        Failure::new(Status::InvalidArgument, why)
    })
}
