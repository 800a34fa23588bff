//! Tests of the reproductions: claims, verdicts, report, resumption.

mod charts;
mod common;
mod flatflash;
mod flatflash_persistence;
mod nvmm_files;
mod nvmm_power;
mod page;
mod papers;
mod resume;
mod verdicts;
