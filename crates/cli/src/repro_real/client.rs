//! A client of key-value stores over loopback: the text protocol of memcached, and Redis' protocol (RESP).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// The protocol of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Memcached,
    Redis,
}

/// A request to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Reads records by their keys.
    Get(Vec<String>),
    /// Writes a record.
    Set(String, Vec<u8>),
}

impl Request {
    /// Appends the request to what is sent.
    pub(super) fn write(&self, protocol: Protocol, to: &mut Vec<u8>) {
        match (protocol, self) {
            (Protocol::Memcached, Self::Get(keys)) => {
                to.extend_from_slice(format!("get {}\r\n", keys.join(" ")).as_bytes());
            }
            (Protocol::Memcached, Self::Set(key, value)) => {
                to.extend_from_slice(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
                to.extend_from_slice(value);
                to.extend_from_slice(b"\r\n");
            }
            (Protocol::Redis, Self::Get(keys)) => {
                to.extend_from_slice(format!("*{}\r\n$4\r\nMGET\r\n", keys.len() + 1).as_bytes());
                for key in keys {
                    to.extend_from_slice(format!("${}\r\n{key}\r\n", key.len()).as_bytes());
                }
            }
            (Protocol::Redis, Self::Set(key, value)) => {
                let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
                to.extend_from_slice(head.as_bytes());
                to.extend_from_slice(value);
                to.extend_from_slice(b"\r\n");
            }
        }
    }
}

fn wrong(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the store replied \"{}\"", line.trim_end()))
}

/// The number at the end of a line.
fn last_number(line: &str) -> io::Result<usize> {
    line.trim_end()
        .rsplit([' ', '$', '*'])
        .next()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| wrong(line))
}

/// Reads the reply to one request. Returns the number of records in it, 0 for a write.
///
/// # Errors
/// The connection fails, or the reply is none of the protocol's.
pub(super) fn read_reply(protocol: Protocol, from: &mut impl BufRead) -> io::Result<usize> {
    let mut records = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the store closed the connection"));
        }
        match protocol {
            Protocol::Memcached if line.starts_with("VALUE ") => {
                skip(from, last_number(&line)? + 2)?;
                records += 1;
            }
            Protocol::Memcached if line == "END\r\n" || line == "STORED\r\n" => return Ok(records),
            Protocol::Redis if line == "+OK\r\n" => return Ok(0),
            Protocol::Redis if line.starts_with('*') => {
                for _ in 0..last_number(&line)? {
                    let mut head = String::new();
                    from.read_line(&mut head)?;
                    match head.as_str() {
                        "$-1\r\n" => {}
                        _ if head.starts_with('$') => {
                            skip(from, last_number(&head)? + 2)?;
                            records += 1;
                        }
                        _ => return Err(wrong(&head)),
                    }
                }
                return Ok(records);
            }
            _ => return Err(wrong(&line)),
        }
    }
}

fn skip(from: &mut impl BufRead, bytes: usize) -> io::Result<()> {
    let copied = io::copy(&mut from.take(bytes as u64), &mut io::sink())?;
    if copied == bytes as u64 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    protocol: Protocol,
    reader: BufReader<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) fn open(port: u16, protocol: Protocol) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { protocol, reader: BufReader::new(stream), buffer: Vec::new() })
    }

    /// Sends requests without waiting for their replies.
    pub(super) fn send(&mut self, requests: &[Request]) -> io::Result<()> {
        self.buffer.clear();
        for request in requests {
            request.write(self.protocol, &mut self.buffer);
        }
        self.reader.get_mut().write_all(&self.buffer)
    }

    /// Receives the reply to the oldest request. Returns the number of records.
    pub(super) fn receive(&mut self) -> io::Result<usize> {
        read_reply(self.protocol, &mut self.reader)
    }

    /// Sends a request and waits for its reply.
    pub(super) fn call(&mut self, request: Request) -> io::Result<usize> {
        self.send(std::slice::from_ref(&request))?;
        self.receive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, request: &Request) -> String {
        let mut bytes = Vec::new();
        request.write(protocol, &mut bytes);
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn requests_are_written_as_the_protocols_say() {
        let get = Request::Get(vec!["a".into(), "bc".into()]);
        let set = Request::Set("a".into(), b"12345".to_vec());
        assert_eq!(written(Protocol::Memcached, &get), "get a bc\r\n");
        assert_eq!(written(Protocol::Memcached, &set), "set a 0 0 5\r\n12345\r\n");
        assert_eq!(written(Protocol::Redis, &get), "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$2\r\nbc\r\n");
        assert_eq!(written(Protocol::Redis, &set), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\n12345\r\n");
    }

    #[test]
    fn replies_are_read_to_their_end() {
        for (protocol, reply, records) in [
            (Protocol::Memcached, "VALUE a 0 5\r\nEND\r\n\r\nVALUE b 0 0\r\n\r\nEND\r\n", 2),
            (Protocol::Memcached, "END\r\n", 0),
            (Protocol::Memcached, "STORED\r\n", 0),
            (Protocol::Redis, "*2\r\n$5\r\n*1\r\n-\r\n$-1\r\n", 1),
            (Protocol::Redis, "+OK\r\n", 0),
        ] {
            let mut from = reply.as_bytes();
            assert_eq!(read_reply(protocol, &mut from).ok(), Some(records), "{reply:?}");
            assert!(from.is_empty(), "{reply:?}");
        }
    }

    #[test]
    fn other_replies_are_errors() {
        for (protocol, reply) in [
            (Protocol::Memcached, ""),
            (Protocol::Memcached, "ERROR\r\n"),
            (Protocol::Memcached, "VALUE a 0 x\r\n"),
            (Protocol::Memcached, "VALUE a 0 5\r\nab"),
            (Protocol::Redis, "-ERR wrong\r\n"),
            (Protocol::Redis, "*1\r\n:5\r\n"),
        ] {
            assert!(read_reply(protocol, &mut reply.as_bytes()).is_err(), "{reply:?}");
        }
    }
}
