//! The address at which statistics are served: a Unix socket or a loopback TCP port.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// A Unix socket path or a loopback TCP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A socket file, which only its owner can open.
    Unix(PathBuf),
    /// A TCP port of this machine; port 0 is any free one.
    Loopback(SocketAddr),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: needs a path, as in unix:/tmp/run.sock".into()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let form = "expected unix:PATH, or HOST:PORT such as 127.0.0.1:9464";
        let mut found = text.to_socket_addrs().map_err(|error| format!("{error}; {form}"))?;
        let all: Vec<_> = found.by_ref().collect();
        match all.iter().find(|address| !address.ip().is_loopback()) {
            Some(other) => Err(format!(
                "{} is reachable from other machines; use a loopback address: 127.0.0.1, [::1] or localhost",
                other.ip()
            )),
            None => all.first().copied().map(Self::Loopback).ok_or_else(|| form.into()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_and_sockets_are_accepted() {
        for right in ["127.0.0.1:80", "[::1]:9464", "unix:/tmp/x", "127.1.2.3:0"] {
            assert_eq!(right.parse::<ListenAddress>().map(|address| address.to_string()), Ok(right.into()));
        }
        assert!("localhost:9464".parse::<ListenAddress>().is_ok());
        for wrong in ["0.0.0.0:80", "192.0.2.1:80", "[::]:80"] {
            assert!(wrong.parse::<ListenAddress>().unwrap_err().contains("loopback"), "{wrong}");
        }
        for wrong in ["", "unix:", "127.0.0.1", "127.0.0.1:x", "/tmp/x", ":70000"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }
}
