//! Twitter's cache traces.
//!
//! `time,key,key size,value size,client,operation,ttl`: time in seconds, counted from the first
//! record. The object is the key (its FNV-1a hash); its size is that of key plus value. `get` and
//! `gets` are reads, `delete` is a trim, and all other operations (set, add, replace, cas, append,
//! prepend, incr, decr) are writes. (libCacheSim exports the same traces in another form, which the
//! `csv` format reads.)

use super::{Clock, LineParser, Parsed, ReadOptions};
use crate::record::{Item, ObjectRef, Op};
use crate::text_fields::{Reason, comma_fields, field_count, fnv1a, shorten, uint};
use deepram_core::units::PS_PER_S;

pub(super) struct Twitter {
    clock: Clock,
}

impl Twitter {
    pub(super) fn new(options: &ReadOptions) -> Twitter {
        Twitter { clock: Clock::new(options, true) }
    }
}

impl LineParser for Twitter {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let (f, n) = comma_fields::<7>(line);
        if n != 7 {
            return Err(field_count(n, "7: time,key,key size,value size,client,operation,ttl"));
        }
        let seconds = uint(f[0], "time")?;
        if f[1].is_empty() {
            return Err("the key is empty".to_string());
        }
        let size = uint(f[2], "key size")?
            .checked_add(uint(f[3], "value size")?)
            .ok_or("key size plus value size passes 2^64")?;
        uint(f[4], "client")?;
        let op = match f[5] {
            b"get" | b"gets" => Op::Read,
            b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => Op::Write,
            b"delete" => Op::Trim,
            other => {
                return Err(format!(
                    "operation is \"{}\", expected get, set, delete or another of memcached's",
                    shorten(other, 24)
                ));
            }
        };
        uint(f[6], "ttl")?;
        let time_ps = self.clock.at(u128::from(seconds) * u128::from(PS_PER_S))?;
        Ok(Parsed::One(Item::Object(ObjectRef { time_ps, id: fnv1a(f[1]), size, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
