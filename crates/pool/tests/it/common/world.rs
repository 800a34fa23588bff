//! The expected contents of a pool: bytes, allocation, permissions and roots, now and at every token.

use std::collections::{BTreeMap, BTreeSet};

use deepram_pool::{Addr, Epoch, Lifetime, Permissions, Pool, PoolError};
use deepram_testkit::Model;

use super::PAGE;

/// Everything but the bytes, which the model holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Allocated pages by address.
    pub pages: BTreeMap<u64, Permissions>,
    pub roots: BTreeMap<String, (u64, u64)>,
    /// Pages of persist regions.
    pub regions: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub model: Model,
    pub now: Side,
    durable: Side,
    sides: BTreeMap<u64, Side>,
    /// The open epoch.
    pub open: u64,
    /// Tokens that were given up explicitly and so may be missing.
    released: BTreeSet<u64>,
    /// Number of tokens, counted from the last, that must exist; fewer where the device runs full.
    pub kept: usize,
    /// Old tokens whose contents this world no longer records, to save memory.
    forgotten: BTreeSet<u64>,
}

/// Number of tokens remembered beyond those that must exist.
const REMEMBERED: usize = 12;

impl World {
    /// A newly created pool whose state is that of this token.
    pub fn new(first_token: u64, kept: usize) -> Self {
        let mut model = Model::new();
        model.sync(first_token);
        Self {
            model,
            now: Side::default(),
            durable: Side::default(),
            sides: BTreeMap::from([(first_token, Side::default())]),
            open: first_token + 1,
            released: BTreeSet::new(),
            kept,
            forgotten: BTreeSet::new(),
        }
    }

    pub fn is_forgotten(&self, token: u64) -> bool {
        self.forgotten.contains(&token)
    }

    pub fn alloc(&mut self, addr: u64, pages: u64, lifetime: Lifetime) {
        for page in (0..pages).map(|n| addr + n * PAGE) {
            let before = self.now.pages.insert(page, Permissions::read_write(lifetime));
            assert!(before.is_none(), "page {page:#x} was given out twice");
        }
        self.model.alloc(addr, pages * PAGE);
    }

    pub fn free(&mut self, page: u64) {
        self.now.pages.remove(&page);
        self.now.regions.remove(&page);
        self.model.free(page, PAGE);
    }

    pub fn sync(&mut self, token: u64) {
        assert_eq!(token, self.open, "a sync's token is the epoch that was open");
        self.model.sync(token);
        self.sides.insert(token, self.now.clone());
        self.durable = self.now.clone();
        self.open += 1;
        let remembered = self.kept + REMEMBERED;
        let all = self.tokens();
        for &old in all.iter().take(all.len().saturating_sub(remembered)) {
            self.model.release(old);
            self.sides.remove(&old);
            self.forgotten.insert(old);
        }
    }

    pub fn rollback(&mut self, token: u64) {
        // Retention may already have dropped the tokens that the rolled-back younger tokens had pushed out.
        let all = self.tokens();
        self.released.extend(all.iter().take(all.len().saturating_sub(self.kept)));
        self.model.rollback(token);
        self.now = self.sides[&token].clone();
        self.durable = self.now.clone();
        self.sides.split_off(&(token + 1));
        self.open += 1;
    }

    pub fn release(&mut self, token: u64) {
        self.released.insert(token);
    }

    /// Applies the effect of a power cut, or of the end of the process, and a reopening.
    pub fn crash(&mut self) {
        self.model.crash();
        self.now = self.durable.clone();
        self.drop_temporaries();
    }

    pub fn drop_temporaries(&mut self) {
        let is_temporary = |(_, p): &(&u64, &Permissions)| p.lifetime == Lifetime::Temporary;
        let gone: Vec<u64> = self.now.pages.iter().filter(is_temporary).map(|(&page, _)| page).collect();
        for page in gone {
            self.free(page);
        }
    }

    pub fn last_token(&self) -> u64 {
        self.model.last_token().expect("a pool always has a token")
    }

    /// Compares all visible state of the pool with this world; the error describes the first difference.
    pub fn verify(&self, pool: &Pool) -> Result<(), String> {
        let fail =
            |what: String| Err(format!("{what} (open epoch {}, tokens {:?})", self.open, self.tokens()));
        let tell = |what: &str, error: PoolError| format!("{what}: {error}");
        if pool.info().unwrap().open_epoch != Epoch(self.open) {
            return fail(format!("epoch {} is open", pool.info().unwrap().open_epoch));
        }
        self.verify_history(pool)?;
        self.verify_now(pool)?;
        for token in pool.history().unwrap().iter().map(|h| h.token).filter(|t| !self.is_forgotten(t.0)) {
            let mut error = None;
            let same = self.model.check_token(token.0, |addr, buf| {
                match pool.read_at(token, Addr::from_raw(addr), buf) {
                    Ok(()) => assert!(self.may_read_at(token.0, addr), "{addr:#x} at token {token} was read"),
                    // The page is unreadable: the comparison continues with the expected bytes.
                    Err(PoolError::Permission { .. }) if !self.may_read_at(token.0, addr) => {
                        let page = self.model.expect(token.0).find(|(at, _)| *at == addr);
                        buf.copy_from_slice(&page.expect("asked for by the model").1[..]);
                    }
                    Err(e) => drop(error.get_or_insert(e)),
                }
            });
            if matches!(error, Some(PoolError::Token { .. })) && !self.must_be_there(token.0) {
                // The write-back thread has given the token up since the history was read.
                assert!(pool.history().unwrap().iter().all(|h| h.token != token));
                continue;
            }
            if let Some(error) = error {
                return fail(tell(&format!("reading at token {token}"), error));
            }
            if let Err(mismatch) = same {
                return fail(format!("token {token}, {mismatch}"));
            }
        }
        Ok(())
    }

