//! A device inside another: a drive behind an operating system, say. It keeps its own event queue; the
//! outer device schedules one event of its own for the inner one's next.

use crate::engine::Time;
use crate::error::SimError;
use crate::host::{Command, Context, Device, Event, Slot};

/// An inner device with its events.
///
/// The outer device calls [`NestedDevice::submit`] and [`NestedDevice::advance`], each of which returns what has
/// completed, and asks [`NestedDevice::next`] when it must call `advance` again.
pub struct NestedDevice<D: Device> {
    device: D,
    context: Context<D::Event>,
    completed: Vec<Slot>,
}

impl<D: Device> NestedDevice<D> {
    /// The device at time 0, with nothing under way.
    pub fn new(device: D) -> Self {
        Self { device, context: Context::new(), completed: Vec::new() }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// When the device has something to do next; `None` if nothing is under way.
    pub fn next(&self) -> Option<Time> {
        self.context.queue.peek()
    }

    /// Lets the device do what is due up to `now`; the requests that have completed, in order.
    ///
    /// # Errors
    /// The device is full, or broken.
    pub fn advance(&mut self, now: Time) -> Result<&[Slot], SimError> {
        self.completed.clear();
        self.run(now)?;
        Ok(&self.completed)
    }

    /// Sends a command at `now`, after what is due by then; the requests that have completed, in order.
    ///
    /// # Errors
    /// The device is full, or broken.
    pub fn submit(&mut self, slot: Slot, command: Command, now: Time) -> Result<&[Slot], SimError> {
        self.completed.clear();
        self.run(now)?;
        // Moves the inner clock to the present.
        self.context.queue.push(now, Event::Driver(0));
        self.run(now)?;
        self.device.submit(slot, command, &mut self.context)?;
        self.completed.append(&mut self.context.done);
        Ok(&self.completed)
    }

    fn run(&mut self, now: Time) -> Result<(), SimError> {
        while self.context.queue.peek().is_some_and(|time| time <= now) {
            let Some((time, event)) = self.context.queue.pop() else { break };
            match event {
                Event::Device(event) => self.device.handle(event, &mut self.context)?,
                Event::Complete(slot) => self.context.done.push(slot),
                Event::Arrive | Event::Ready | Event::Driver(_) => {}
            }
            self.context.asleep.clear();
            while let Some((slot, software)) = self.context.resumed.pop() {
                self.context.queue.push(time + software, Event::Complete(slot));
            }
            self.completed.append(&mut self.context.done);
        }
        Ok(())
    }

    /// The laws that the device's books must obey, and that no event was late.
    ///
    /// # Errors
    /// [`SimError::Conservation`].
    pub fn check(&self) -> Result<(), SimError> {
        if self.context.queue.late() != 0 {
            return Err(SimError::Conservation {
                law: "no event is scheduled into the past",
                found: format!("{} were, inside", self.context.queue.late()),
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
    use deepram_media::{Registry, Ssd};
    use deepram_trace::{Op, Request};

    /// Passes everything on.
    struct Outer(NestedDevice<ParallelSsd>, Option<Time>);

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

        fn capacity(&self) -> u64 {
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
