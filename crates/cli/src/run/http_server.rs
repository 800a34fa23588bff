//! Serves the statistics of a run over HTTP.
//!
//! Each connection carries one request. A thread of its own serves it within a time limit, and the number of
//! connections is bounded, so a slow or silent client delays no other client. The path is looked up in a fixed
//! list; no other part of a request is used.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::stats::StatsSource;
use super::{ListenAddress, StatsFormat, report};

/// Time limit from the connection to the end of the response.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for the client to read the last bytes of the response.
const LINGER: Duration = Duration::from_millis(500);
/// Most connections at once; the server closes any further one.
const CONNECTIONS: usize = 64;
/// Largest request, bytes.
const REQUEST: usize = 8 << 10;
/// Most header fields of a request.
const FIELDS: usize = 64;
/// Pause after a failed `accept`, which means that no descriptor is free.
const PAUSE: Duration = Duration::from_millis(100);

/// Paths, each with its format and content type.
const PATHS: [(&str, StatsFormat, &str); 3] = [
    ("/metrics", StatsFormat::Prometheus, "text/plain; version=0.0.4; charset=utf-8"),
    ("/stats.json", StatsFormat::Json, "application/json"),
    ("/stats", StatsFormat::Full, "text/plain; charset=utf-8"),
];

/// The running server. Dropping it removes the socket file.
pub(super) struct StatsServer {
    /// Path and inode of the socket file.
    file: Option<(PathBuf, u64)>,
}

impl Drop for StatsServer {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.file
            && path.symlink_metadata().is_ok_and(|data| data.ino() == *inode)
        {
            // If the removal fails, the next run reports the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts the server.
///
/// # Errors
/// The address is invalid or in use; the message names it.
pub(super) fn start(address: &ListenAddress, source: StatsSource) -> anyhow::Result<StatsServer> {
    match address {
        ListenAddress::Unix(path) => {
            if path.symlink_metadata().is_ok() {
                bail!(
                    "--listen {address}: {} exists already; remove the file if no run uses it, or give another path",
                    path.display()
                );
            }
            let listener = UnixListener::bind(path).with_context(|| format!("--listen {address}"))?;
            std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
            let inode = path.symlink_metadata()?.ino();
            let server = StatsServer { file: Some((path.clone(), inode)) };
            accept(move || listener.accept().map(|(stream, _)| stream), source)?;
            Ok(server)
        }
        ListenAddress::Loopback(asked) => {
            let listener = TcpListener::bind(asked).with_context(|| format!("--listen {address}"))?;
            if asked.port() == 0 {
                eprintln!("deepram run: listening on {}", listener.local_addr()?);
            }
            accept(move || listener.accept().map(|(stream, _)| stream), source)?;
            Ok(StatsServer { file: None })
        }
    }
}

/// Accepts connections until the process ends.
fn accept<S: Socket>(
    next: impl Fn() -> io::Result<S> + Send + 'static,
    source: StatsSource,
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
            // If no thread can be started, the connection is closed, like one beyond the limit.
            let _ = thread.spawn(move || {
                // An error means that the client closed the connection or exceeded the time limit.
                let _ = serve(socket, &source);
                drop(counted);
            });
        }
    })?;
    Ok(())
}

/// A connection.
trait Socket: Read + Write + Send + 'static {
    /// Sets the time limit of each transfer.
    fn set_timeout(&self, time: Duration) -> io::Result<()>;
    /// Ends the response: closes the sending side.
    fn finish(&self) -> io::Result<()>;
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            fn set_timeout(&self, time: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(time))?;
                self.set_write_timeout(Some(time))
            }

            fn finish(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}
socket!(UnixStream);
socket!(TcpStream);

/// Limits the next transfer to the time left until `end`; an error once that time is over.
fn set_deadline(socket: &impl Socket, end: Instant) -> io::Result<()> {
    match end.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => socket.set_timeout(left),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A rejected request: HTTP status and reason.
struct Rejected(u16, &'static str);

fn serve(mut socket: impl Socket, source: &StatsSource) -> io::Result<()> {
    let end = Instant::now() + TIME_LIMIT;
    let answer = match request(&mut socket, end) {
        Ok(Some(Request { head, path })) => answer(&path, head, source),
        Ok(None) => return Ok(()),
        Err(Rejected(status, why)) => {
            response(status, "text/plain; charset=utf-8", &format!("{why}\n"), false)
        }
    };
    let mut rest = &answer[..];
    while !rest.is_empty() {
        set_deadline(&socket, end)?;
        match socket.write(rest)? {
            0 => return Ok(()),
            n => rest = &rest[n..],
        }
    }
    socket.finish()?;
    // Closing a connection with unread bytes may discard the response.
    let end = Instant::now() + LINGER;
    let mut bytes = [0; 1024];
    loop {
        set_deadline(&socket, end)?;
        if socket.read(&mut bytes)? == 0 {
            return Ok(());
        }
    }
}

struct Request {
    /// The method is HEAD: the response has no body.
    head: bool,
    path: String,
}

/// Reads a request. `None` if the client closes the connection first.
fn request(socket: &mut impl Socket, end: Instant) -> Result<Option<Request>, Rejected> {
    let mut bytes = vec![0; REQUEST];
    let mut len = 0;
    loop {
        if len == REQUEST {
            return Err(Rejected(431, "the request is longer than 8 KiB"));
        }
        let read = set_deadline(socket, end).and_then(|()| socket.read(&mut bytes[len..]));
        match read {
            Ok(0) => return Ok(None),
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Rejected(408, "the request took too long")),
        }
        if let Some(request) = parse(&bytes[..len])? {
            return Ok(Some(request));
        }
    }
}

/// Parses a request. `None` while its header is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Rejected> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Rejected(431, "the request has too many header fields"));
        }
        Err(_) => return Err(Rejected(400, "not an HTTP request")),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Rejected(405, "only GET and HEAD are supported")),
    };
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Request { head, path }))
}

fn answer(path: &str, head: bool, source: &StatsSource) -> Vec<u8> {
    match PATHS.iter().find(|(known, ..)| *known == path) {
        Some((_, form, kind)) => response(200, kind, &report::render(&source.read(), *form), head),
        None => {
            let known = PATHS.map(|(path, ..)| path).join(", ");
            response(404, "text/plain; charset=utf-8", &format!("known paths: {known}\n"), head)
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
        parse(bytes).map(|request| request.map(|request| request.path)).map_err(|Rejected(status, _)| status)
    }

    #[test]
    fn only_complete_and_valid_requests_are_accepted() {
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
