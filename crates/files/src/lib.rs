//! A file system in the memory of a deepram pool: files and directories that survive crashes as they were at the last sync, and
//! that a rollback of the pool rolls back.
//!
//! [`Files`] is the file system as a library; [`mount`](mount()) shows it to programs through FUSE.
//!
//! ```no_run
//! use deepram_files::{Attributes, Files, TOP};
//! use deepram_pool::{CreateOptions, Mapping, OpenOptions, Pool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Pool::create(&["data.pool"], &CreateOptions::new(1 << 30))?;
//! let pool = Pool::open(&["data.pool"], &OpenOptions::new(64 << 20).mapping(Mapping::Off))?;
//! let files = Files::open(pool)?;
//! let (inode, _) = files.create(TOP, b"notes", &Attributes::file(0o644))?;
//! files.write(inode, 0, b"hello")?;
//! files.sync()?; // durable from here on
//! files.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The structures are described in `src/layout.rs`, the decisions in `docs/adr/0042`.

#![forbid(unsafe_code)]

mod attributes;
mod data;
mod directory;
mod error;
mod files;
mod fuse;
mod inodes;
mod layout;
mod memory;
mod mount;
mod names;
mod tree;

pub use attributes::{Attributes, SetAttributes, Status};
pub use error::{FilesError, Result};
pub use files::{Files, Space};
pub use inodes::TOP;
pub use mount::{MountError, MountOptions, Mounted, mount, mounted_pool, unmount};
pub use names::{DirectoryEntry, Replace};
