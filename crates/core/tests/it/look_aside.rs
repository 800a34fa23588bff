//! Enumerates every interleaving of processor, link and drive while pages are promoted: no store is lost and
//! no stale line is read. With any one rule of the protocol around the buffer broken, the enumeration must
//! find an error.

use std::collections::{HashSet, VecDeque};

use deepram_core::migration::{InboundLine, LineRoute, Plb, PlbEntry, PlbError, PromotionStart};

const LINES: usize = 2;
const PAGES: usize = 2;
/// Marks a line that holds no data.
const GONE: u8 = u8::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ToDrive {
    /// A load of (page, line), with the version that was stored last when the load was issued.
    Load(usize, usize, u8),
    Store(usize, usize, u8),
    Go(usize),
    Deferred(usize),
    Over(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ToHost {
    Ask(usize),
    Line(usize, usize, u8),
    Loaded(u8, u8),
}

/// The drive's progress in sending a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sending {
    Idle,
    Asked,
    /// The next line to send.
    At(usize),
}

/// The rule that is broken in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The drive sends lines before the host has answered.
    SendsAtOnce,
    /// The drive forgets the page when it has sent the last line.
    ForgetsAtOnce,
    /// The host copies lines that are stale.
    CopiesStale,
    /// Stores to pages in flight go to the drive.
    StoresToDrive,
    /// Loads of pages in flight go to DRAM.
    LoadsFromHost,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    buffer: Plb,
    drive: [[u8; LINES]; PAGES],
    dram: [[u8; LINES]; PAGES],
    /// For each page, whether its page-table entry names DRAM.
    moved: [bool; PAGES],
    stored: [[u8; LINES]; PAGES],
    sending: [Sending; PAGES],
    to_drive: VecDeque<ToDrive>,
    to_host: VecDeque<ToHost>,
    loads: u8,
    stores: u8,
    asks: u8,
}

type Found = Result<(), String>;

impl World {
    fn new(capacity: usize, loads: u8, stores: u8, asks: u8) -> Self {
        Self {
            buffer: Plb::new(capacity, LINES as u8),
            drive: [[0; LINES]; PAGES],
            dram: [[GONE; LINES]; PAGES],
            moved: [false; PAGES],
            stored: [[0; LINES]; PAGES],
            sending: [Sending::Idle; PAGES],
            to_drive: VecDeque::new(),
            to_host: VecDeque::new(),
            loads,
            stores,
            asks,
        }
    }

    fn load(&mut self, page: usize, line: usize, broken: Broken) -> Found {
        self.loads -= 1;
        let floor = self.stored[page][line];
        let mut route = self.buffer.load(page as u64, line as u8).unwrap();
        if broken == Broken::LoadsFromHost && route == Some(LineRoute::Ssd) {
            route = Some(LineRoute::Dram(page as u64));
        }
        if self.moved[page] || matches!(route, Some(LineRoute::Dram(_))) {
            return read(self.dram[page][line], floor);
        }
        self.to_drive.push_back(ToDrive::Load(page, line, floor));
        Ok(())
    }

    fn store(&mut self, page: usize, line: usize, broken: Broken) {
        self.stores -= 1;
        self.stored[page][line] += 1;
        let version = self.stored[page][line];
        let mut route = self.buffer.store(page as u64, line as u8).unwrap();
        if broken == Broken::StoresToDrive {
            route = None;
        }
        if self.moved[page] || matches!(route, Some(LineRoute::Dram(_))) {
            self.dram[page][line] = version;
        } else {
            self.to_drive.push_back(ToDrive::Store(page, line, version));
        }
    }

    /// The drive processes the next message that has reached it.
    fn drive_takes(&mut self) -> Found {
        match self.to_drive.pop_front() {
            Some(ToDrive::Load(page, line, floor)) => {
                self.to_host.push_back(ToHost::Loaded(self.drive[page][line], floor));
            }
            Some(ToDrive::Store(page, line, version)) => {
                if self.drive[page][line] == GONE {
                    return Err(format!("version {version} was stored to a page that has left the drive"));
                }
                self.drive[page][line] = version;
            }
            Some(ToDrive::Go(page)) if self.sending[page] == Sending::Asked => {
                self.sending[page] = Sending::At(0);
            }
            Some(ToDrive::Deferred(page)) => self.sending[page] = Sending::Idle,
            Some(ToDrive::Over(page)) => self.drive[page] = [GONE; LINES],
            Some(ToDrive::Go(_)) | None => {}
        }
        Ok(())
    }

