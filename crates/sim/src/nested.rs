//! A device inside another device: a drive behind an operating system, for example. The inner device
//! keeps its own event queue; the outer device schedules one event of its own for the inner device's
//! next event.

use deepram_core::units::Picos;

use crate::error::SimError;
use crate::host::{Command, Context, Device, Event, Slot};

/// An inner device with its event queue.
///
/// The outer device calls [`NestedDevice::submit`] and [`NestedDevice::advance`], which return the
/// requests that have completed, and asks [`NestedDevice::next`] when it must call `advance` again.
pub struct NestedDevice<D: Device> {
    device: D,
    context: Context<D::Event>,
    completed: Vec<Slot>,
}

impl<D: Device> NestedDevice<D> {
    /// Wraps a device at time 0, with no request under way.
    pub fn new(device: D) -> Self {
        Self { device, context: Context::new(), completed: Vec::new() }
    }

    /// The inner device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The time of the inner device's next event; `None` if it has none.
    pub fn next(&self) -> Option<Picos> {
        self.context.queue.peek()
    }

    /// Runs the inner device's events up to `now`. Returns the requests that have completed, in order.
    ///
    /// # Errors
    /// The device is full, or broken.
    pub fn advance(&mut self, now: Picos) -> Result<&[Slot], SimError> {
        self.completed.clear();
        self.run(now)?;
        Ok(&self.completed)
    }

    /// Sends a command at `now`, after the events due by then. Returns the requests that have completed,
    /// in order.
    ///
    /// # Errors
    /// The device is full, or broken.
    pub fn submit(&mut self, slot: Slot, command: Command, now: Picos) -> Result<&[Slot], SimError> {
        self.call(now, |device, context| device.submit(slot, command, context))
    }

    /// Calls the inner device at `now`, after the events due by then. Returns the requests that have
    /// completed, in order.
    pub(crate) fn call(
        &mut self,
        now: Picos,
        function: impl FnOnce(&mut D, &mut Context<D::Event>) -> Result<(), SimError>,
    ) -> Result<&[Slot], SimError> {
        self.completed.clear();
        self.run(now)?;
        // This event advances the inner clock to the present.
        self.context.queue.push(now, Event::Driver(0));
        self.run(now)?;
        function(&mut self.device, &mut self.context)?;
        self.completed.append(&mut self.context.done);
        Ok(&self.completed)
    }

    fn run(&mut self, now: Picos) -> Result<(), SimError> {
        while self.context.queue.peek().is_some_and(|time| time <= now) {
            let Some((time, event)) = self.context.queue.pop() else { break };
            match event {
                Event::Device(event) => self.device.handle(event, &mut self.context)?,
                Event::Complete(slot) => self.context.done.push(slot),
                Event::Arrive | Event::Driver(_) => {}
            }
            self.context.asleep.clear();
            while let Some((slot, software)) = self.context.resumed.pop() {
                self.context.queue.push(time + Picos(software), Event::Complete(slot));
            }
            self.completed.append(&mut self.context.done);
        }
        Ok(())
    }

    /// Checks the inner device's conservation laws, and that no event was scheduled in the past.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub fn check(&self) -> Result<(), SimError> {
        if self.context.queue.late() != 0 {
            return Err(SimError::Conservation {
                law: "no event is scheduled into the past",
                found: format!("{} events of the inner device were", self.context.queue.late()),
            });
        }
        self.device.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{HostOptions, drive};
    use crate::ssd::{ParallelSsd, SsdOptions};
    use deepram_core::units::Bytes;
    use deepram_media::{Registry, Ssd};
    use deepram_trace::{Op, Request};

    /// An outer device that passes every command on.
    struct Outer(NestedDevice<ParallelSsd>, Option<Picos>);

    impl Outer {
        fn settle(&mut self, context: &mut Context<()>) {
            if let Some(next) = self.0.next()
                && self.1.is_none_or(|due| next < due || due <= context.now())
            {
                self.1 = Some(next);
                context.schedule(next, ());
            }
        }
    }

    impl Device for Outer {
        type Event = ();

        fn capacity(&self) -> Bytes {
            self.0.device().capacity()
        }

        fn queue_limit(&self) -> u64 {
            self.0.device().queue_limit()
        }

        fn submit(
            &mut self,
            slot: Slot,
            command: Command,
            context: &mut Context<()>,
        ) -> Result<(), SimError> {
            for done in self.0.submit(slot, command, context.now())? {
                context.complete(*done);
            }
            self.settle(context);
            Ok(())
        }

        fn handle(&mut self, (): (), context: &mut Context<()>) -> Result<(), SimError> {
            for done in self.0.advance(context.now())? {
                context.complete(*done);
            }
            self.settle(context);
            Ok(())
        }

        fn counts(&self) -> crate::flash::FlashCounts {
            self.0.device().counts()
        }

        fn check(&self) -> Result<(), SimError> {
            self.0.check()
        }
    }

    #[test]
    fn a_drive_inside_another_device_behaves_as_by_itself() {
        let ssd: Ssd = Registry::builtin().unwrap().get("mqsim-s8").unwrap();
        let requests = |_| {
            (0..3000u64).map(|n| {
                let op = if n % 3 == 0 { Op::Read } else { Op::Write };
                Ok(Request {
                    time_ps: Some(n * 30_000_000),
                    device: 0,
                    offset: (n * 7919 % 50_000) << 13,
                    len: 8192,
                    op,
                })
            })
        };
        let options = HostOptions::default();
        let make = || ParallelSsd::new(&ssd, &SsdOptions::default(), 1).unwrap();
        let alone = drive(&mut make(), requests(()), &options).unwrap();
        let inside = drive(&mut Outer(NestedDevice::new(make()), None), requests(()), &options).unwrap();
        assert_eq!(inside, alone);
    }
}
