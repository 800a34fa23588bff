//! Steps of a workload, applied to a pool and to its world.

use deepram_pool::{Addr, Lifetime, Permissions, Pool, PoolError};
use deepram_testkit::FaultyDevice;
use rand::{Rng, RngExt};

use super::rig::Shape;
use super::world::{World, Worlds};
use super::{LINE, PAGE};

/// Numbers that select a page, root or token are taken modulo the number of candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Alloc {
        controller: u32,
        pages: u64,
        lifetime: Lifetime,
    },
    Free(usize),
    Write {
        page: usize,
        at: u64,
        len: usize,
        value: u8,
    },
    Perms {
        page: usize,
        permissions: Permissions,
    },
    /// Makes a page a persist region, which includes a sync.
    Region(usize),
    NoRegion(usize),
    Persist {
        page: usize,
        at: u64,
        len: u64,
    },
    SetRoot {
        name: u8,
        page: usize,
    },
    RemoveRoot(u8),
    Sync,
    /// Rolls back to the token this many before the last.
    Rollback(usize),
    DropToken(usize),
    Compact,
    /// Closes the pool and opens it again.
    Close,
    /// Ends without closing and opens the pool again.
    Abandon,
}

/// A pool, its devices, and its expected contents.
pub struct Runner {
    pub shape: Shape,
    pub devices: Vec<FaultyDevice>,
    pub pool: Option<Pool>,
    pub world: World,
    /// The other world that a power cut during this step may leave.
    attempt: Option<World>,
    /// The write that failed in this step.
    half: Option<(u64, Vec<u8>)>,
}

/// The error that stopped a step.
#[derive(Debug)]
pub struct Stopped(pub PoolError);

impl From<PoolError> for Stopped {
    fn from(error: PoolError) -> Self {
        Self(error)
    }
}

