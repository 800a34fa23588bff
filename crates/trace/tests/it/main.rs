//! Tests of trace formats and workload generators.

mod characterize;
mod docs;
mod formats;
mod metadata;
mod mutations;
mod real_traces;
mod roundtrip;
mod stand_ins;
mod workloads;
