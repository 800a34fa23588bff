//! A device in memory that fails the way flash and power supplies fail.
//!
//! Faults, and what makes each happen:
//!
//! | fault | set by | what the caller of the device sees | what is left on it |
//! |---|---|---|---|
//! | power cut | [`crash_after`], [`cut_power`] | an error from that operation and every later one | any state the media assumptions allow: [`crash_image`], [`crash`], [`every_crash`] |
//! | failed operation | [`fail_nth`], [`fail_from`] | the error asked for | a failed write wrote nothing; a failed read changed nothing |
//! | failed flush | the same, with [`Op::Flush`] | the error asked for | what was unflushed stays readable, but no later flush makes it durable, as on Linux |
//! | short write | [`short_write`] | [`io::ErrorKind::WriteZero`] | its leading sectors, as an unflushed write |
//! | short read | [`short_read`] | [`io::ErrorKind::UnexpectedEof`] | as it was |
//! | full space | [`limit_space`] | [`io::ErrorKind::StorageFull`] | the leading pages that still fitted, as an unflushed write |
//! | flipped bit on the medium | [`flip_bit`] | wrong bytes, no error | wrong until written again |
//! | flipped bit on the way | [`flip_reads`] | wrong bytes, no error | right |
//! | damage of any kind | [`overwrite`] | other bytes, no error | other bytes |
//!
//! Through a [`FaultyKernel`](crate::FaultyKernel) short transfers are told as such, without an error, as the
//! kernel does.
//!
//! Not simulated: a sector that is itself torn, a write that lands elsewhere, a flush that lies.
//! The media assumptions exclude the first; the others are states that [`overwrite`] can make.
//!
//! [`crash_after`]: FaultyDevice::crash_after
//! [`cut_power`]: FaultyDevice::cut_power
//! [`crash_image`]: FaultyDevice::crash_image
//! [`crash`]: FaultyDevice::crash
//! [`every_crash`]: FaultyDevice::every_crash
//! [`fail_nth`]: FaultyDevice::fail_nth
//! [`fail_from`]: FaultyDevice::fail_from
//! [`short_write`]: FaultyDevice::short_write
//! [`short_read`]: FaultyDevice::short_read
//! [`limit_space`]: FaultyDevice::limit_space
//! [`flip_bit`]: FaultyDevice::flip_bit
//! [`flip_reads`]: FaultyDevice::flip_reads
//! [`overwrite`]: FaultyDevice::overwrite

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deepram_pool::device::{ALIGN, Device, SECTOR};
use rand::Rng;

use crate::crash::{Crash, CrashImages, EveryCrash, Moment, Unflushed};
use crate::image::{Image, PAGE};

/// Which operations an injected fault counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// [`Device::read`].
    Read,
    /// [`Device::write`] and [`Device::write_durable`].
    Write,
    /// [`Device::flush`].
    Flush,
}

/// The error that an injected fault returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error of this kind without an errno.
    Kind(io::ErrorKind),
    /// The error of this errno, as the operating system returns it.
    Os(i32),
}

impl Failure {
    /// Input/output error: what a failing device gives on Linux.
    pub const EIO: Self = Self::Os(5);
    /// No space left on device: its kind is [`io::ErrorKind::StorageFull`].
    pub const ENOSPC: Self = Self::Os(28);

    fn error(self) -> io::Error {
        match self {
            Self::Kind(kind) => io::Error::new(kind, "injected fault"),
            Self::Os(errno) => io::Error::from_raw_os_error(errno),
        }
    }
}

impl From<io::ErrorKind> for Failure {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Kind(kind)
    }
}

/// What a device did since it was made or since [`FaultyDevice::reset_stats`]: operations that
/// succeeded, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, the durable ones included.
    pub writes: u64,
    /// Bytes written, by the durable writes too.
    pub written_bytes: u64,
    /// Of the writes, those by [`Device::write_durable`].
    pub durable_writes: u64,
    /// Flushes.
    pub flushes: u64,
}

