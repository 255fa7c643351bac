//! Uploads under way, as the list of them tells.

use ringd::wire::coding::Coding;
use serde_json::{Value, json};

use crate::archive::{archive, file};
use crate::codings::coded;
use crate::daemon::Daemon;
use crate::driver::Driver;
use crate::process::wait_until;
use crate::reply::keys;
use crate::request::{Request, file_at, tar_at};
use crate::scratch::noise;

both![
    nothing_is_under_way_at_first,
    an_upload_is_listed_until_it_ends,
    a_body_in_chunks_has_no_total,
    a_coded_body_is_counted_as_it_comes,
    an_upload_that_breaks_off_is_listed_no_more,
    uploads_are_listed_in_the_order_in_which_they_began,
    the_list_wants_the_token,
];

fn list(daemon: &Daemon) -> Vec<Value> {
    let document = daemon.get("/v1/transfers").is(200).json();
    document["transfers"].as_array().expect("a list").clone()
}

/// Waits until the only upload has received this much, and tells of it.
fn received(daemon: &Daemon, bytes: usize) -> Value {
    wait_until(
        "the bytes are counted",
        || matches!(&list(daemon)[..], [one] if one["received"] == bytes),
    );
    list(daemon)[0].clone()
}

fn nothing_is_under_way_at_first(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let reply = daemon.get("/v1/transfers").is(200);
    assert_eq!(reply.field("content-type"), Some("application/json"));
    assert_eq!(reply.text(), r#"{"transfers":[]}"#);
    daemon.put(file_at(daemon.path("f")), "done").bare(204);
    assert!(list(&daemon).is_empty());
}

fn an_upload_is_listed_until_it_ends(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = archive([file("f", noise(100_000))]);
    for (operation, name, target) in [
        ("file.write", "f", file_at(daemon.path("f"))),
        ("tar.write", "root", tar_at(daemon.path("root"))),
    ] {
        let request = Request::put(target).bearer().body(body.clone());
        let mut connection = daemon.connect();
        connection.send(request.head());
        connection.send(&body[..5000]);
        let one = received(&daemon, 5000);
        assert_eq!(one["operation"], operation);
        assert_eq!(one["path"], json!(daemon.path(name)));
        assert_eq!(one["total"], body.len());
        assert!(one["seconds"].as_f64().is_some_and(|passed| passed >= 0.0));

        assert_eq!(keys(&daemon.get("/v1/transfers").text()), ["transfers"]);
        assert_eq!(one.as_object().map(|object| object.len()), Some(6));
        connection.send(&body[5000..6000]);
        let later = received(&daemon, 6000);
        assert_eq!(later["id"], one["id"]);
        assert!(later["seconds"].as_f64() > one["seconds"].as_f64());
        connection.send(&body[6000..]);
        connection.reply().bare(204);
        assert!(list(&daemon).is_empty());
    }
}

fn a_body_in_chunks_has_no_total(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let request = Request::put(file_at(daemon.path("f"))).bearer();
    let bytes = request.chunks(["abc", "defgh"]).bytes();
    let mut connection = daemon.connect();
    let (most, last) = bytes.split_at(bytes.len() - 1);
    connection.send(most);
    assert_eq!(received(&daemon, 8)["total"], Value::Null);
    connection.send(last);
    connection.reply().bare(204);
    assert!(list(&daemon).is_empty());
}

fn a_coded_body_is_counted_as_it_comes(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let body = coded(Coding::Gzip, &[7; 1_000_000]);
    let request = Request::put(file_at(daemon.path("f"))).bearer();
    let request = request.field("content-encoding", "gzip").body(body.clone());
    let mut connection = daemon.connect();
    connection.send(request.head());
    connection.send(&body[..100]);
    assert_eq!(received(&daemon, 100)["total"], body.len());
    connection.send(&body[100..]);
    connection.reply().bare(204);
    assert!(list(&daemon).is_empty());
}

fn an_upload_that_breaks_off_is_listed_no_more(driver: Driver) {
    let daemon = Daemon::ready(driver);
    for target in [file_at(daemon.path("f")), tar_at(daemon.path("root"))] {
        let request = Request::put(target).bearer().body(noise(100_000));
        let bytes = request.bytes();
        let mut connection = daemon.connect();
        connection.send(&bytes[..bytes.len() - 90_000]);
        wait_until("it is listed", || list(&daemon).len() == 1);
        connection.reset();
        wait_until("it is listed no more", || list(&daemon).is_empty());
    }
    let refused = Request::put(file_at(daemon.path("f"))).bearer();
    let refused = refused.field("content-encoding", "gzip").body("no gzip");
    daemon.call(&refused).explains(400);
    assert!(list(&daemon).is_empty());
}

fn uploads_are_listed_in_the_order_in_which_they_began(driver: Driver) {
    let daemon = Daemon::ready(driver);
    let mut connections = Vec::new();
    for number in 0..5 {
        let target = file_at(daemon.path(&format!("f{number}")));
        let mut connection = daemon.connect();
        connection.send(Request::put(target).bearer().body("body").head());
        wait_until("it is listed", || list(&daemon).len() == number + 1);
        connections.push(connection);
    }
    let paths: Vec<Value> = list(&daemon)
        .iter()
        .map(|one| one["path"].clone())
        .collect();
    let expected = (0..5).map(|number| json!(daemon.path(&format!("f{number}"))));
    assert_eq!(paths, expected.collect::<Vec<_>>());
    connections.remove(2).reset();
    wait_until("one is gone", || list(&daemon).len() == 4);
    let ids: Vec<Option<u64>> = list(&daemon).iter().map(|one| one["id"].as_u64()).collect();
    assert!(
        ids.is_sorted() && ids.iter().all(Option::is_some),
        "{ids:?}"
    );
}

fn the_list_wants_the_token(driver: Driver) {
    let daemon = Daemon::ready(driver);
    daemon.call(&Request::get("/v1/transfers")).bare(401);
    let reply = daemon.call(&Request::post("/v1/transfers").bearer());
    assert_eq!(reply.is(405).field("allow"), Some("GET,HEAD"));
}
