//! Tests of the file system on a pool, without FUSE. Those of mounted file systems are with the `deepram` command.

mod common;
mod crashes;
mod model;
mod operations;
mod random;
