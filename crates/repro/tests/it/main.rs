//! Tests of the reproductions: claims, verdicts, report, resumption.

mod charts;
mod common;
mod compare;
mod flatflash;
mod flatflash_persistence;
mod nvmm_files;
mod nvmm_power;
mod page;
mod papers;
mod reasons;
mod resume;
mod verdicts;
