//! A device that can hold its reads and writes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use deepram_pool::device::Device;
use deepram_testkit::FaultyDevice;

/// Bytes of a batch with many segments.
const BATCH: usize = 128 << 10;

/// A device that can be armed to hold one transfer: the next read, or the next write of a log batch, is
/// executed but does not return until it is released.
#[derive(Clone)]
pub(crate) struct Gated {
    device: FaultyDevice,
    pub(crate) armed: Arc<AtomicBool>,
    pub(crate) armed_write: Arc<AtomicBool>,
    /// Two flags: a transfer is held; the transfer may return.
    held: Arc<(Mutex<(bool, bool)>, Condvar)>,
}

impl Gated {
    pub(crate) fn new(device: &FaultyDevice) -> Self {
        Self {
            device: device.clone(),
            armed: Arc::default(),
            armed_write: Arc::default(),
            held: Arc::default(),
        }
    }

    pub(crate) fn until_held(&self) {
        let (state, changed) = &*self.held;
        drop(changed.wait_while(state.lock().unwrap(), |(held, _)| !*held).unwrap());
    }

    /// Holds this transfer if the device is armed.
    fn pass(&self, armed: &AtomicBool) {
        if armed.swap(false, SeqCst) {
            let (state, changed) = &*self.held;
            state.lock().unwrap().0 = true;
            changed.notify_all();
            drop(changed.wait_while(state.lock().unwrap(), |(_, go)| !*go).unwrap());
        }
    }

    pub(crate) fn let_go(&self) {
        self.held.0.lock().unwrap().1 = true;
        self.held.1.notify_all();
    }
}

impl Device for Gated {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read(offset, buf)?;
        self.pass(&self.armed);
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write(offset, buf)?;
        if buf.starts_with(b"DRB") && buf.len() >= BATCH {
            self.pass(&self.armed_write);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.device.write_durable(offset, buf)
    }

    fn name(&self) -> String {
        self.device.name()
    }
}
