//! Statistics of a run or of a pool at one moment, or of an interval.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::histogram::Histogram;

/// A counter or gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name in the code, in JSON, and, after a prefix, in Prometheus.
    pub name: &'static str,
    /// What it counts.
    pub label: &'static str,
    /// Whether it is a counter, which only grows.
    pub is_counter: bool,
}

/// A value that is computed from others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Derived {
    /// Its key in JSON.
    pub name: &'static str,
    /// What it is.
    pub label: &'static str,
    /// How it is printed.
    pub form: Form,
    /// The value; `None` as long as there is nothing to compute it from.
    pub value: Option<f64>,
}

/// How a derived value is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A ratio, as a number.
    Ratio,
    /// A share, in percent.
    Share,
}

/// What statistics are about: the metrics that runs have, or those that pools have.
#[derive(Debug)]
pub struct Kind {
    /// Key of the name in JSON: `command` or `pool`.
    pub name_key: &'static str,
    /// First part of the names in Prometheus.
    pub prefix: &'static str,
    /// The reads that the queue depth counts.
    pub reads: &'static str,
    /// Counters and gauges in the order in which they are printed.
    pub metrics: fn() -> Vec<Metric>,
    /// The derived values.
    pub derived: fn(&Statistics) -> Vec<Derived>,
    /// A line that precedes the text.
    pub note: fn(&Statistics) -> Option<&'static str>,
    /// Gauges that the text leaves out, as nothing is left that they could measure.
    pub hidden: fn(&Statistics) -> &'static [&'static str],
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name_key == other.name_key
    }
}

/// Statistics of a run or of a pool at one moment, or of the interval between two moments.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// What they are about.
    pub kind: &'static Kind,
    /// Process id of `deepram run`, or of the process that has the pool open.
    pub pid: u32,
    /// Command line of the program, or the pool's files.
    pub name: String,
    /// Time since the start of the run or the opening of the pool, or length of the interval.
    pub time: Duration,
    /// The counters and gauges.
    pub values: BTreeMap<String, u64>,
    /// Page fault latencies, nanoseconds.
    pub fault_latency: Histogram,
    /// Reads in flight when a read was submitted, that read included.
    pub queue_depth: Histogram,
    /// Process id of each process and its DRAM in use, bytes.
    pub processes: Vec<(u32, u64)>,
}

/// Why a text holds no statistics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

fn error(why: impl Into<String>) -> ParseError {
    ParseError(why.into())
}

impl Statistics {
    /// The counter or gauge of this name; 0 if there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// The derived value of this name.
    #[must_use]
    pub fn derived(&self, name: &str) -> Option<f64> {
        (self.kind.derived)(self).into_iter().find(|derived| derived.name == name)?.value
    }

    /// A counter as a share of `whole`; `None` if `whole` is 0.
    #[must_use]
    pub fn share(&self, part: &str, whole: u64) -> Option<f64> {
        (whole > 0).then(|| self.value(part) as f64 / whole as f64)
    }

