//! The header, and C and C++ programs that use the library.

mod header;
mod programs;
