//! Integration tests of deepram-ecc.

mod decoding;
