//! `ringd tunnel` between a client of this machine and a service of the guest, verified and not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::carrier::{Carrier, GUEST, HOST, Plan, bootstrap_with_keys, there_and_back};
use crate::daemon::{Daemon, Setup};
use crate::driver::Driver;
use crate::process::{PATIENCE, status, wait_until};
use crate::scratch::noise;
use crate::service::Service;

both![
    questions_and_answers_go_through,
    an_answer_that_waits_for_the_end_comes,
    sixty_four_mib_come_back_as_they_were,
    sixty_four_mib_come_back_verified,
    the_first_handshake_is_spoken_too,
    many_connections_are_carried_at_once,
    a_reader_that_stalls_holds_the_sender_up,
    standard_input_and_output_are_a_tunnel,
    files_are_standard_input_and_output,
    unix_sockets_are_ends_of_a_tunnel,
    an_idle_tunnel_outlives_its_neighbours,
];

/// A daemon with the token and the keys of the tests.
fn keyed(driver: Driver) -> Daemon {
    let daemon = Daemon::start(driver);
    bootstrap_with_keys(&daemon);
    daemon
}

/// A tunnel of each kind to this port.
fn each(daemon: &Daemon, driver: Driver, port: u16) -> [Plan; 2] {
    let plain = Plan::to(daemon, driver, port);
    let verified = Plan::to(daemon, driver, port).verified(HOST[0], GUEST[1]);
    [plain, verified]
}

fn questions_and_answers_go_through(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::echo();
    for plan in each(&daemon, driver, service.port()) {
        let carrier = plan.start();
        let mut stream = carrier.connect();
        for round in 0..200 {
            let question = format!("SELECT {round};");
            stream
                .write_all(question.as_bytes())
                .expect("it is carried");
            let mut answer = vec![0; question.len()];
            stream.read_exact(&mut answer).expect("the answer comes");
            assert_eq!(answer, question.as_bytes());
        }
    }
}

fn an_answer_that_waits_for_the_end_comes(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::answer_at_the_end();
    let question = noise(300_000);
    let expected = [b"300000 bytes:".as_slice(), &question].concat();
    for plan in each(&daemon, driver, service.port()) {
        let carrier = plan.start();
        let answer = there_and_back(&mut carrier.connect(), &question);
        assert!(answer == expected, "{} bytes came back", answer.len());
        // Nothing to say is an end, too.
        let answer = there_and_back(&mut carrier.connect(), b"");
        assert_eq!(answer, b"0 bytes:");
        assert_eq!(carrier.stderr(), [""; 0]);
    }
}

fn sixty_four_mib_come_back_as_they_were(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::echo();
    large(Plan::to(&daemon, driver, service.port()).start());
}

fn sixty_four_mib_come_back_verified(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::echo();
    let plan = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    large(plan.start());
}

#[track_caller]
fn large(carrier: Carrier) {
    let bytes = noise(64 << 20);
    let back = there_and_back(&mut carrier.connect(), &bytes);
    assert!(back == bytes, "{} bytes came back, or others", back.len());
    assert_eq!(carrier.stderr(), [""; 0]);
}

fn the_first_handshake_is_spoken_too(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::answer_at_the_end();
    let plan = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    let carrier = plan.option("--protocol", "1").start();
    let answer = there_and_back(&mut carrier.connect(), b"hello");
    assert_eq!(answer, b"5 bytes:hello");
}

fn many_connections_are_carried_at_once(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::echo();
    for plan in each(&daemon, driver, service.port()) {
        let carrier = plan.start();
        let mut streams: Vec<TcpStream> = (0..60).map(|_| carrier.connect()).collect();
        // Each is open before the first is used.
        for (number, stream) in streams.iter_mut().enumerate() {
            let line = format!("connection {number}");
            stream.write_all(line.as_bytes()).expect("it is carried");
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let line = format!("connection {number}");
            let mut back = vec![0; line.len()];
            stream.read_exact(&mut back).expect("the answer comes");
            assert_eq!(back, line.as_bytes());
        }
    }
    assert_eq!(service.met(), 120);
}

