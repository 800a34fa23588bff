//! Requests the statistics of a run or a pool that serves them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, bail};

use deepram_metrics::ListenAddress;

/// Time limit of each transfer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Largest response, bytes.
const RESPONSE: u64 = 1 << 20;

/// Requests `/stats.json` and returns its body.
///
/// # Errors
/// No server responds within the time limit, or the response is not a successful HTTP response.
pub(super) fn get_stats(address: &ListenAddress) -> anyhow::Result<Vec<u8>> {
    match address {
        ListenAddress::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIME_LIMIT))?;
            stream.set_write_timeout(Some(TIME_LIMIT))?;
            request(stream)
        }
        ListenAddress::Loopback(address) => {
            let stream = TcpStream::connect_timeout(address, TIME_LIMIT)?;
            stream.set_read_timeout(Some(TIME_LIMIT))?;
            stream.set_write_timeout(Some(TIME_LIMIT))?;
            request(stream)
        }
    }
}

fn request(mut stream: impl Read + Write) -> anyhow::Result<Vec<u8>> {
    stream.write_all(b"GET /stats.json HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(RESPONSE).read_to_end(&mut bytes)?;
    body(&bytes).map(<[u8]>::to_vec)
}

fn body(bytes: &[u8]) -> anyhow::Result<&[u8]> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes).context("the answer is not HTTP")? {
        httparse::Status::Complete(at) if response.code == Some(200) => Ok(&bytes[at..]),
        httparse::Status::Complete(_) => {
            bail!("the answer has status {}", response.code.unwrap_or_default())
        }
        httparse::Status::Partial => bail!("the answer is incomplete"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_successful_answer_has_a_body() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}").unwrap(), b"{}");
        for wrong in
            [&b""[..], b"HTTP/1.1 200 OK\r\nA", b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0\r\n\r\n"]
        {
            assert!(body(wrong).is_err());
        }
    }
}