    /// Statistics of the interval since `before`: counters are differences, gauges keep their values.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut all = self.clone();
        all.time = self.time.saturating_sub(before.time);
        for Metric { name, .. } in (self.kind.metrics)().into_iter().filter(|metric| metric.is_counter) {
            let difference = self.value(name).saturating_sub(before.value(name));
            all.values.insert(name.into(), difference);
        }
        all.fault_latency = self.fault_latency.since(&before.fault_latency);
        all.queue_depth = self.queue_depth.since(&before.queue_depth);
        all
    }

    /// The statistics as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share: f64| self.fault_latency.quantile(share).map(us);
        let mut all: Map<String, Value> =
            self.values.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
        let derived = (self.kind.derived)(self).into_iter();
        all.extend(derived.map(|Derived { name, value, .. }| (name.to_owned(), Value::from(value))));
        let more = json!({
            "deepram_version": env!("CARGO_PKG_VERSION"),
            "pid": self.pid,
            self.kind.name_key: self.name,
            "seconds": self.time.as_secs_f64(),
            "fault_latency_us": self.fault_latency.counts.iter().map(|(end, count)| (us(*end), count)).collect::<Vec<_>>(),
            "fault_time_us": us(self.fault_latency.sum),
            "fault_us": {
                "mean": self.fault_latency.mean().map(|ns| ns / 1e3),
                "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0),
            },
            "queue_depth": self.queue_depth.counts.iter().collect::<Vec<_>>(),
            "queue_depth_sum": self.queue_depth.sum,
            "queue_depth_mean": self.queue_depth.mean(),
            "process_dram_bytes": self.processes,
        });
        if let Value::Object(more) = more {
            all.extend(more);
        }
        Value::Object(all)
    }

    /// Parses what [`Statistics::json`] makes, of one of these kinds.
    ///
    /// # Errors
    /// The text is not such an object, or comes from another version of deepram.
    pub fn parse(text: &[u8], kinds: &[&'static Kind]) -> Result<Self, ParseError> {
        let all: Value =
            serde_json::from_slice(text).map_err(|why| error(format!("the answer is not JSON: {why}")))?;
        let version = all["deepram_version"].as_str();
        let version = version.ok_or_else(|| error("the answer does not come from deepram"))?;
        if version != env!("CARGO_PKG_VERSION") {
            let why =
                format!("the answer comes from deepram {version}: use the `deepram top` of that version");
            return Err(error(why));
        }
        let number = |value: &Value, name: &str| {
            value.as_u64().ok_or_else(|| error(format!("{name} is not a number")))
        };
        let real = |name: &str| {
            let number = all[name].as_f64().filter(|number| (0.0..1e15).contains(number));
            number.ok_or_else(|| error(format!("{name} is not a number in range")))
        };
        let histogram = |sum: u64, name: &str, factor: f64| {
            let rows: Result<Vec<(f64, u64)>, _> = serde_json::from_value(all[name].clone());
            let rows = rows.map_err(|why| error(format!("{name}: {why}")))?;
            if rows.iter().any(|(end, _)| !(0.0..1e15).contains(end)) {
                return Err(error(format!("{name}: a bucket end is out of range")));
            }
            let counts = rows.into_iter().map(|(end, count)| ((end * factor).round() as u64, count));
            Ok(Histogram { sum, counts: counts.collect() })
        };
        let named = kinds.iter().find_map(|kind| Some((*kind, all[kind.name_key].as_str()?)));
        let (kind, name) = named.ok_or_else(|| error("the answer names neither a command nor a pool"))?;
        let metrics = (kind.metrics)().into_iter();
        let values = metrics.map(|Metric { name, .. }| Ok((name.to_owned(), number(&all[name], name)?)));
        let processes = serde_json::from_value(all["process_dram_bytes"].clone());
        let pid = u32::try_from(number(&all["pid"], "pid")?).map_err(|why| error(format!("pid: {why}")))?;
        Ok(Self {
            kind,
            pid,
            name: name.into(),
            time: Duration::try_from_secs_f64(real("seconds")?)
                .map_err(|why| error(format!("seconds: {why}")))?,
            values: values.collect::<Result<_, ParseError>>()?,
            fault_latency: histogram((real("fault_time_us")? * 1e3).round() as u64, "fault_latency_us", 1e3)?,
            queue_depth: histogram(number(&all["queue_depth_sum"], "queue_depth_sum")?, "queue_depth", 1.0)?,
            processes: processes.map_err(|why| error(format!("process_dram_bytes: {why}")))?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) static SAMPLES: Kind = Kind {
        name_key: "sample",
        prefix: "deepram_sample",
        reads: "Reads",
        metrics: || {
            let metric = |name, label, is_counter| Metric { name, label, is_counter };
            vec![
                metric("faults", "Page faults", true),
                metric("bytes_read", "Read, bytes", true),
                metric("dram_bytes", "DRAM in use, bytes", false),
            ]
        },
        derived: |stats| {
            let value = stats.share("bytes_read", stats.value("faults"));
            vec![Derived {
                name: "bytes_per_fault",
                label: "Bytes read for each fault",
                form: Form::Ratio,
                value,
            }]
        },
        note: |_| None,
        hidden: |_| &[],
    };

    /// Statistics with a value in every part.
    pub(crate) fn sample() -> Statistics {
        let values = [("faults", 40), ("bytes_read", 50), ("dram_bytes", 7 << 12)];
        Statistics {
            kind: &SAMPLES,
            pid: 10,
            name: "a \"name\"\n".into(),
            time: Duration::from_millis(1500),
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            fault_latency: Histogram { sum: 1_500_001, counts: [(1189, 10), (64_000, 30)].into() },
            queue_depth: Histogram { sum: 400, counts: [(1, 10), (64, 5)].into() },
            processes: vec![(11, 3 << 12), (12, 4 << 12)],
        }
    }

    #[test]
    fn json_is_parsed_back_to_the_same_statistics() {
        let stats = sample();
        assert_eq!(Statistics::parse(stats.json().to_string().as_bytes(), &[&SAMPLES]), Ok(stats.clone()));
        assert_eq!(stats.derived("bytes_per_fault"), Some(1.25));
        assert_eq!(
            (&stats.json()["fault_us"]["p99"], &stats.json()["bytes_per_fault"]),
            (&json!(64.0), &json!(1.25))
        );
        assert!(Statistics::parse(stats.json().to_string().as_bytes(), &[]).is_err());
    }

    #[test]
    fn other_text_is_an_error() {
        let right = sample().json();
        for name in [
            "faults",
            "fault_latency_us",
            "queue_depth",
            "pid",
            "sample",
            "seconds",
            "deepram_version",
            "process_dram_bytes",
        ] {
            let mut wrong = right.clone();
            wrong[name] = Value::from(-7.5);
            assert!(Statistics::parse(wrong.to_string().as_bytes(), &[&SAMPLES]).is_err(), "{name}");
        }
        let mut old = right;
        old["deepram_version"] = "0.0.1".into();
        let error = Statistics::parse(old.to_string().as_bytes(), &[&SAMPLES]).unwrap_err();
        assert!(error.to_string().contains("deepram 0.0.1"), "{error}");
        assert!(Statistics::parse(b"<html>", &[&SAMPLES]).is_err());
    }

    #[test]
    fn an_interval_has_the_differences_of_the_counters() {
        let (early, mut late) = (sample(), sample());
        late.values.insert("faults".into(), 60);
        late.time += Duration::from_secs(2);
        let interval = late.since(&early);
        assert_eq!((interval.value("faults"), interval.value("bytes_read")), (20, 0));
        assert_eq!((interval.value("dram_bytes"), interval.time), (7 * 4096, Duration::from_secs(2)));
        assert_eq!(interval.fault_latency.count(), 0);
    }
}