#[derive(Debug)]
struct Injected {
    op: Op,
    /// Operations until it happens; 1 is the next.
    countdown: u64,
    /// Whether it goes on happening.
    lasting: bool,
    error: Failure,
    /// Sectors that a write applies before it fails.
    sectors: usize,
}

#[derive(Debug)]
struct State {
    durable: Image,
    /// `durable` with every unflushed write applied: what reads see.
    newest: Image,
    unflushed: Vec<Unflushed>,
    ops: u64,
    /// The operation that the power cut hits, counted as `ops` is.
    cut_at: Option<u64>,
    off: bool,
    injected: Vec<Injected>,
    space_limit: Option<u64>,
    read_flips: Vec<(u64, u8)>,
    any_buffer: bool,
    stats: Stats,
    /// Of what durable writes are multiples.
    granule: usize,
    recording: bool,
    recorded: Vec<(u64, usize)>,
}

impl State {
    fn new(image: Image) -> Self {
        Self {
            newest: image.clone(),
            durable: image,
            unflushed: Vec::new(),
            ops: 0,
            cut_at: None,
            off: false,
            injected: Vec::new(),
            space_limit: None,
            read_flips: Vec::new(),
            any_buffer: false,
            stats: Stats::default(),
            granule: SECTOR,
            recording: false,
            recorded: Vec::new(),
        }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.off {
            return Err(power_cut());
        }
        Ok(())
    }

