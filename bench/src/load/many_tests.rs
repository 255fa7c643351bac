//! Tests of [`super`] against a tiny server on the loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;
use crate::load::{Endpoint, Manner, Request, start};

/// What the server does before it answers a request with the number that was asked for.
type Quirk = fn(u64, &mut String);

/// Answers `GET /N` with N, on every connection until it is closed.
fn serve(quirk: Quirk) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || converse(&stream, quirk));
        }
    });
    address
}

fn converse(mut stream: &TcpStream, quirk: Quirk) {
    let mut asked = None;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if let Some(path) = line.strip_prefix("GET /") {
            asked = path.split(' ').next().and_then(|text| text.parse().ok());
        }
        if !line.is_empty() {
            continue;
        }
        let number: u64 = asked.take().expect("a head has a first line");
        let mut body = number.to_string();
        quirk(number, &mut body);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        // The client may have gone after an answer it did not like.
        let _ = stream.write_all((head + &body).as_bytes());
    }
}

/// Connects so many times.
fn connect(address: SocketAddr, count: usize) -> Vec<Connection> {
    let endpoint = Endpoint {
        address,
        token: String::new(),
    };
    let open = |_| Connection::open(&endpoint, Manner::Ready).expect("the server listens");
    (0..count).map(open).collect()
}

/// Asks for a number, and is content with nothing else.
async fn exchange(connection: &mut Connection, index: usize) -> Result<()> {
    let answer = connection.ask(Request::get(&format!("/{index}"))).await?;
    let expected = index.to_string();
    ensure!(answer.body == expected.as_bytes(), "a byte is wrong");
    Ok(())
}

const LATE: Duration = Duration::from_millis(200);

fn late_once(number: u64, _: &mut String) {
    if number == 5 {
        std::thread::sleep(LATE);
    }
}

#[test]
fn every_request_is_made_once_whatever_the_number_of_connections() {
    for count in [1, 3, 40] {
        let address = serve(|_, _| ());
        let made = RefCell::new(Vec::new());
        let latencies = start(async {
            closed_loop(
                &mut connect(address, count),
                30,
                async |connection, index| {
                    made.borrow_mut().push(index);
                    exchange(connection, index).await
                },
            )
            .await
        });
        assert_eq!(latencies.expect("all is answered").count(), 30);
        let mut made = made.into_inner();
        made.sort_unstable();
        assert_eq!(made, Vec::from_iter(0..30), "{count} connections");
    }
}

#[test]
fn requests_that_were_due_while_the_server_was_away_are_charged() {
    let address = serve(late_once);
    let latencies = start(async { at_rate(&mut connect(address, 1), 200, 1000, exchange).await })
        .expect("all is answered");
    // Those of the first half of the absence waited for at least the other half.
    assert_eq!(latencies.count(), 200);
    assert!(latencies.percentile_us(60.0) >= 95_000.0);
}

#[test]
fn in_a_closed_loop_only_the_late_request_is_charged() {
    let address = serve(late_once);
    let latencies = start(async { closed_loop(&mut connect(address, 1), 20, exchange).await })
        .expect("all is answered");
    assert!(latencies.percentile_us(100.0) >= 195_000.0);
}

#[test]
fn no_request_goes_out_before_it_is_due() {
    let address = serve(|_, _| ());
    let took = start(async {
        let mut connections = connect(address, 2);
        let begun = Instant::now();
        at_rate(&mut connections, 50, 500, exchange).await?;
        Ok(begun.elapsed())
    });
    assert!(took.expect("all is answered") >= Duration::from_millis(98));
}

#[test]
fn a_rate_is_kept_up_until_it_is_told_to_end() {
    let address = serve(|_, _| ());
    let is_over = Cell::new(false);
    let latencies = start(async {
        at_rate_while(
            &mut connect(address, 1),
            |_| !is_over.get(),
            1000,
            async |connection, index| {
                is_over.set(index == 9);
                exchange(connection, index).await
            },
        )
        .await
    });
    assert_eq!(latencies.expect("all is answered").count(), 10);
}

#[test]
fn a_wrong_byte_is_an_error_that_names_the_request() {
    let address = serve(|number, body| {
        if number == 7 {
            body.replace_range(.., "8");
        }
    });
    for count in [1, 4] {
        let outcome =
            start(async { closed_loop(&mut connect(address, count), 30, exchange).await });
        let error = outcome.expect_err("one answer is wrong");
        assert_eq!(format!("{error:#}"), "request 7: a byte is wrong");
    }
}

#[test]
fn the_thread_stays_awake_until_the_work_is_done() {
    let address = serve(|_, _| ());
    let work = async { closed_loop(&mut connect(address, 2), 30, exchange).await };
    let latencies = start(awake(work)).expect("all is answered");
    assert_eq!(latencies.count(), 30);
}