    fn send(&mut self, page: usize, line: usize, broken: Broken) {
        self.to_host.push_back(ToHost::Line(page, line, self.drive[page][line]));
        self.sending[page] = Sending::At(line + 1);
        if broken == Broken::ForgetsAtOnce && line + 1 == LINES {
            self.drive[page] = [GONE; LINES];
        }
    }

    /// The host processes the next message that has reached it.
    fn host_takes(&mut self, broken: Broken) -> Found {
        match self.to_host.pop_front() {
            Some(ToHost::Ask(page)) => {
                self.to_drive.push_back(match self.buffer.begin(page as u64, page as u64).unwrap() {
                    PromotionStart::Started => ToDrive::Go(page),
                    PromotionStart::Deferred => ToDrive::Deferred(page),
                });
            }
            Some(ToHost::Line(page, line, version)) => {
                let inbound = self.buffer.inbound(page as u64, line as u8).map_err(|e| e.to_string())?;
                if broken == Broken::CopiesStale || matches!(inbound, InboundLine::Copy(_)) {
                    self.dram[page][line] = version;
                }
                if line + 1 == LINES {
                    self.buffer.finish(page as u64).map_err(|e| e.to_string())?;
                    self.moved[page] = true;
                    self.to_drive.push_back(ToDrive::Over(page));
                }
            }
            Some(ToHost::Loaded(version, floor)) => return read(version, floor),
            None => {}
        }
        Ok(())
    }

    /// Returns every possible successor state.
    fn successors(&self, broken: Broken) -> Vec<Result<World, String>> {
        let mut all = Vec::new();
        let mut step = |change: &mut dyn FnMut(&mut World) -> Found| {
            let mut next = self.clone();
            let found = change(&mut next);
            all.push(found.map(|()| next));
        };
        for page in 0..PAGES {
            for line in 0..LINES {
                if self.loads > 0 {
                    step(&mut |world| world.load(page, line, broken));
                }
                if self.stores > 0 {
                    step(&mut |world| {
                        world.store(page, line, broken);
                        Ok(())
                    });
                }
            }
            match self.sending[page] {
                Sending::Idle if self.asks > 0 => step(&mut |world| {
                    world.asks -= 1;
                    world.to_host.push_back(ToHost::Ask(page));
                    let at_once = broken == Broken::SendsAtOnce;
                    world.sending[page] = if at_once { Sending::At(0) } else { Sending::Asked };
                    Ok(())
                }),
                Sending::At(line) if line < LINES => step(&mut |world| {
                    world.send(page, line, broken);
                    Ok(())
                }),
                Sending::Idle | Sending::Asked | Sending::At(_) => {}
            }
        }
        if !self.to_drive.is_empty() {
            step(&mut |world| world.drive_takes());
        }
        if !self.to_host.is_empty() {
            step(&mut |world| world.host_takes(broken));
        }
        all
    }

    /// Checks that, with no message in flight, every line is where its page's entry says and has the version
    /// stored last.
    fn at_rest(&self) -> Found {
        if !self.to_drive.is_empty() || !self.to_host.is_empty() || !self.buffer.is_empty() {
            return Ok(());
        }
        for page in 0..PAGES {
            let held = if self.moved[page] { &self.dram[page] } else { &self.drive[page] };
            if *held != self.stored[page] {
                return Err(format!("page {page} holds {held:?}, not the stored {:?}", self.stored[page]));
            }
        }
        Ok(())
    }
}

fn read(version: u8, floor: u8) -> Found {
    if version == GONE || version < floor {
        return Err(format!("version {version} was read although {floor} had been stored"));
    }
    Ok(())
}

