//! Answering requests for a run's figures, over HTTP.
//!
//! Each connection is one request, served by a thread of its own within a time limit, and only so many at once: a
//! client that is slow or silent delays nobody. What is asked for is looked up in a fixed list; nothing of a
//! request gets anywhere else.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::reading::Source;
use super::{Address, Form, report};

/// From the connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the client may take to read the answer's last bytes.
const LINGER: Duration = Duration::from_millis(500);
/// Connections at once; those beyond are closed.
const CONNECTIONS: usize = 64;
/// Bytes of a request, and fields of its head.
const REQUEST: usize = 8 << 10;
const FIELDS: usize = 64;
/// After a failed `accept`: no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// What a request for a path is answered with.
const PATHS: [(&str, Form, &str); 3] = [
    ("/metrics", Form::Prometheus, "text/plain; version=0.0.4; charset=utf-8"),
    ("/stats.json", Form::Json, "application/json"),
    ("/stats", Form::Full, "text/plain; charset=utf-8"),
];

/// Requests are answered; when this is dropped, a socket file is removed.
pub(super) struct Listening {
    /// The socket file, and which one it was.
    file: Option<(PathBuf, u64)>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.file
            && path.symlink_metadata().is_ok_and(|data| data.ino() == *inode)
        {
            // If it cannot be removed, the next run says that it is there.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Answers requests at this address from now on.
///
/// # Errors
/// The address cannot be had: the message says why.
pub(super) fn start(address: &Address, source: Source) -> anyhow::Result<Listening> {
    match address {
        Address::Unix(path) => {
            if path.symlink_metadata().is_ok() {
                bail!(
                    "--listen {address}: {} is there already; remove it if no run uses it, or name another",
                    path.display()
                );
            }
            let listener = UnixListener::bind(path).with_context(|| format!("--listen {address}"))?;
            std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
            let inode = path.symlink_metadata()?.ino();
            let listening = Listening { file: Some((path.clone(), inode)) };
            accept(move || listener.accept().map(|(stream, _)| stream), source)?;
            Ok(listening)
        }
        Address::Loopback(asked) => {
            let listener = TcpListener::bind(asked).with_context(|| format!("--listen {address}"))?;
            if asked.port() == 0 {
                eprintln!("deepram run: listening on {}", listener.local_addr()?);
            }
            accept(move || listener.accept().map(|(stream, _)| stream), source)?;
            Ok(Listening { file: None })
        }
    }
}

/// Takes connections for as long as the process lives.
fn accept<S: Socket>(
    next: impl Fn() -> io::Result<S> + Send + 'static,
    source: Source,
) -> anyhow::Result<()> {
    let thread = std::thread::Builder::new().name("deepram-listen".into());
    let open = Arc::new(());
    thread.spawn(move || {
        loop {
            let Ok(socket) = next() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if Arc::strong_count(&open) > CONNECTIONS {
                continue;
            }
            let (source, counted) = (source.clone(), Arc::clone(&open));
            let thread = std::thread::Builder::new().name("deepram-answer".into());
            // Without a thread the connection is closed, as those beyond the limit are.
            let _ = thread.spawn(move || {
                // The client has gone, or took too long.
                let _ = serve(socket, &source);
                drop(counted);
            });
        }
    })?;
    Ok(())
}

/// A connection.
trait Socket: Read + Write + Send + 'static {
    /// How long a transfer may take.
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// Tells the client that the answer is complete.
    fn end(&self) -> io::Result<()>;
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            fn limit(&self, time: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(time))?;
                self.set_write_timeout(Some(time))
            }

            fn end(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}
socket!(UnixStream);
socket!(TcpStream);

/// Has transfers end at this time.
fn until(socket: &impl Socket, end: Instant) -> io::Result<()> {
    match end.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => socket.limit(left),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What is wrong with a request.
struct Refused(u16, &'static str);

fn serve(mut socket: impl Socket, source: &Source) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let answer = match request(&mut socket, end) {
        Ok(Some(Request { head, path })) => answer(&path, head, source),
        Ok(None) => return Ok(()),
        Err(Refused(status, why)) => {
            response(status, "text/plain; charset=utf-8", &format!("{why}\n"), false)
        }
    };
    let mut rest = &answer[..];
    while !rest.is_empty() {
        until(&socket, end)?;
        match socket.write(rest)? {
            0 => return Ok(()),
            n => rest = &rest[n..],
        }
    }
    socket.end()?;
    // A connection closed with bytes unread may lose the answer.
    let end = Instant::now() + LINGER;
    let mut bytes = [0; 1024];
    loop {
        until(&socket, end)?;
        if socket.read(&mut bytes)? == 0 {
            return Ok(());
        }
    }
}

struct Request {
    /// Only the head of the answer is wanted.
    head: bool,
    path: String,
}

/// Reads a request; none if the client ends without one.
fn request(socket: &mut impl Socket, end: Instant) -> Result<Option<Request>, Refused> {
    let mut bytes = vec![0; REQUEST];
    let mut len = 0;
    loop {
        if len == REQUEST {
            return Err(Refused(431, "the request is longer than 8 KiB"));
        }
        let read = until(socket, end).and_then(|()| socket.read(&mut bytes[len..]));
        match read {
            Ok(0) => return Ok(None),
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Refused(408, "the request took too long")),
        }
        if let Some(request) = parse(&bytes[..len])? {
            return Ok(Some(request));
        }
    }
}

/// The request, if its head is complete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Refused> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refused(431, "the request has too many fields")),
        Err(_) => return Err(Refused(400, "this is no HTTP request")),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refused(405, "only GET and HEAD are answered")),
    };
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Request { head, path }))
}

fn answer(path: &str, head: bool, source: &Source) -> Vec<u8> {
    match PATHS.iter().find(|(known, ..)| *known == path) {
        Some((_, form, kind)) => response(200, kind, &report::render(&source.read(), *form), head),
        None => {
            let known = PATHS.map(|(path, ..)| path).join(", ");
            response(404, "text/plain; charset=utf-8", &format!("known: {known}\n"), head)
        }
    }
}

fn response(status: u16, kind: &str, body: &str, head: bool) -> Vec<u8> {
    let phrase = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        _ => "Request Header Fields Too Large",
    };
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let mut all = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if !head {
        all.push_str(body);
    }
    all.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(bytes: &[u8]) -> Result<Option<String>, u16> {
        parse(bytes).map(|request| request.map(|request| request.path)).map_err(|Refused(status, _)| status)
    }

    #[test]
    fn requests_are_understood_only_when_they_are_whole_and_right() {
        let right = b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(status(right), Ok(Some("/metrics".into())));
        for len in 0..right.len() {
            assert_eq!(status(&right[..len]), Ok(None), "{len}");
        }
        assert_eq!(status(b"HEAD / HTTP/1.0\r\n\r\n"), Ok(Some("/".into())));
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), Err(405));
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01"), Err(400));
        assert_eq!(status(b"GET /metrics HTTP/9.9\r\n\r\n"), Err(400));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS + 1));
        assert_eq!(status(many.as_bytes()), Err(431));
    }
}
