//! Asking a run that listens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::run::Address;

/// How long a transfer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER: u64 = 1 << 20;

/// What the run at this address answers a request for its figures with.
///
/// # Errors
/// Nobody answers there in time, or with something else.
pub(super) fn get(address: &Address) -> anyhow::Result<Vec<u8>> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream)
        }
        Address::Loopback(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask(stream)
        }
    }
}

fn ask(mut stream: impl Read + Write) -> anyhow::Result<Vec<u8>> {
    stream.write_all(b"GET /stats.json HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(ANSWER).read_to_end(&mut bytes)?;
    body(&bytes).map(<[u8]>::to_vec)
}

fn body(bytes: &[u8]) -> anyhow::Result<&[u8]> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes).context("the answer is no HTTP")? {
        httparse::Status::Complete(at) if response.code == Some(200) => Ok(&bytes[at..]),
        httparse::Status::Complete(_) => {
            bail!("the answer is status {}", response.code.unwrap_or_default())
        }
        httparse::Status::Partial => bail!("the answer is cut off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_answer_has_a_body() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}").unwrap(), b"{}");
        for wrong in
            [&b""[..], b"HTTP/1.1 200 OK\r\nA", b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0\r\n\r\n"]
        {
            assert!(body(wrong).is_err());
        }
    }
}