    /// Returns whether a page may be read at a token: with its current permissions, or with those at the
    /// token if the page was freed since.
    fn may_read_at(&self, token: u64, addr: u64) -> bool {
        let page = addr / PAGE * PAGE;
        let now = self.now.pages.get(&page);
        now.or_else(|| self.sides[&token].pages.get(&page)).is_none_or(|permissions| permissions.read)
    }

    /// Returns whether retention covers a token.
    fn must_be_there(&self, token: u64) -> bool {
        self.model.tokens().skip((self.tokens().len()).saturating_sub(self.kept)).any(|t| t == token)
            && !self.released.contains(&token)
    }

    fn tokens(&self) -> Vec<u64> {
        self.model.tokens().collect()
    }

    fn verify_history(&self, pool: &Pool) -> Result<(), String> {
        let history: Vec<u64> = pool.history().unwrap().iter().map(|h| h.token.0).collect();
        let known = self.tokens();
        if let Some(strange) =
            history.iter().find(|&&token| !known.contains(&token) && !self.is_forgotten(token))
        {
            return Err(format!(
                "token {strange} is in the history {history:?}, but was never given: {known:?}"
            ));
        }
        if let Some(must) = known.iter().find(|&&t| self.must_be_there(t) && !history.contains(&t)) {
            return Err(format!("token {must} is missing in the history {history:?}"));
        }
        if history.last() != known.last() {
            return Err(format!("the last token is {:?}, not {:?}", history.last(), known.last()));
        }
        Ok(())
    }

    fn verify_now(&self, pool: &Pool) -> Result<(), String> {
        let fail = |what: String| Err(format!("now: {what}"));
        let allocated = pool.info().unwrap().allocated.0;
        if allocated != self.now.pages.len() as u64 * PAGE {
            return fail(format!("{allocated} bytes are allocated, not {} pages", self.now.pages.len()));
        }
        let mut bytes = vec![0; PAGE as usize];
        let mut expected = vec![0; PAGE as usize];
        for (&page, permissions) in &self.now.pages {
            let addr = Addr::from_raw(page);
            match pool.permissions(addr) {
                Ok(found) if found == *permissions => {}
                other => return fail(format!("page {page:#x} is {other:?}, not {permissions:?}")),
            }
            let is_region = pool.is_pmem_region(addr).map_err(|e| e.to_string())?;
            if is_region != self.now.regions.contains(&page) {
                return fail(format!("page {page:#x}: wrong persist region membership: {is_region}"));
            }
            match (pool.read(addr, &mut bytes), permissions.read) {
                (Ok(()), true) => {
                    self.model.read(page, &mut expected);
                    if bytes != expected {
                        let at = bytes.iter().zip(&expected).position(|(a, b)| a != b).expect("they differ");
                        let (found, right) = (bytes[at], expected[at]);
                        return fail(format!("page {page:#x}, byte {at:#x} is {found:#x}, not {right:#x}"));
                    }
                }
                (Err(PoolError::Permission { .. }), false) => {}
                (other, _) => return fail(format!("reading page {page:#x} gives {other:?}")),
            }
        }
        let roots = pool.roots().map_err(|e| format!("roots: {e}"))?;
        let roots: BTreeMap<String, (u64, u64)> =
            roots.into_iter().map(|r| (r.name, (r.addr.raw(), r.len))).collect();
        if roots != self.now.roots {
            return fail(format!("the roots are {roots:?}, not {:?}", self.now.roots));
        }
        Ok(())
    }
}

/// The worlds that a pool may be in after a power cut: the one after its last returned sync or rollback, or
/// the one that the operation in flight would have left.
#[derive(Clone, Debug)]
pub struct Worlds(pub Vec<World>);

impl Worlds {
    pub fn one(world: World) -> Self {
        Self(vec![world])
    }

    /// Returns the world that the reopened pool is in.
    pub fn pick(&self, pool: &Pool) -> Result<World, String> {
        let open = pool.info().unwrap().open_epoch.0;
        let may: Vec<u64> = self.0.iter().map(|w| w.open).collect();
        let mut problem = format!("epoch {open} is open, not one of {may:?}");
        // Several worlds have this open epoch if a persist was in flight.
        for world in self.0.iter().filter(|w| w.open == open) {
            let mut world = world.clone();
            world.crash();
            match world.verify(pool) {
                Ok(()) => return Ok(world),
                Err(what) => problem = what,
            }
        }
        Err(problem)
    }
}