fn a_reader_that_stalls_holds_the_sender_up(driver: Driver) {
    const TOTAL: usize = 64 << 20;
    let daemon = keyed(driver);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let service = Service::new(move |mut stream| {
        for block in noise(TOTAL).chunks(64 << 10) {
            if stream.write_all(block).is_err() {
                return;
            }
            counted.fetch_add(block.len(), Ordering::SeqCst);
        }
    });
    for plan in each(&daemon, driver, service.port()) {
        sent.store(0, Ordering::SeqCst);
        let carrier = plan.start();
        let mut stream = carrier.connect();
        let mut first = [0; 1];
        stream.read_exact(&mut first).expect("it begins");
        let mut seen = (0, 0);
        wait_until("the sender is held up", || {
            let now = sent.load(Ordering::SeqCst);
            seen = if now == seen.0 {
                (now, seen.1 + 1)
            } else {
                (now, 0)
            };
            seen.1 == 50
        });
        assert!(seen.0 < TOTAL / 2, "{} bytes are held somewhere", seen.0);
        let resident = status(carrier.pid(), "VmRSS");
        let kib: usize = resident.trim_end_matches(" kB").parse().expect("a number");
        assert!(kib < 32 << 10, "the carrier has {resident}");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("it goes on");
        assert!(rest == noise(TOTAL)[1..], "{} bytes came", rest.len());
    }
}

fn standard_input_and_output_are_a_tunnel(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::answer_at_the_end();
    let question = noise(1 << 20);
    let expected = [format!("{} bytes:", 1 << 20).as_bytes(), &question].concat();
    for plan in each(&daemon, driver, service.port()) {
        let output = plan.option("--local", "-").run(&question);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout == expected, "{} bytes", output.stdout.len());
        assert_eq!(output.stderr, b"");
    }
}

fn files_are_standard_input_and_output(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::answer_at_the_end();
    let plan = Plan::to(&daemon, driver, service.port()).option("--local", "-");
    let (input, output) = (plan.path("in"), plan.path("out"));
    std::fs::write(&input, "from a file").expect("there is room");
    let ended = plan.clone().run_between(&input, &output);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let came = std::fs::read_to_string(&output).expect("it was made");
    assert_eq!(came, "11 bytes:from a file");
}

fn unix_sockets_are_ends_of_a_tunnel(driver: Driver) {
    let setup = Setup::new(driver);
    let path = setup.path("door.sock");
    let daemon = setup.listen(format!("unix://{}", path.display())).start();
    bootstrap_with_keys(&daemon);
    let service = Service::answer_at_the_end();
    let plan = Plan::to(&daemon, driver, service.port()).verified(HOST[0], GUEST[1]);
    let local = plan.path("local.sock");
    let carrier = plan.start_at(&format!("unix://{}", local.display()));
    let mut stream = UnixStream::connect(&local).expect("it accepts connections");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket takes a timeout");
    stream.write_all(b"hello").expect("it is carried");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer comes");
    assert_eq!(answer, b"5 bytes:hello");
    assert_eq!(carrier.stderr(), [""; 0]);
}

fn an_idle_tunnel_outlives_its_neighbours(driver: Driver) {
    let daemon = keyed(driver);
    let service = Service::echo();
    for plan in each(&daemon, driver, service.port()) {
        let carrier = plan.start();
        let mut idle = carrier.connect();
        idle.write_all(b"a").expect("it is carried");
        idle.read_exact(&mut [0]).expect("it is open");
        let others: Vec<_> = (0..8)
            .map(|_| {
                let mut stream = carrier.connect();
                thread::spawn(move || there_and_back(&mut stream, b"short"))
            })
            .collect();
        for other in others {
            assert_eq!(other.join().expect("no panic"), b"short");
        }
        idle.write_all(b"b").expect("it is carried");
        let mut back = [0];
        idle.read_exact(&mut back).expect("it is open");
        assert_eq!(&back, b"b");
    }
}
