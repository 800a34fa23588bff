//! A device in memory that fails as flash and power supplies do.
//!
//! The faults, how a test sets them, and their effects:
//!
//! | fault | set by | result for the caller | state of the device |
//! |---|---|---|---|
//! | power cut | [`crash_after`], [`cut_power`] | an error from that operation and every later one | any state the media assumptions allow: [`crash_image`], [`crash`], [`every_crash`] |
//! | failed operation | [`fail_nth`], [`fail_from`] | the injected error | a failed write wrote nothing; a failed read changed nothing |
//! | failed flush | the same, with [`Op::Flush`] | the injected error | unflushed writes stay readable, but no later flush makes them durable, as on Linux |
//! | short write | [`short_write`] | [`io::ErrorKind::WriteZero`] | the leading sectors, as an unflushed write |
//! | short read | [`short_read`] | [`io::ErrorKind::UnexpectedEof`] | unchanged |
//! | full space | [`limit_space`] | [`io::ErrorKind::StorageFull`] | the leading pages that fit, as an unflushed write |
//! | flipped bit on the medium | [`flip_bit`] | wrong bytes, no error | wrong until written again |
//! | flipped bit in transfer | [`flip_reads`] | wrong bytes, no error | correct |
//! | damage of any kind | [`overwrite`] | other bytes, no error | other bytes |
//!
//! Through a [`FaultyKernel`](crate::FaultyKernel), a short transfer returns its length without an error, as in a
//! real kernel.
//!
//! Not simulated: a sector that is itself torn, a write to a wrong location, a flush that falsely reports success.
//! The media assumptions exclude the first; [`overwrite`] can create the states that the others leave.
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

/// The operations that an injected fault counts.
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
    /// Input/output error: the error of a failing device on Linux.
    pub const EIO: Self = Self::Os(5);
    /// No space left on device; its kind is [`io::ErrorKind::StorageFull`].
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

/// Successful operations of a device, and their bytes, since the device was made or since
/// [`FaultyDevice::reset_stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, including durable writes.
    pub writes: u64,
    /// Bytes written, including durable writes.
    pub written_bytes: u64,
    /// Writes made by [`Device::write_durable`].
    pub durable_writes: u64,
    /// Flushes.
    pub flushes: u64,
}

#[derive(Debug)]
struct Injected {
    op: Op,
    /// Operations until the fault; 1: the next operation.
    countdown: u64,
    /// Whether every later operation fails too.
    lasting: bool,
    error: Failure,
    /// Sectors that a write applies before it fails.
    sectors: usize,
}

#[derive(Debug)]
struct State {
    durable: Image,
    /// `durable` with every unflushed write applied, as reads see it.
    newest: Image,
    unflushed: Vec<Unflushed>,
    ops: u64,
    /// The operation that the power cut interrupts, counted as `ops`.
    cut_at: Option<u64>,
    off: bool,
    injected: Vec<Injected>,
    space_limit: Option<u64>,
    read_flips: Vec<(u64, u8)>,
    any_buffer: bool,
    stats: Stats,
    /// Alignment of durable writes, in bytes.
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

    /// Returns the error of an unaligned transfer, which is a bug of the caller; direct I/O reports EINVAL.
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

    /// Counts an operation that changes the device; returns whether the power cut interrupts it.
    fn count_op(&mut self) -> bool {
        self.ops += 1;
        if self.cut_at.is_some_and(|at| self.ops >= at) {
            self.off = true;
        }
        self.off
    }

    /// Returns the fault injected into this operation, if any: its error, and the sectors applied first.
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

    /// Writes as far as the injected faults allow. Returns the bytes written, and the error if the write is
    /// incomplete. For a system `call`, a short write without a power cut has no error.
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

        // The bytes applied, and the error if they are not the whole write.
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
        // Writes that a failed flush has made doubtful are older than all others.
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

    /// Reads as far as the injected faults allow. Returns the bytes read, and the error if the read is incomplete.
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

    /// Converts a result to that of a system call, whose error is an errno.
    fn as_call<T>(&self, result: io::Result<T>) -> Result<T, i32> {
        result.map_err(|error| match error.raw_os_error() {
            Some(errno) => errno,
            None if self.off => POWER_CUT,
            None if error.kind() == io::ErrorKind::InvalidInput => EINVAL,
            None => EIO,
        })
    }
}

