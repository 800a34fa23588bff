//! The C interface of deepram's pools. `include/deepram.h` is generated from this crate; it is the reference.
//!
//! Every function that can fail runs inside `call::guarded`, which stops panics at the border, keeps the message of the
//! error for `deepram_last_error`, and returns a stable status code.

#![allow(unreachable_pub, reason = "programs of C reach the functions by their symbols")]

mod call;
mod durability;
mod memory;
mod options;
mod pool;
mod roots;
mod status;

/// An address in a pool: it stays the same at every opening, unlike a pointer into a pool that is mapped elsewhere.
pub type Addr = u64;

/// A token of a sync, to which a pool can be rolled back.
pub type Token = u64;
