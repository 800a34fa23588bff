//! Reading ahead: the pool's detector of runs ([`crate::ahead`]), with pages by their addresses.

pub(super) use crate::ahead::{Runs, Window};