/// Errno of every call to a device without power: `ESHUTDOWN`, which has no other use here.
pub const POWER_CUT: i32 = 108;
const EIO: i32 = 5;
const EINVAL: i32 = 22;

fn power_cut() -> io::Error {
    io::Error::other("simulated power cut")
}

/// A device in memory, with the faults that [its module](self) lists.
///
/// A clone is another handle of the same device: give one to the pool, and use the other to set faults, inspect
/// writes and take crash images. [`FaultyDevice::from_image`] makes another device with the same bytes; images are
/// cheap, even thousands of them for a device of 64 MiB.
///
/// The device checks that offsets, lengths and buffer addresses are aligned as [`Device`] requires
/// ([`AlignedBuf`](crate::AlignedBuf) is aligned), and returns [`io::ErrorKind::InvalidInput`] otherwise.
///
/// Unflushed writes are kept in order of arrival. A [`Device::write_durable`] replaces the sectors that it overlaps:
/// no reordering brings an older write to those sectors back. A durable write that the power cut interrupts is as
/// unflushed as any other write.
#[derive(Clone)]
pub struct FaultyDevice {
    len: u64,
    state: Arc<Mutex<State>>,
}

impl FaultyDevice {
    /// Makes a device of `len` bytes, all zero.
    ///
    /// # Panics
    /// If `len` is not a multiple of [`ALIGN`].
    pub fn new(len: u64) -> Self {
        Self::from_image(Image::new(len))
    }

    /// Makes a device that holds `image` (or the bytes of a `Vec<u8>`), all of it durable, without faults: the state
    /// when the power returns.
    pub fn from_image(image: impl Into<Image>) -> Self {
        let image = image.into();
        Self { len: image.len(), state: Arc::new(Mutex::new(State::new(image))) }
    }

    // -- power cuts ------------------------------------------------------------------------

    /// Cuts the power in the `n`-th operation from now; 1 is the next operation, and 0 cuts the power at once. This
    /// operation and all later ones, including reads, fail with "simulated power cut".
    ///
    /// Only operations that change the device count: writes, durable writes and flushes, including failed ones. The
    /// interrupted write may still reach the device.
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

    /// Returns whether the power has been cut.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Returns the number of operations so far, as [`Self::crash_after`] counts them. A test runs a workload once to
    /// learn this number, then once for each operation with the power cut there.
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Returns the contents after a power cut now, as `crash` chooses them. The device itself does not change, so
    /// several images can be taken. [`Crash::TornLast`] gives the first half of the last write.
    pub fn crash_image(&self, crash: Crash) -> Image {
        self.moment().image(crash)
    }

    /// Returns every image of `crash`: for [`Crash::TornLast`] every proper prefix, then every proper suffix of the
    /// last write's sectors; for every other mode one image.
    pub fn crash_images(&self, crash: Crash) -> CrashImages {
        CrashImages::new(self.moment(), crash)
    }

    /// Returns a random image, as [`Crash::Random`] does, from the caller's generator.
    pub fn crash(&self, rng: &mut (impl Rng + ?Sized)) -> Image {
        self.moment().random(rng)
    }

    /// Returns every image that a power cut now may leave. Their number is exponential in the number of unflushed
    /// sectors; see [`EveryCrash::total`].
    pub fn every_crash(&self) -> EveryCrash {
        EveryCrash::new(self.moment())
    }

    /// Returns the image of the durable bytes only.
    pub fn durable_image(&self) -> Image {
        self.state().durable.clone()
    }

    /// Returns the image that reads see, without the flips of [`Self::flip_reads`].
    pub fn newest_image(&self) -> Image {
        self.state().newest.clone()
    }

    /// Returns the number of writes that are not durable.
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

