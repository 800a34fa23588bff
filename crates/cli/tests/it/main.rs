//! Tests of the `deepram` command as a user runs it.

mod architecture;
mod bench_memory;
mod common;
mod demo;
mod digests;
mod docs;
mod hostile;
mod measure;
mod mount;
mod observe;
mod package;
mod pool;
mod public_api;
mod record;
mod reference;
mod repro;
mod run;
mod run_calls;
mod run_media;
mod sim_flatflash;
mod sweep;
