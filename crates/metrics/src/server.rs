//! Serves statistics over HTTP.
//!
//! Each connection carries one request. A thread of its own serves it within a time limit, and the number of
//! connections is bounded, so a slow or silent client delays no other client. The path is looked up in a fixed
//! list; no other part of a request is used.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deepram_linux::signals::spawn;

use crate::listen_address::ListenAddress;
use crate::statistics::Statistics;

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

/// Makes a text of statistics.
type Render = fn(&Statistics) -> String;

/// Paths, each with its text and content type.
const PATHS: [(&str, Render, &str); 3] = [
    ("/metrics", Statistics::prometheus, "text/plain; version=0.0.4; charset=utf-8"),
    ("/stats.json", |stats| format!("{}\n", stats.json()), "application/json"),
    ("/stats", Statistics::full_text, "text/plain; charset=utf-8"),
];

/// Reads the statistics that are served.
pub type Source = Arc<dyn Fn() -> Statistics + Send + Sync>;

/// The running server. Dropping it ends it and removes the socket file; answers under way end within their time limit.
/// A forked child must not drop it.
#[derive(Debug)]
pub struct Server {
    address: ListenAddress,
    listener: OwnedFd,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Inode of the socket file.
    inode: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        // Both ends `accept`. An error means that the socket is not connected, which is right for one that listens.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // The runtime has already reported a panic of this thread.
            let _ = thread.join();
        }
        if let ListenAddress::Unix(path) = &self.address
            && path.symlink_metadata().is_ok_and(|data| data.ino() == self.inode)
        {
            // If the removal fails, the next server reports the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Server {
    /// Starts the server.
    ///
    /// # Errors
    /// The address is invalid or in use.
    pub fn start(address: &ListenAddress, source: Source) -> io::Result<Self> {
        match address {
            ListenAddress::Unix(path) => {
                if path.symlink_metadata().is_ok() {
                    let why = format!(
                        "{} exists already; remove the file if no process listens there, or give another path",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
                }
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
                let inode = path.symlink_metadata()?.ino();
                let accepting = listener.try_clone()?;
                let next = move || accepting.accept().map(|(stream, _)| stream);
                Self::accept(address.clone(), listener.into(), inode, next, source)
            }
            ListenAddress::Loopback(asked) => {
                let listener = TcpListener::bind(asked)?;
                let address = ListenAddress::Loopback(listener.local_addr()?);
                let accepting = listener.try_clone()?;
                let next = move || accepting.accept().map(|(stream, _)| stream);
                Self::accept(address, listener.into(), 0, next, source)
            }
        }
    }

    /// The address, with the port that was chosen for port 0.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Starts the thread that accepts connections until the server is dropped.
    fn accept<S: Socket>(
        address: ListenAddress,
        listener: OwnedFd,
        inode: u64,
        next: impl Fn() -> io::Result<S> + Send + 'static,
        source: Source,
    ) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let open = Arc::new(());
        let thread = spawn("deepram-listen", None, move || {
            while !stop.load(Relaxed) {
                let Ok(socket) = next() else {
                    if !stop.load(Relaxed) {
                        std::thread::sleep(PAUSE);
                    }
                    continue;
                };
                if Arc::strong_count(&open) > CONNECTIONS {
                    continue;
                }
                let (source, counted) = (Arc::clone(&source), Arc::clone(&open));
                // If no thread can be started, the connection is closed, like one beyond the limit.
                let _ = spawn("deepram-answer", None, move || {
                    // An error means that the client closed the connection or exceeded the time limit.
                    let _ = serve(socket, &source);
                    drop(counted);
                });
            }
        })?;
        Ok(Self { address, listener, stopping, thread: Some(thread), inode })
    }
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

fn serve(mut socket: impl Socket, source: &Source) -> io::Result<()> {
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

fn answer(path: &str, head: bool, source: &Source) -> Vec<u8> {
    match PATHS.iter().find(|(known, ..)| *known == path) {
        Some((_, render, kind)) => response(200, kind, &render(&source()), head),
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

    #[test]
    fn a_dropped_server_ends_and_its_address_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let source: Source = Arc::new(crate::statistics::tests::sample);
        for _ in 0..2 {
            let server = Server::start(&ListenAddress::Unix(path.clone()), Arc::clone(&source)).unwrap();
            let error = Server::start(&ListenAddress::Unix(path.clone()), Arc::clone(&source)).unwrap_err();
            assert!(error.to_string().contains("exists already"), "{error}");
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"GET /stats.json HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            let kinds: [&'static _; 1] = [&crate::statistics::tests::SAMPLES];
            assert_eq!(Statistics::parse(body.as_bytes(), &kinds), Ok(source()));
            drop(server);
            assert!(!path.exists());
        }
        let any = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(&any, Arc::clone(&source)).unwrap();
        let address = server.address().clone();
        assert!(Server::start(&address, Arc::clone(&source)).is_err(), "{address} is in use");
        drop(server);
        Server::start(&address, source).unwrap();
    }
}