impl Runner {
    /// Continues with an open pool.
    pub fn with(shape: Shape, devices: Vec<FaultyDevice>, pool: Pool, world: World) -> Self {
        Self { shape, devices, pool: Some(pool), world, attempt: None, half: None }
    }

    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open between steps")
    }

    fn page(&self, pick: usize) -> Option<u64> {
        let pages = &self.world.now.pages;
        pages.keys().nth(pick % pages.len().max(1)).copied()
    }

    /// Runs one step. An error is treated as a power cut: see [`Runner::cut`].
    pub fn step(&mut self, step: &Step) -> Result<(), Stopped> {
        (self.attempt, self.half) = (None, None);
        match *step {
            Step::Alloc { controller, pages, lifetime } => {
                let controller = controller % self.shape.controllers as u32;
                match self.pool().alloc_on(controller, pages * PAGE, lifetime) {
                    Ok(addr) => self.world.alloc(addr.raw(), pages, lifetime),
                    Err(PoolError::NoAddressSpace { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Step::Free(pick) => {
                let Some(page) = self.page(pick) else { return Ok(()) };
                self.pool().free(Addr::from_raw(page), PAGE)?;
                self.world.free(page);
            }
            Step::Write { page, at, len, value } => {
                let Some(page) = self.page(page) else { return Ok(()) };
                if !self.world.now.pages[&page].read {
                    // On an unreadable page the extent of a failed write cannot be determined.
                    return Ok(());
                }
                let len = len.min((PAGE - at) as usize);
                let bytes: Vec<u8> = (0..len).map(|n| value.wrapping_add((n / 512) as u8)).collect();
                match self.pool().write(Addr::from_raw(page + at), &bytes) {
                    Ok(()) => self.world.model.write(page + at, &bytes),
                    Err(PoolError::Permission { .. }) if !self.world.now.pages[&page].write => {}
                    Err(error) => {
                        self.half = Some((page + at, bytes));
                        return Err(error.into());
                    }
                }
            }
            Step::Perms { page, permissions } => {
                let Some(page) = self.page(page) else { return Ok(()) };
                let done = self.pool().setperms(Addr::from_raw(page), PAGE, permissions);
                if self.world.now.regions.contains(&page) && permissions.lifetime == Lifetime::Temporary {
                    assert!(matches!(done, Err(PoolError::PersistRegion { .. })), "{done:?}");
                    return Ok(());
                }
                done?;
                self.world.now.pages.insert(page, permissions);
            }
            Step::Region(page) => {
                let Some(page) = self.page(page) else { return Ok(()) };
                let done = self.pool().create_pmem_region(Addr::from_raw(page), PAGE);
                if self.world.now.pages[&page].lifetime == Lifetime::Temporary {
                    assert!(matches!(done, Err(PoolError::PersistRegion { .. })), "{done:?}");
                    return Ok(());
                }
                let mut after = self.world.clone();
                after.now.regions.insert(page);
                after.sync(after.open);
                if done.is_err() {
                    self.attempt = Some(after);
                    return Ok(done?);
                }
                self.world = after;
            }
            Step::NoRegion(page) => {
                let Some(page) = self.page(page) else { return Ok(()) };
                self.pool().remove_pmem_region(Addr::from_raw(page), PAGE)?;
                self.world.now.regions.remove(&page);
            }
            Step::Persist { page, at, len } => {
                let Some(page) = self.page(page) else { return Ok(()) };
                let (at, len) = (page + at, len.min(PAGE - at));
                let done = self.pool().persist(Addr::from_raw(at), len);
                if !self.world.now.regions.contains(&page) {
                    assert!(matches!(done, Err(PoolError::PersistRegion { .. })), "{done:?}");
                    return Ok(());
                }
                if !self.world.now.pages[&page].read {
                    assert!(matches!(done, Err(PoolError::Permission { .. })), "{done:?}");
                    return Ok(());
                }
                let mut after = self.world.clone();
                let first = at / LINE * LINE;
                after.model.persist(first, (at + len).next_multiple_of(LINE) - first);
                if done.is_err() {
                    self.attempt = Some(after);
                    return Ok(done?);
                }
                self.world = after;
            }
            Step::SetRoot { name, page } => {
                let Some(page) = self.page(page) else { return Ok(()) };
                let name = format!("root {name}");
                self.pool().set_root(&name, Addr::from_raw(page), 100)?;
                self.world.now.roots.insert(name, (page, 100));
            }
            Step::RemoveRoot(name) => {
                let name = format!("root {name}");
                match self.pool().remove_root(&name) {
                    Ok(()) => assert!(self.world.now.roots.remove(&name).is_some()),
                    Err(PoolError::Root { .. }) => assert!(!self.world.now.roots.contains_key(&name)),
                    Err(error) => return Err(error.into()),
                }
            }
            Step::Sync => {
                let token = self.pool().sync().inspect_err(|_| {
                    let mut attempt = self.world.clone();
                    attempt.sync(attempt.open);
                    self.attempt = Some(attempt);
                })?;
                self.world.sync(token.0);
            }
            Step::Rollback(back) => {
                let history = self.pool().history().unwrap();
                let token = history[history.len() - 1 - back % history.len()].token;
                if self.world.is_forgotten(token.0) {
                    return Ok(());
                }
                match self.pool().rollback(token) {
                    Ok(()) => self.world.rollback(token.0),
                    // The write-back thread may have given the token up since.
                    Err(PoolError::Token { .. }) => {}
                    Err(error) => {
                        let mut attempt = self.world.clone();
                        attempt.rollback(token.0);
                        self.attempt = Some(attempt);
                        return Err(error.into());
                    }
                }
            }
            Step::DropToken(pick) => {
                let history = self.pool().history().unwrap();
                let token = history[pick % history.len()].token;
                if token.0 != self.world.last_token() {
                    // Released first, as a crash may leave the drop half done.
                    self.world.release(token.0);
                    match self.pool().drop_token(token) {
                        Ok(()) | Err(PoolError::Token { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Step::Compact => {
                self.pool().compact(&mut |_, _| {})?;
            }
            Step::Close => {
                let mut attempt = self.world.clone();
                attempt.drop_temporaries();
                attempt.sync(attempt.open);
                if let Err(error) = self.pool.take().expect("open between steps").close() {
                    self.attempt = Some(attempt);
                    return Err(error.into());
                }
                self.world = attempt;
                self.pool = Some(self.shape.open(&self.devices)?);
            }
            Step::Abandon => {
                self.pool.take().expect("open between steps").abandon()?;
                // Before the opening, which the power cut may interrupt.
                self.world.crash();
                self.pool = Some(self.shape.open(&self.devices)?);
            }
        }
        self.attempt = None;
        Ok(())
    }

    /// Call this when a step failed and the pool can be read (again). A failed write may have written the
    /// segments before the one at fault, but no other bytes.
    pub fn settle(&mut self) {
        let Some((addr, bytes)) = self.half.take() else { return };
        let mut found = vec![0; bytes.len()];
        let mut old = found.clone();
        self.pool().read(Addr::from_raw(addr), &mut found).expect("reading after a failed write");
        self.world.model.read(addr, &mut old);
        let segment = self.shape.segment.bytes();
        let first = (segment - addr % segment) as usize;
        let ends = (0..).map(|n| n * segment as usize + first).take_while(|&end| end < bytes.len());
        let done = std::iter::once(0)
            .chain(ends)
            .chain([bytes.len()])
            .find(|&end| found[..end] == bytes[..end] && found[end..] == old[end..])
            .unwrap_or_else(|| panic!("a failed write at {addr:#x} left neither old nor new segments"));
        self.world.model.write(addr, &bytes[..done]);
    }

    /// Cuts the power of every device. Returns the devices and the worlds that the pool may be in afterwards.
    pub fn cut(mut self) -> (Vec<FaultyDevice>, Worlds) {
        self.devices.iter().for_each(FaultyDevice::cut_power);
        // Joins the write-back thread; its operations in flight fail.
        drop(self.pool.take());
        let mut worlds = vec![self.world];
        worlds.extend(self.attempt);
        (self.devices, Worlds(worlds))
    }
}

/// A random step; most steps write.
pub fn random(rng: &mut impl Rng) -> Step {
    let lifetime = if rng.random_ratio(1, 4) { Lifetime::Temporary } else { Lifetime::Permanent };
    let page = rng.random_range(0..64);
    match rng.random_range(0..48) {
        0..4 => Step::Alloc { controller: rng.random(), pages: rng.random_range(1..3), lifetime },
        4..6 => Step::Free(page),
        6..8 => {
            let read = rng.random_ratio(3, 4);
            let permissions = Permissions { read, write: rng.random_ratio(3, 4), lifetime };
            Step::Perms { page, permissions }
        }
        8..10 => Step::SetRoot { name: rng.random_range(0..4), page },
        10 => Step::RemoveRoot(rng.random_range(0..4)),
        11..18 => Step::Sync,
        18 => Step::Rollback(rng.random_range(0..3)),
        19 => Step::DropToken(rng.random_range(0..3)),
        20 if rng.random_ratio(1, 2) => Step::Compact,
        21 => Step::Region(page),
        22 if rng.random_ratio(1, 4) => Step::NoRegion(page),
        23..30 => {
            let len = [1, 64, 300, 30_000][rng.random_range(0..4)];
            Step::Persist { page, at: rng.random_range(0..PAGE), len }
        }
        _ => {
            let at = rng.random_range(0..PAGE);
            let len = [8, 100, 5000, 30_000][rng.random_range(0..4)];
            Step::Write { page, at, len, value: rng.random() }
        }
    }
}