    /// Errors that mean a bug in the caller, as direct I/O reports them: EINVAL.
    fn check_alignment(&self, offset: u64, buf: &[u8], unit: usize, memory: usize) -> io::Result<()> {
        let unaligned = |what: &str, value: u64, unit: usize| {
            let message = format!("{what} {value:#x} is not a multiple of {unit}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        };
        if !offset.is_multiple_of(unit as u64) {
            return unaligned("offset", offset, unit);
        }
        if !buf.len().is_multiple_of(unit) {
            return unaligned("length", buf.len() as u64, unit);
        }
        let address = buf.as_ptr().addr();
        if !self.any_buffer && !buf.is_empty() && !address.is_multiple_of(memory) {
            return unaligned("buffer address", address as u64, memory);
        }
        Ok(())
    }

    /// Counts one operation that changes the device; true if the power cut hits it.
    fn count_op(&mut self) -> bool {
        self.ops += 1;
        if self.cut_at.is_some_and(|at| self.ops >= at) {
            self.off = true;
        }
        self.off
    }

    /// The fault injected into this operation, if any: its error, and the sectors applied first.
    fn injected(&mut self, op: Op) -> Option<(Failure, usize)> {
        let mut hit = None;
        self.injected.retain_mut(|fault| {
            if fault.op != op {
                return true;
            }
            fault.countdown = fault.countdown.saturating_sub(1);
            if fault.countdown > 0 {
                return true;
            }
            hit.get_or_insert((fault.error, fault.sectors));
            fault.lasting
        });
        hit
    }

    fn write(&mut self, offset: u64, buf: &[u8], durable: bool) -> io::Result<()> {
        let unit = if durable { self.granule } else { ALIGN };
        let (_, error) = self.write_some(offset, buf, durable, unit, false)?;
        error.map_or(Ok(()), Err)
    }

    /// Writes as far as faults let it: the bytes written, and the error if that isn't all of it. For a `call` of the
    /// kernel a short write that the power does not cut off has no error.
    fn write_some(
        &mut self,
        offset: u64,
        buf: &[u8],
        durable: bool,
        unit: usize,
        call: bool,
    ) -> io::Result<(usize, Option<io::Error>)> {
        self.check_power()?;
        self.check_alignment(offset, buf, unit, if call { unit } else { ALIGN })?;
        if !self.newest.contains(offset, buf.len()) {
            let message =
                format!("write of {} bytes at {offset} is beyond the end, {}", buf.len(), self.newest.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let cut = self.count_op();
        if self.recording {
            self.recorded.push((offset, buf.len()));
        }

        // What is applied, and the error if that isn't all of it.
        let mut applied = buf.len();
        let mut error = None;
        if let Some(limit) = self.space_limit {
            let used = self.newest.allocated_bytes();
            let spare = limit.saturating_sub(used) / PAGE as u64;
            applied = self.newest.fitting(offset, buf.len(), spare);
            if applied < buf.len() {
                error = Some(Failure::ENOSPC.error());
            }
        }
        if cut {
            error = Some(power_cut());
        } else if let Some((failure, sectors)) = self.injected(Op::Write) {
            applied = applied.min(sectors.saturating_mul(SECTOR));
            error = Some(failure.error());
        }
        if call && !cut && (1..buf.len()).contains(&applied) {
            error = None;
        }

        let buf = &buf[..applied];
        self.newest.write(offset, buf);
        if let Some(error) = error {
            self.push_unflushed(offset, buf);
            return Ok((applied, Some(error)));
        }
        if durable {
            self.durable.write(offset, buf);
            self.unflushed.retain_mut(|earlier| earlier.supersede(offset, buf.len()));
            self.stats.durable_writes += 1;
        } else {
            self.push_unflushed(offset, buf);
        }
        self.stats.writes += 1;
        self.stats.written_bytes += buf.len() as u64;
        Ok((applied, None))
    }

    fn push_unflushed(&mut self, offset: u64, data: &[u8]) {
        if !data.is_empty() {
            self.unflushed.push(Unflushed::new(offset, data));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_power()?;
        if self.count_op() {
            return Err(power_cut());
        }
        if let Some((failure, _)) = self.injected(Op::Flush) {
            for write in &mut self.unflushed {
                write.doubtful = true;
            }
            return Err(failure.error());
        }
        // What became doubtful in a failed flush is older than everything that isn't.
        let certain = self.unflushed.partition_point(|write| write.doubtful);
        for write in self.unflushed.split_off(certain) {
            write.apply(&mut self.durable, |_| true);
            self.unflushed.retain_mut(|doubtful| doubtful.supersede(write.offset(), write.len()));
        }
        self.stats.flushes += 1;
        Ok(())
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (_, error) = self.read_some(offset, buf, ALIGN)?;
        error.map_or(Ok(()), Err)
    }

    /// Reads as far as faults let it: the bytes read, and the error if that isn't all of them.
    fn read_some(
        &mut self,
        offset: u64,
        buf: &mut [u8],
        unit: usize,
    ) -> io::Result<(usize, Option<io::Error>)> {
        self.check_power()?;
        self.check_alignment(offset, buf, unit, unit)?;
        if !self.newest.contains(offset, buf.len()) {
            let message =
                format!("read of {} bytes at {offset} is beyond the end, {}", buf.len(), self.newest.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        let injected = self.injected(Op::Read);
        let sectors = injected.map_or(usize::MAX, |(_, sectors)| sectors);
        let read = buf.len().min(sectors.saturating_mul(SECTOR));
        let buf = &mut buf[..read];
        self.newest.read(offset, buf);
        for &(at, bit) in &self.read_flips {
            if let Some(byte) = at.checked_sub(offset).and_then(|at| buf.get_mut(usize::try_from(at).ok()?)) {
                *byte ^= 1 << bit;
            }
        }
        if let Some((failure, _)) = injected {
            return Ok((read, Some(failure.error())));
        }
        self.stats.reads += 1;
        self.stats.read_bytes += buf.len() as u64;
        Ok((read, None))
    }

    /// A result as a system call gives it: an error is its number.
    fn as_call<T>(&self, result: io::Result<T>) -> Result<T, i32> {
        result.map_err(|error| match error.raw_os_error() {
            Some(errno) => errno,
            None if self.off => POWER_CUT,
            None if error.kind() == io::ErrorKind::InvalidInput => EINVAL,
            None => EIO,
        })
    }
}

/// The error number of whatever is asked of a device without power through a kernel: `ESHUTDOWN`, which nothing else
/// gives here.
pub const POWER_CUT: i32 = 108;
const EIO: i32 = 5;
const EINVAL: i32 = 22;

fn power_cut() -> io::Error {
    io::Error::other("simulated power cut")
}

/// A device in memory, with the faults that [its module](self) lists.
///
/// A clone is another handle on the same device: give one to the pool, and set faults, look at
/// what was written and take crash images through the other. Another *device* with the same bytes
/// comes of [`FaultyDevice::from_image`]; images are cheap, thousands of a 64 MiB device too.
///
/// It checks that offsets, lengths and buffer addresses are aligned as [`Device`] asks
/// ([`AlignedBuf`](crate::AlignedBuf) is aligned), and answers what isn't with
/// [`io::ErrorKind::InvalidInput`].
///
/// Writes that weren't made durable are kept in the order in which they arrived. A
/// [`Device::write_durable`] takes the place of what it overlaps: no reordering brings an older
/// write to those sectors back. One that the power cut hits is as unflushed as any other write.
#[derive(Clone)]
pub struct FaultyDevice {
    len: u64,
    state: Arc<Mutex<State>>,
}

impl FaultyDevice {
    /// A device of `len` bytes, all zero.
    ///
    /// # Panics
    /// If `len` is not a multiple of [`ALIGN`].
    pub fn new(len: u64) -> Self {
        Self::from_image(Image::new(len))
    }

    /// A device that holds `image` (or the bytes of a `Vec<u8>`), all of it durable, with no
    /// faults set: what is found when the power comes back.
    pub fn from_image(image: impl Into<Image>) -> Self {
        let image = image.into();
        Self { len: image.len(), state: Arc::new(Mutex::new(State::new(image))) }
    }

    // -- power cuts ------------------------------------------------------------------------

    /// Cuts the power in the `n`-th operation from now: it fails with "simulated power cut", and
    /// so does everything after it, reads too. 1 is the next one; 0 cuts it at once.
    ///
    /// Only what changes the device counts as an operation: writes, durable writes and flushes,
    /// failed ones included. A write that is cut is among those that may reach the device.
    pub fn crash_after(&self, n: u64) {
        let mut state = self.state();
        if n == 0 {
            state.off = true;
        }
        state.cut_at = Some(state.ops + n);
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.crash_after(0);
    }

    /// Whether the power has been cut.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Operations so far, as [`Self::crash_after`] counts them. Run a workload once to learn its
    /// operations, then once for each with the power cut there.
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// What the device holds after a power cut at this moment, by `crash`. The device goes on as
    /// it was, so that many can be taken. [`Crash::TornLast`]: the first half of the last write.
    pub fn crash_image(&self, crash: Crash) -> Image {
        self.moment().image(crash)
    }

    /// Every image that `crash` stands for: for [`Crash::TornLast`] every proper prefix, then
    /// every proper suffix of the last write's sectors; one for each other mode.
    pub fn crash_images(&self, crash: Crash) -> CrashImages {
        CrashImages::new(self.moment(), crash)
    }

    /// One image drawn as [`Crash::Random`] does, from the caller's generator.
    pub fn crash(&self, rng: &mut (impl Rng + ?Sized)) -> Image {
        self.moment().random(rng)
    }

    /// Every image that a power cut at this moment may leave. Exponential in the number of
    /// unflushed sectors: see [`EveryCrash::total`].
    pub fn every_crash(&self) -> EveryCrash {
        EveryCrash::new(self.moment())
    }

    /// Only what is durable for certain.
    pub fn durable_image(&self) -> Image {
        self.state().durable.clone()
    }

    /// What reads see, without the flips of [`Self::flip_reads`].
    pub fn newest_image(&self) -> Image {
        self.state().newest.clone()
    }

    /// How many writes are not durable.
    pub fn unflushed_writes(&self) -> usize {
        self.state().unflushed.len()
    }

    // -- other faults ----------------------------------------------------------------------

    /// Fails the `n`-th `op` from now, once; 1 is the next one.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn fail_nth(&self, op: Op, n: u64, failure: impl Into<Failure>) {
        self.inject(op, n, false, failure.into(), 0);
    }

    /// Fails the `n`-th `op` from now and every later one, until [`Self::heal`]; 1 is the next.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn fail_from(&self, op: Op, n: u64, failure: impl Into<Failure>) {
        self.inject(op, n, true, failure.into(), 0);
    }

    /// Of the `n`-th write from now applies only the first `sectors` sectors, then fails with
    /// [`io::ErrorKind::WriteZero`], once. A durable write so cut short is not durable.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn short_write(&self, n: u64, sectors: usize) {
        let failure = io::ErrorKind::WriteZero.into();
        self.inject(Op::Write, n, false, failure, sectors);
    }

    /// Of the `n`-th read from now fills only the first `sectors` sectors, then fails with
    /// [`io::ErrorKind::UnexpectedEof`], once.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn short_read(&self, n: u64, sectors: usize) {
        self.inject(Op::Read, n, false, io::ErrorKind::UnexpectedEof.into(), sectors);
    }

    fn inject(&self, op: Op, n: u64, lasting: bool, error: Failure, sectors: usize) {
        assert!(n > 0, "faults count from 1, the next operation");
        self.state().injected.push(Injected { op, countdown: n, lasting, error, sectors });
    }

    /// Lets distinct pages of 4 KiB be touched up to `bytes` in all, counting those that hold
    /// something now ([`Self::used_space`]). A write that needs more fails with
    /// [`io::ErrorKind::StorageFull`]. Pages already touched can always be written again.
    pub fn limit_space(&self, bytes: u64) {
        self.state().space_limit = Some(bytes);
    }

    /// Raises the limit of [`Self::limit_space`] by `bytes`; nothing to do if there is none.
    pub fn allow_more(&self, bytes: u64) {
        let mut state = self.state();
        state.space_limit = state.space_limit.map(|limit| limit.saturating_add(bytes));
    }

    /// Bytes in distinct pages of 4 KiB touched so far.
    pub fn used_space(&self) -> u64 {
        self.state().newest.allocated_bytes()
    }

    /// Flips bit `bit` (0 to 7) of the durable byte at `offset`. Reads see it unless an unflushed
    /// write covers that byte; a later write mends it.
    ///
    /// # Panics
    /// Beyond the end, or if there is no such bit.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        let mut state = self.state();
        state.durable.flip_bit(offset, bit);
        if !state.unflushed.iter().any(|write| write.covers(offset)) {
            state.newest.flip_bit(offset, bit);
        }
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset` in what every read returns, until
    /// [`Self::heal`]. The device itself keeps the right byte.
    ///
    /// # Panics
    /// Beyond the end, or if there is no such bit.
    pub fn flip_reads(&self, offset: u64, bit: u8) {
        assert!(offset < self.len, "{offset} is beyond the end, {}", self.len);
        assert!(bit < 8, "a byte has bits 0 to 7, not {bit}");
        self.state().read_flips.push((offset, bit));
    }

    /// Puts `bytes` at `offset`, any alignment, durably and at once, as neither an operation nor
    /// a write: damage, or a fixture.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        let state = &mut *state;
        // The sectors it touches settle whole: no unflushed write has a say in them any more, or
        // a crash would undo the damage.
        let sector = SECTOR as u64;
        let first = offset / sector * sector;
        let end = (offset + bytes.len() as u64).next_multiple_of(sector);
        let mut settled = vec![0; usize::try_from(end - first).expect("fits in memory")];
        state.newest.read(first, &mut settled);
        let at = usize::try_from(offset - first).expect("less than a sector");
        settled[at..at + bytes.len()].copy_from_slice(bytes);
        state.newest.write(first, &settled);
        state.durable.write(first, &settled);
        state.unflushed.retain_mut(|write| write.supersede(first, settled.len()));
    }

    /// Takes back every fault that hasn't happened yet or goes on happening: failing operations,
    /// the space limit, flips on the way and a power cut to come. What is damaged stays damaged,
    /// and a device without power stays without.
    pub fn heal(&self) {
        let mut state = self.state();
        state.injected.clear();
        state.space_limit = None;
        state.read_flips.clear();
        if !state.off {
            state.cut_at = None;
        }
    }

    /// Accepts buffers at any address from now on; offsets and lengths stay checked.
    pub fn allow_any_buffer(&self) {
        self.state().any_buffer = true;
    }

    // -- what happened ---------------------------------------------------------------------

    /// Counts and bytes so far.
    pub fn stats(&self) -> Stats {
        self.state().stats
    }

    /// Makes it a device whose durable writes are multiples of so many bytes, [`SECTOR`] to [`ALIGN`].
    pub fn set_granule(&self, bytes: usize) {
        self.state().granule = bytes;
    }

    /// Sets the counts to zero; not those of [`Self::ops`].
    pub fn reset_stats(&self) {
        self.state().stats = Stats::default();
    }

    /// Starts to record every write, or stops; what is recorded stays.
    pub fn record_writes(&self, on: bool) {
        self.state().recording = on;
    }

    /// Offset and length of every write recorded since the last call, in order, failed ones too
    /// (they may have changed the range).
    pub fn take_writes(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.state().recorded)
    }

    // -- as a kernel sees it ---------------------------------------------------------------

    /// What `pwritev2` gives: bytes written, which may be fewer, or an error number.
    pub(crate) fn pwrite(&self, offset: u64, buf: &[u8], durable: bool) -> Result<usize, i32> {
        let mut state = self.state();
        let unit = state.granule;
        let written = state.write_some(offset, buf, durable, unit, true);
        let told = written.and_then(|(bytes, error)| error.map_or(Ok(bytes), Err));
        state.as_call(told)
    }

    /// What `pread` gives: bytes read, which may be fewer, or an error number.
    pub(crate) fn pread(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        let within = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut state = self.state();
        let unit = state.granule;
        let told = match state.read_some(offset, &mut buf[..within], unit) {
            Ok((bytes, Some(_))) if bytes > 0 => Ok(bytes),
            Ok((bytes, error)) => error.map_or(Ok(bytes), Err),
            Err(error) => Err(error),
        };
        state.as_call(told)
    }

    /// What `fdatasync` gives.
    pub(crate) fn fdatasync(&self) -> Result<(), i32> {
        let mut state = self.state();
        let flushed = state.flush();
        state.as_call(flushed)
    }

    /// The unit of transfers.
    pub(crate) fn unit(&self) -> usize {
        self.state().granule
    }

    fn moment(&self) -> Moment {
        let state = self.state();
        Moment { durable: state.durable.clone(), unflushed: state.unflushed.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held is a failed assertion on arguments, made before any change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for FaultyDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.state().read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.state().write(offset, buf, false)
    }

    fn flush(&self) -> io::Result<()> {
        self.state().flush()
    }

    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.state().write(offset, buf, true)
    }

    fn granule(&self) -> usize {
        self.state().granule
    }

    fn name(&self) -> String {
        "faulty device in memory".to_owned()
    }
}

impl fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("FaultyDevice")
            .field("len", &self.len)
            .field("ops", &state.ops)
            .field("off", &state.off)
            .field("unflushed_writes", &state.unflushed.len())
            .finish_non_exhaustive()
    }
}
