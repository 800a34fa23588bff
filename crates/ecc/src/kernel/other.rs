//! Processors without carry-less multiplication: no kernel of that kind is available.

use super::fold::FoldTable;
use super::{Kernel, Parity};
use crate::field::Field;
use crate::roots::Roots;
use crate::syndrome::SyndromeTable;

pub(super) fn is_available(_: Kernel) -> bool {
    false
}

/// Has no value.
#[derive(Debug)]
pub(crate) enum FoldEncoder {}

impl FoldEncoder {
    pub(super) fn new(_: Kernel, _: FoldTable) -> Option<Self> {
        None
    }

    pub(super) fn parity(&self, _: &[u8]) -> Parity {
        match *self {}
    }
}

/// Has no value.
#[derive(Debug)]
pub(crate) enum ProductDecoder {}

impl ProductDecoder {
    pub(super) fn new(_: Kernel, _: &'static Field) -> Option<Self> {
        None
    }

    pub(super) fn roots(&self, _: &SyndromeTable, _: &Parity, _: &mut Roots) -> bool {
        match *self {}
    }
}
