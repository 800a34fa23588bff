//! Parameters of the generator.

/// How the requests of one direction are placed. Shares are fractions of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Share of requests that begin with the first page of a recent request.
    pub overlapped: f64,
    /// Share of requests that begin behind the last page of a recent request.
    pub sequential: f64,
    /// Share of requests that leave a gap of one or two pages behind a recent request.
    pub near: f64,
    /// Share of requests that leave a gap of 3 to 16 pages behind a recent request.
    pub far: f64,
    /// Share of the requests above whose recent request is the one before; otherwise it is 2 to 64 requests old.
    pub adjacent: f64,
    /// Share of hot requests among those that begin anywhere else and are not fresh; the rest are cold.
    pub hot: f64,
}

/// Parameters of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Placement of reads.
    pub read: Placement,
    /// Placement of writes.
    pub write: Placement,
    /// Pages of the hot region.
    pub hot_pages: u64,
    /// Exponent of the Zipf distribution over the hot pages.
    pub theta: f64,
}

/// Parameters that the fit has found.
#[derive(Debug)]
pub struct Fitted {
    /// Name of the trace.
    pub trace: &'static str,
    /// The parameters.
    pub model: Model,
    /// Loss of the whole stand-in with the seed of the fit ([`super::fit::loss`]).
    pub loss: f64,
}

/// Number of parameters.
pub const PARAMETERS: usize = 14;

const fn placement([overlapped, sequential, near, far, adjacent, hot]: [f64; 6]) -> Placement {
    Placement { overlapped, sequential, near, far, adjacent, hot }
}

pub(super) const fn fitted(
    trace: &'static str,
    read: [f64; 6],
    write: [f64; 6],
    hot_pages: u64,
    theta: f64,
    loss: f64,
) -> Fitted {
    Fitted { trace, model: Model { read: placement(read), write: placement(write), hot_pages, theta }, loss }
}

impl Placement {
    fn values(&self) -> [f64; 6] {
        [self.overlapped, self.sequential, self.near, self.far, self.adjacent, self.hot]
    }
}

impl Model {
    /// The parameters as numbers: those of reads, of writes, the hot pages, the exponent.
    #[must_use]
    pub fn values(&self) -> [f64; PARAMETERS] {
        let mut all = [0.0; PARAMETERS];
        all[..6].copy_from_slice(&self.read.values());
        all[6..12].copy_from_slice(&self.write.values());
        all[12] = self.hot_pages as f64;
        all[13] = self.theta;
        all
    }

    /// The nearest allowed parameters to these numbers, in the order of [`Model::values`], rounded to four decimals: shares
    /// from 0 to 1, of which those of the classes leave at least 1 % of the requests, 64 to 65,536 hot pages, an exponent
    /// up to 3.
    #[must_use]
    pub fn nearest(values: &[f64; PARAMETERS]) -> Self {
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        let direction = |from: usize| {
            let mut shares: [f64; 6] = std::array::from_fn(|at| values[from + at].clamp(0.0, 1.0));
            let related: f64 = shares[..4].iter().sum();
            if related > 0.99 {
                shares[..4].iter_mut().for_each(|share| *share *= 0.99 / related);
            }
            placement(shares.map(rounded))
        };
        Self {
            read: direction(0),
            write: direction(6),
            hot_pages: values[12].clamp(64.0, 65_536.0).round() as u64,
            theta: rounded(values[13].clamp(0.0, 3.0)),
        }
    }
}
