//! Addresses of a trace on the devices of a plan.
//!
//! A trace may use several devices, and addresses beyond the end of a simulated one. Then its addresses are
//! laid out anew: the pieces of 256 KiB that it uses follow one another in the order of device and address,
//! so neighbours stay neighbours. This is the layout that `deepram trace record` gives to page faults.

use std::collections::{BTreeMap, BTreeSet};

use deepram_trace::Request;

/// Bytes of a piece.
const PIECE: u64 = 256 << 10;
/// Pieces of one request that are counted: 256 GiB. A longer request is outside every simulated device,
/// which the simulation reports.
const MOST_PIECES: u64 = 1 << 20;

/// The pieces that a trace uses.
#[derive(Debug, Clone, Default)]
pub(super) struct Pieces {
    used: BTreeSet<(u32, u64)>,
    last: Option<(u32, u64)>,
    end: u64,
}

impl Pieces {
    /// Adds the pieces of a request.
    pub(super) fn add(&mut self, request: &Request) {
        if request.len == 0 {
            return;
        }
        let last_byte = request.offset.saturating_add(request.len - 1);
        let first = request.offset / PIECE;
        for piece in first..=(last_byte / PIECE).min(first + MOST_PIECES) {
            if self.last != Some((request.device, piece)) {
                self.last = Some((request.device, piece));
                self.used.insert((request.device, piece));
            }
        }
        self.end = self.end.max(last_byte.saturating_add(1));
    }

    /// The layout of the trace on devices of `capacity` bytes; `None` if the pieces do not fit.
    pub(super) fn layout(&self, capacity: u64) -> Option<Layout> {
        let one_device = self.used.iter().all(|(device, _)| *device == 0);
        if one_device && self.end <= capacity {
            return Some(Layout(None));
        }
        if (self.used.len() as u64).checked_mul(PIECE)? > capacity {
            return None;
        }
        Some(Layout(Some(self.used.iter().copied().zip(0..).collect())))
    }

    /// Bytes of the pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.used.len() as u64 * PIECE
    }
}

/// The new number of each piece; `None` if the addresses stay as they are.
#[derive(Debug, Clone)]
pub(super) struct Layout(Option<BTreeMap<(u32, u64), u64>>);

impl Layout {
    /// Whether the addresses differ from those of the trace.
    pub(super) fn is_new(&self) -> bool {
        self.0.is_some()
    }

    /// The request at its new address. The pieces of a request are neighbours in the new layout too.
    pub(super) fn place(&self, mut request: Request) -> Request {
        if let Some(pieces) = &self.0 {
            let piece = pieces.get(&(request.device, request.offset / PIECE));
            request.offset = piece.map_or(0, |piece| piece * PIECE + request.offset % PIECE);
            request.device = 0;
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use deepram_trace::Op;

    use super::*;

    fn request(device: u32, offset: u64, len: u64) -> Request {
        Request { time_ps: None, device, offset, len, op: Op::Write }
    }

    #[test]
    fn addresses_that_fit_stay_and_others_close_up_in_their_order() {
        let requests = [
            request(0, PIECE - 1, 2),
            request(1, 5, 1),
            request(0, 1 << 40, 3 * PIECE),
            request(1, 7 * PIECE, 1),
        ];
        let mut pieces = Pieces::default();
        pieces.add(&requests[0]);
        assert!(!pieces.layout(2 * PIECE).unwrap().is_new());
        requests.iter().for_each(|request| pieces.add(request));
        assert_eq!(pieces.bytes(), 7 * PIECE);
        let layout = pieces.layout(7 * PIECE).unwrap();
        let placed = requests.map(|request| layout.place(request));
        assert!(placed.iter().all(|request| request.device == 0));
        let offsets = placed.map(|request| request.offset);
        assert_eq!(offsets, [PIECE - 1, 5 * PIECE + 5, 2 * PIECE, 6 * PIECE]);
        assert!(pieces.layout(7 * PIECE - 1).is_none(), "one piece too many");
    }
}
