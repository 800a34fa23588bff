//! The characterisation against plain computations that follow its definitions, on generated and on real traces.

mod brute_force;
mod properties;
