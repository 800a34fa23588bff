//! Looks up the C library's functions that this library interposes, and generates the interposing functions.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::c_void;

/// A symbol of the C library that this library uses, or interposes: the next one in the search order of the loader.
/// Declared by [`symbol`], so that [`find_all`] finds it.
#[derive(Debug)]
pub(crate) struct Symbol {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The symbol's address; looked up once.
    pub(crate) fn find(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = self.look_up();
        }
        if found.is_null() {
            found = find_in_liburing(self.name);
            self.found.store(found, Relaxed);
        }
        (!found.is_null()).then_some(found)
    }

    fn look_up(&self) -> *mut c_void {
        // SAFETY: looks up a name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Relaxed);
        found
    }
}

/// Looks up all symbols of the libraries that are loaded. A later lookup would free the program's last error of the loader
/// (`dlerror`), also while the program is formatting it. To look for liburing here would search its file in each process.
pub(crate) fn find_all() {
    unsafe extern "C" {
        /// Ends of the section in which [`symbol`] lists the symbols; the linker provides them.
        #[link_name = "__start_deepram_symbols"]
        static FIRST: *const c_void;
        #[link_name = "__stop_deepram_symbols"]
        static END: *const c_void;
    }
    let (first, end) = (&raw const FIRST, &raw const END);
    // SAFETY: the section holds references to static symbols and nothing else.
    let all: &[&Symbol] =
        unsafe { std::slice::from_raw_parts(first.cast(), end.offset_from_unsigned(first)) };
    for symbol in all {
        symbol.look_up();
    }
    // The first call returns the error of a name that was not found, the second forgets it.
    // SAFETY: the program's code has not run yet, and the text is not used.
    unsafe {
        libc::dlerror();
        libc::dlerror();
    }
}

/// Declares a [`Symbol`] of the C library as a static.
macro_rules! symbol {
    ($place:ident = $name:expr) => {
        static $place: $crate::libc_symbols::Symbol = $crate::libc_symbols::Symbol::new($name);
        const _: () = {
            #[used]
            #[unsafe(link_section = "deepram_symbols")]
            static LISTED: &$crate::libc_symbols::Symbol = &$place;
        };
    };
}
pub(crate) use symbol;

/// Finds the function in a library that was loaded only for a plugin (`dlopen`): liburing, the only one whose functions
/// are interposed.
fn find_in_liburing(name: &CStr) -> *mut c_void {
    // SAFETY: opens a library only if it is loaded already, and looks up a name in it.
    unsafe {
        let library = libc::dlopen(c"liburing.so.2".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if library.is_null() { std::ptr::null_mut() } else { libc::dlsym(library, name.as_ptr()) }
    }
}

/// Defines functions that interpose those of the C library: the wrapper through which the next function is called, the
/// result if the C library has no such function, and an expression that is evaluated first.
macro_rules! interpose {
    ($wrapper:path; $($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr $(, first $first:expr)?;)*) => {$(
        /// Interposes the C library's function.
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name contains a zero byte"),
            };
            $crate::libc_symbols::symbol!(NEXT = NAME);
            $($first;)?
            let Some(next) = NEXT.find() else {
                $crate::malloc::set_errno(libc::ENOSYS);
                return $missing;
            };
            // SAFETY: the C library's function of this name.
            let next = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(next) };
            // SAFETY: the caller's arguments.
            $wrapper(move || unsafe { next($($argument),*) })
        }
    )*};
}
pub(crate) use interpose;