    /// Fails the `n`-th `op` from now and every later one, until [`Self::heal`]; 1 is the next one.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn fail_from(&self, op: Op, n: u64, failure: impl Into<Failure>) {
        self.inject(op, n, true, failure.into(), 0);
    }

    /// Applies only the first `sectors` sectors of the `n`-th write from now, and fails the write with
    /// [`io::ErrorKind::WriteZero`], once. A shortened durable write is not durable.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn short_write(&self, n: u64, sectors: usize) {
        let failure = io::ErrorKind::WriteZero.into();
        self.inject(Op::Write, n, false, failure, sectors);
    }

    /// Fills only the first `sectors` sectors of the `n`-th read from now, and fails the read with
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

    /// Limits the distinct pages of 4 KiB that may be written to `bytes` in total, including those in use
    /// ([`Self::used_space`]). A write that needs more fails with [`io::ErrorKind::StorageFull`]. Pages that have
    /// been written can always be written again.
    pub fn limit_space(&self, bytes: u64) {
        self.state().space_limit = Some(bytes);
    }

    /// Raises the limit of [`Self::limit_space`] by `bytes`; does nothing if there is no limit.
    pub fn allow_more(&self, bytes: u64) {
        let mut state = self.state();
        state.space_limit = state.space_limit.map(|limit| limit.saturating_add(bytes));
    }

    /// Returns the size of all distinct pages of 4 KiB written so far, in bytes.
    pub fn used_space(&self) -> u64 {
        self.state().newest.allocated_bytes()
    }

    /// Flips bit `bit` (0 to 7) of the durable byte at `offset`. Reads see the flip unless an unflushed write covers
    /// the byte; a later write corrects it.
    ///
    /// # Panics
    /// Beyond the end, or for an invalid bit.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        let mut state = self.state();
        state.durable.flip_bit(offset, bit);
        if !state.unflushed.iter().any(|write| write.covers(offset)) {
            state.newest.flip_bit(offset, bit);
        }
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset` in the result of every read, until [`Self::heal`]. The device
    /// itself keeps the correct byte.
    ///
    /// # Panics
    /// Beyond the end, or for an invalid bit.
    pub fn flip_reads(&self, offset: u64, bit: u8) {
        assert!(offset < self.len, "{offset} is beyond the end, {}", self.len);
        assert!(bit < 8, "a byte has bits 0 to 7, not {bit}");
        self.state().read_flips.push((offset, bit));
    }

    /// Changes the bytes at `offset`, with any alignment, durably and at once. This counts neither as an operation
    /// nor as a write. Use it for damage or for a fixture.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        let state = &mut *state;
        // The affected sectors become durable as they are now: an unflushed write could otherwise undo the damage in
        // a crash.
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

    /// Removes every pending or lasting fault: failing operations, the space limit, flips in reads, and a future
    /// power cut. Damaged bytes stay damaged, and a device without power stays without power.
    pub fn heal(&self) {
        let mut state = self.state();
        state.injected.clear();
        state.space_limit = None;
        state.read_flips.clear();
        if !state.off {
            state.cut_at = None;
        }
    }

    /// Accepts buffers at any address from now on; offsets and lengths are still checked.
    pub fn allow_any_buffer(&self) {
        self.state().any_buffer = true;
    }

    // -- statistics ------------------------------------------------------------------------

    /// Returns the operations and bytes so far.
    pub fn stats(&self) -> Stats {
        self.state().stats
    }

    /// Sets the alignment of durable writes, from [`SECTOR`] to [`ALIGN`] bytes.
    pub fn set_granule(&self, bytes: usize) {
        self.state().granule = bytes;
    }

    /// Sets the counters to zero, except that of [`Self::ops`].
    pub fn reset_stats(&self) {
        self.state().stats = Stats::default();
    }

    /// Starts or stops recording writes; recorded writes stay.
    pub fn record_writes(&self, on: bool) {
        self.state().recording = on;
    }

    /// Returns and clears the offset and length of every recorded write, in order, including failed ones, which may
    /// have changed the range.
    pub fn take_writes(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.state().recorded)
    }

    // -- system calls ---------------------------------------------------------------------

    /// Performs a `pwritev2`: returns the bytes written, which may be fewer, or an errno.
    pub(crate) fn pwrite(&self, offset: u64, buf: &[u8], durable: bool) -> Result<usize, i32> {
        let mut state = self.state();
        let unit = state.granule;
        let written = state.write_some(offset, buf, durable, unit, true);
        let told = written.and_then(|(bytes, error)| error.map_or(Ok(bytes), Err));
        state.as_call(told)
    }

    /// Performs a `pread`: returns the bytes read, which may be fewer, or an errno.
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

    /// Performs an `fdatasync`.
    pub(crate) fn fdatasync(&self) -> Result<(), i32> {
        let mut state = self.state();
        let flushed = state.flush();
        state.as_call(flushed)
    }

    /// Returns the unit of transfers, in bytes.
    pub(crate) fn unit(&self) -> usize {
        self.state().granule
    }

    fn moment(&self) -> Moment {
        let state = self.state();
        Moment { durable: state.durable.clone(), unflushed: state.unflushed.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held is a failed assertion on arguments, before any change.
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
