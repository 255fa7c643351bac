//! Tunnels to Unix sockets: off by default, and only where the operator allows it, whatever links there are.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::PATIENCE;
use crate::request::escaped;
use crate::websocket::{WebSocket, read, read_to_end, upgrade};

both![
    a_socket_is_refused_unless_it_is_allowed,
    a_socket_or_a_directory_can_be_allowed,
    links_are_followed_before_a_path_is_judged,
    a_path_that_is_no_plain_path_is_malformed,
    a_socket_that_nobody_listens_on_is_4502,
    a_long_path_can_be_dialled,
    a_guest_that_refuses_a_write_is_1000,
    a_setting_that_is_no_path_stops_the_start,
];

fn target(path: impl AsRef<Path>) -> String {
    use std::os::unix::ffi::OsStrExt;
    format!(
        "/v1/tcp?unix={}",
        escaped(path.as_ref().as_os_str().as_bytes())
    )
}

fn listen(path: &Path) -> UnixListener {
    UnixListener::bind(path).expect("the scratch directory is ours")
}

fn accept(listener: &UnixListener) -> UnixStream {
    let (stream, _) = listener.accept().expect("somebody connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Checks that this path is relayed to.
#[track_caller]
fn leads(daemon: &Daemon, path: &Path, listener: &UnixListener) {
    let mut socket = WebSocket::open(daemon, target(path));
    let mut service = accept(listener);
    socket.send("there");
    assert_eq!(read(&mut service, 5), b"there");
    service.write_all(b"and back").expect("the daemon reads");
    assert_eq!(socket.take(8), b"and back");
    drop(service);
    socket.parts(1000, "");
}

#[track_caller]
fn is_denied(daemon: &Daemon, path: &Path) {
    let reply = daemon.call(&upgrade(target(path)));
    reply.refuses(403, "permission_denied");
}

fn a_socket_is_refused_unless_it_is_allowed(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let path = daemon.path("s");
    let _listener = listen(&path);
    let reply = daemon.call(&upgrade(target(&path)));
    let detail = reply.refuses(403, "permission_denied").json()["detail"].to_string();
    assert!(detail.contains("--tunnel-unix"), "{detail}");
    // The token comes first.
    let mut connection = daemon.connect();
    let text = String::from_utf8(upgrade(target(&path)).bytes()).expect("it is a text");
    connection.send(text.replace("Bearer", "Basic"));
    connection.reply().bare(401);
}

fn a_socket_or_a_directory_can_be_allowed(driver: Driver) {
    let setup = Setup::new(driver);
    let (one, all) = (setup.path("one"), setup.path("all"));
    fs::create_dir_all(all.join("deep")).expect("the scratch directory is ours");
    let allowed = format!("{},{}", one.display(), all.display());
    let inside = listen(&all.join("deep/s"));
    let only = listen(&one);
    let beside = setup.path("one-more");
    let _more = listen(&beside);
    let daemon = setup.flag("--tunnel-unix", allowed).ready();
    leads(&daemon, &one, &only);
    leads(&daemon, &all.join("deep/s"), &inside);
    is_denied(&daemon, &beside);
    is_denied(&daemon, Path::new("/"));
    is_denied(&daemon, Path::new("/nonexistent/socket"));
}

fn links_are_followed_before_a_path_is_judged(driver: Driver) {
    let setup = Setup::new(driver);
    let (inside, outside) = (setup.path("in"), setup.path("out"));
    for directory in [&inside, &outside] {
        fs::create_dir(directory).expect("the scratch directory is ours");
    }
    let good = listen(&inside.join("s"));
    let _secret = listen(&outside.join("s"));
    symlink(outside.join("s"), inside.join("to-secret")).expect("it is ours");
    symlink(&outside, inside.join("dir")).expect("it is ours");
    symlink(&inside, setup.path("alias")).expect("it is ours");
    let allowed = setup.path("alias").display().to_string();
    let daemon = setup.flag("--tunnel-unix", allowed).ready();
    is_denied(&daemon, &inside.join("to-secret"));
    is_denied(&daemon, &inside.join("dir/s"));
    is_denied(&daemon, &outside.join("s"));
    leads(&daemon, &inside.join("s"), &good);
    leads(&daemon, &daemon.path("alias/s"), &good);
}

fn a_path_that_is_no_plain_path_is_malformed(driver: Driver) {
    let setup = Setup::new(driver);
    let path = setup.path("s");
    let allowed = path.display().to_string();
    let daemon = setup.flag("--tunnel-unix", allowed).ready();
    let _listener = listen(&path);
    let up = daemon.path("x/../s");
    for path in [Path::new(""), Path::new("s"), Path::new("./s"), &up] {
        let reply = daemon.call(&upgrade(target(path)));
        reply.refuses(400, "malformed_request");
    }
}

fn a_socket_that_nobody_listens_on_is_4502(driver: Driver) {
    let setup = Setup::new(driver);
    let allowed = setup.path("").display().to_string();
    let daemon = setup.flag("--tunnel-unix", allowed).ready();
    let path = daemon.path("s");
    drop(listen(&path));
    WebSocket::open(&daemon, target(&path)).parts(4502, "nothing is listening on /");
    WebSocket::open(&daemon, target(daemon.path("absent")))
        .parts(4502, "nothing is listening on /");
    fs::write(daemon.path("file"), "no socket").expect("the scratch directory is ours");
    WebSocket::open(&daemon, target(daemon.path("file"))).parts(4502, "nothing is listening on /");
}

fn a_long_path_can_be_dialled(driver: Driver) {
    let setup = Setup::new(driver);
    let directory = setup.path(&"long".repeat(40));
    fs::create_dir(&directory).expect("the scratch directory is ours");
    let allowed = directory.display().to_string();
    // The path does not fit an address, so it is bound by its last part.
    let short = setup.path("short");
    let listener = listen(&short);
    fs::rename(&short, directory.join("s")).expect("a socket can be renamed");
    let daemon = setup.flag("--tunnel-unix", allowed).ready();
    leads(&daemon, &directory.join("s"), &listener);
}

fn a_guest_that_refuses_a_write_is_1000(driver: Driver) {
    let setup = Setup::new(driver);
    let path = setup.path("s");
    let allowed = path.display().to_string();
    let listener = listen(&path);
    let daemon = setup.flag("--tunnel-unix", allowed).ready();
    let mut socket = WebSocket::open(&daemon, target(&path));
    let mut service = accept(&listener);
    service.shutdown(Shutdown::Read).expect("it is connected");
    socket.send("refused");
    service
        .write_all(b"what it still says")
        .expect("the daemon reads");
    assert_eq!(socket.parts(1000, ""), b"what it still says");
    assert_eq!(read_to_end(&mut service), Ok(Vec::new()));
}

fn a_setting_that_is_no_path_stops_the_start(driver: Driver) {
    let refusal = Setup::new(driver)
        .flag("--tunnel-unix", "/run,relative")
        .refused();
    assert_eq!(refusal.code, Some(2), "{refusal:?}");
    assert!(refusal.stderr.contains("--tunnel-unix"), "{refusal:?}");
    assert!(refusal.stderr.contains("relative"), "{refusal:?}");
}
