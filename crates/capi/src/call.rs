//! The border between C and Rust: panics, errors, arguments.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use deepram_pool::PoolError;

use crate::status::Status;

thread_local! {
    /// The message of the calling thread's last failed call.
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// The failure of a call: its code and message.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The failure of a null pointer.
    fn null(argument: &str) -> Self {
        Self::new(Status::InvalidArgument, format!("{argument} is a null pointer; pass an address"))
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        Self { status: Status::of(&error), message: error.to_string() }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn remember(message: String) {
    let text = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that ends may have lost its message already, and then nobody can ask for it.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// Runs the body of a function. An error or a panic becomes a status, and its message the thread's last error.
///
/// Unwind safety: a pool is made for panics of its callers. Its locks recover from poisoning, and what a panicking thread
/// may have left wrong stops the pool.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let why =
                format!("deepram panicked ({}); please report it, and close the pool", message_of(&*panic));
            Failure::new(Status::Panic, why)
        }
    };
    remember(failure.message);
    failure.status
}

/// Returns the message of the calling thread's last failed call; an empty text before the first failure. The text is valid
/// until the thread's next failed call, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn deepram_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the version of deepram. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn deepram_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("the version has one zero, at its end"),
        };
    VERSION.as_ptr()
}

/// The object that a pointer argument points to.
///
/// # Safety
/// The pointer is null, or points to a `T` that is valid for reads while the result lives.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, argument: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller passes on that the pointer is null or valid.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(argument))
}

/// Writes a result to an out-parameter.
///
/// # Safety
/// The pointer is null, or valid for a write of a `T`.
pub(crate) unsafe fn write<T>(pointer: *mut T, argument: &str, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: the pointer is not null, so the caller passes on that it is valid for the write.
    unsafe { pointer.write(value) };
    Ok(())
}

/// The `len` elements that an argument points to; it may be null if there are none.
///
/// # Safety
/// The pointer is null, or points to `len` elements that are valid for reads and not written while the result lives.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, len: usize, argument: &str) -> Result<&'a [T], Failure> {
    match len {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(Failure::null(argument)),
        _ if len > isize::MAX as usize / size_of::<T>().max(1) => Err(Failure::new(
            Status::InvalidArgument,
            format!("{argument}: {len} elements exceed the address space"),
        )),
        // SAFETY: not null and not too long, so the caller passes on that the elements are valid.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// The `len` elements that an argument points to, for writing; it may be null if there are none.
///
/// # Safety
/// The pointer is null, or points to `len` elements that are valid for writes and that nobody else uses while the result
/// lives. Memory of a C program always has some bytes, so elements without a value of their own need no other rule.
pub(crate) unsafe fn slice_mut<'a, T>(
    pointer: *mut T,
    len: usize,
    argument: &str,
) -> Result<&'a mut [T], Failure> {
    match len {
        0 => Ok(&mut []),
        _ if pointer.is_null() => Err(Failure::null(argument)),
        _ if len > isize::MAX as usize / size_of::<T>().max(1) => Err(Failure::new(
            Status::InvalidArgument,
            format!("{argument}: {len} elements exceed the address space"),
        )),
        // SAFETY: not null and not too long, so the caller passes on that the elements are valid and exclusive.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) }),
    }
}

/// The text of a string argument.
///
/// # Safety
/// The pointer is null, or points to a string that ends with a zero and is not written while the result lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: not null, so the caller passes on that it is a string with its zero.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::new(Status::InvalidArgument, format!("{argument} is not UTF-8")))
}

/// Writes as many results as the caller has room for, and their number.
///
/// # Safety
/// `to` is null, or valid for writes of `capacity` elements; `count` is null, or valid for a write.
pub(crate) unsafe fn results<T>(
    values: impl ExactSizeIterator<Item = T>,
    to: *mut T,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    let total = values.len();
    // SAFETY: passed on from the caller.
    unsafe { write(count, "count", total)? };
    if total > 0 && capacity > 0 && to.is_null() {
        return Err(Failure::null("the buffer"));
    }
    for (at, value) in values.take(capacity).enumerate() {
        // SAFETY: `at` is below `capacity`, and the caller passes on that so many elements can be written.
        unsafe { to.add(at).write(value) };
    }
    if total > capacity {
        let why = format!("{total} results do not fit into a buffer for {capacity}; pass a larger one");
        return Err(Failure::new(Status::BufferTooSmall, why));
    }
    Ok(())
}