/// Returns the number of states reached and of promotions that ended or were deferred; or a description of
/// the error.
fn explore(start: World, broken: Broken) -> Result<(usize, usize, usize), String> {
    let mut seen = HashSet::new();
    let mut open = vec![start];
    let (mut moved, mut deferred) = (0, 0);
    while let Some(world) = open.pop() {
        world.at_rest()?;
        for next in world.successors(broken) {
            let next = next?;
            if seen.insert(next.clone()) {
                moved += usize::from(next.moved.contains(&true));
                deferred += usize::from(next.to_drive.iter().any(|m| matches!(m, ToDrive::Deferred(_))));
                open.push(next);
            }
        }
    }
    Ok((seen.len(), moved, deferred))
}

#[test]
fn in_no_order_of_events_is_a_store_lost_or_a_stale_line_read() {
    for (capacity, loads, stores, asks) in [(1, 1, 2, 2), (2, 1, 2, 2), (1, 0, 3, 2), (1, 2, 1, 2)] {
        let (states, moved, deferred) =
            explore(World::new(capacity, loads, stores, asks), Broken::Nothing).unwrap();
        assert!(states > 10_000 && moved > 1000, "{states} states, pages moved in {moved}");
        assert_eq!(deferred > 0, capacity == 1, "{deferred}");
    }
}

#[test]
fn each_broken_rule_loses_a_store_or_reads_a_stale_line_in_some_order() {
    for broken in [
        Broken::SendsAtOnce,
        Broken::ForgetsAtOnce,
        Broken::CopiesStale,
        Broken::StoresToDrive,
        Broken::LoadsFromHost,
    ] {
        let found = explore(World::new(2, 1, 2, 1), broken);
        assert!(found.is_err(), "{broken:?} was not found: {found:?}");
    }
}

#[test]
fn an_entry_follows_its_lines_and_a_full_buffer_defers() {
    let mut buffer = Plb::new(2, 3);
    assert_eq!(buffer.begin(7, 70), Ok(PromotionStart::Started));
    assert_eq!(buffer.begin(7, 71), Err(PlbError::AlreadyInFlight { ssd_page: 7 }));
    assert_eq!(buffer.begin(8, 80), Ok(PromotionStart::Started));
    assert_eq!(buffer.begin(9, 90), Ok(PromotionStart::Deferred));
    assert_eq!((buffer.load(9, 0), buffer.store(9, 0)), (Ok(None), Ok(None)));
    assert_eq!(buffer.load(7, 1), Ok(Some(LineRoute::Ssd)));
    assert_eq!(buffer.store(7, 1), Ok(Some(LineRoute::Dram(70))));
    assert_eq!(buffer.load(7, 1), Ok(Some(LineRoute::Dram(70))));
    assert_eq!(buffer.inbound(7, 0), Ok(InboundLine::Copy(70)));
    assert_eq!(buffer.inbound(7, 1), Ok(InboundLine::Drop));
    assert_eq!(buffer.finish(7), Err(PlbError::Unfinished { ssd_page: 7, copied_lines: 0b011 }));
    assert_eq!(buffer.inbound(7, 2), Ok(InboundLine::Copy(70)));
    assert_eq!(buffer.finish(7), Ok(PlbEntry { ssd_page: 7, dram_page: 70, copied_lines: 0b111 }));
    assert_eq!(buffer.inbound(7, 0), Err(PlbError::NotInFlight { ssd_page: 7 }));
    assert_eq!(buffer.load(8, 3), Err(PlbError::NoSuchLine { line: 3, lines: 3 }));
    assert_eq!(buffer.begin(9, 90), Ok(PromotionStart::Started));
    assert_eq!((buffer.len(), buffer.is_full(), buffer.get(7)), (2, true, None));
    let mut wide = Plb::new(Plb::ENTRIES, 64);
    wide.begin(0, 0).unwrap();
    assert!((0..64).all(|line| wide.inbound(0, line) == Ok(InboundLine::Copy(0))));
    assert_eq!(wide.finish(0).unwrap().copied_lines, u64::MAX);
}
