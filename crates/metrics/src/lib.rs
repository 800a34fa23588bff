//! Statistics of runs and pools: one model for both, its forms (JSON, Prometheus, text), and the server that hands them out.

#![forbid(unsafe_code)]

mod histogram;
mod listen_address;
mod server;
mod statistics;
mod text;

pub use histogram::Histogram;
pub use listen_address::ListenAddress;
pub use server::{Server, Source};
pub use statistics::{Derived, Form, Kind, Metric, ParseError, Statistics};
pub use text::{duration, lines};
