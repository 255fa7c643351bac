//! A program that counts what it reads is fed.

use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::measure::Reading;
use super::super::{LOAD, Sample, measure, opened, take_turns};
use super::program::{ack, fresh_id, start};
use crate::bench::{Bench, Needs};
use crate::fixture::{MIB, Noise, cksum};
use crate::load::{Connection, Follower, Form, Manner, Request, Script};
use crate::results::{Metric, ScenarioResults};
use crate::target::{Placement, Target};

const CPU: Metric = Metric::low("CPU", "CPU-s/GiB").main();
const RATE: Metric = Metric::high("rate until the program's count was read", "GiB/s");

/// Which way the bytes go in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// POST: base64 in JSON, a block at a time.
    Encoded,
    /// PUT: one body.
    Raw,
}

pub(super) async fn encoded(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    run(bench, out, Way::Encoded).await
}

pub(super) async fn raw(bench: &Bench, out: &mut ScenarioResults) -> Result<()> {
    run(bench, out, Way::Raw).await
}

async fn run(bench: &Bench, out: &mut ScenarioResults, way: Way) -> Result<()> {
    let blocks = bench.sizes.large_mib.min(MOST_MIB);
    out.notes.push(format!(
        "{blocks} MiB. The program is `wc -c`, on one CPU with the server; CPU is the server's alone. In the check it is `cksum`."
    ));
    let targets = opened(bench, out, Needs::GUEST, Placement::ServerCpu).await?;
    let feed = Feed {
        way,
        block: block(),
        blocks,
    };
    take_turns(
        bench,
        out,
        targets,
        async |target| {
            let expected = cksum((0..blocks).map(|_| &feed.block[..]));
            feed.give(bench, target, "cksum", expected).await.map(drop)
        },
        async |target| {
            let expected = format!("{}\n", blocks * MIB);
            let reading = feed.give(bench, target, "wc -c", expected).await?;
            let mut sample = Sample::default();
            sample.put(CPU, reading.cpu_per_gib(blocks * MIB));
            sample.put(RATE, reading.gib_per_s(blocks * MIB));
            sample.put(LOAD, reading.load_share());
            sample.bound_by_load(reading.is_load_bound());
            Ok(sample)
        },
    )
    .await
}

/// What a program is given.
struct Feed {
    way: Way,
    block: Vec<u8>,
    /// How often the block is sent.
    blocks: u64,
}

impl Feed {
    /// Gives it to `program`, whose whole output must be `expected`.
    async fn give(
        &self,
        bench: &Bench,
        target: &Target,
        program: &str,
        expected: String,
    ) -> Result<Reading> {
        let id = fresh_id(bench);
        let script = Rc::new(Script::of(expected.into_bytes()));
        let command: Vec<&str> = program.split(' ').collect();
        let mut connection = target.connect(Manner::Ring)?;
        start(&mut connection, &id, &command, true).await?;
        let mut follower = Follower::new(target.connect(Manner::Ready)?);
        follower.follow(&id, Form::Events, script).await?;
        follower.attached().await?;
        if self.way == Way::Raw {
            probe(target, &id).await?;
        }
        let encoded = serde_json::json!({ "data_b64": STANDARD.encode(&self.block) }).to_string();
        let (reading, ()) = measure(target, async {
            match self.way {
                Way::Encoded => post(&mut connection, &id, encoded.as_bytes(), self.blocks).await?,
                Way::Raw => put(&mut connection, &id, &self.block, self.blocks).await?,
            }
            follower.exited().await
        })
        .await?;
        follower.finished().await?;
        ensure!(follower.account.gaps == 0, "the count is missing");
        ack(&mut connection, &id).await?;
        Ok(reading)
    }
}

/// Finds out whether there is the route for raw bytes, before any are sent.
async fn probe(target: &Target, id: &str) -> Result<()> {
    let route = format!("/v1/exec/{id}/stdin?offset=0");
    let nothing = Request::of("PUT", &route, b"");
    let outcome = target.connect(Manner::Ready)?.demand(nothing, 200).await;
    if outcome.is_err() {
        end(&mut target.connect(Manner::Ready)?, id).await?;
    }
    outcome.map(drop)
}

/// Sends the block `blocks` times, then the end.
async fn post(connection: &mut Connection, id: &str, block: &[u8], blocks: u64) -> Result<()> {
    let route = format!("/v1/exec/{id}/stdin");
    for _ in 0..blocks {
        let request = Request::of("POST", &route, block);
        let answer = connection.demand(request, 200).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
        ensure!(
            answer["written"] == MIB,
            "a MiB was sent, and {} written",
            answer["written"]
        );
    }
    end(connection, id).await
}

/// Closes the standard input.
async fn end(connection: &mut Connection, id: &str) -> Result<()> {
    let route = format!("/v1/exec/{id}/stdin");
    let request = Request::of("POST", &route, br#"{"signal":"eof"}"#);
    connection.demand(request, 200).await.map(drop)
}

/// Sends one body of `blocks` blocks, and the end.
async fn put(connection: &mut Connection, id: &str, block: &[u8], blocks: u64) -> Result<()> {
    let route = format!("/v1/exec/{id}/stdin?offset=0&eof=1");
    let length = blocks * block.len() as u64;
    let request = Request::of("PUT", &route, b"");
    connection.send_head(request, length).await?;
    for _ in 0..blocks {
        connection.send_bytes(block).await?;
    }
    let answer = connection.answer().await?;
    ensure!(
        answer.head.status == 200,
        "PUT {route} answered {}: {}",
        answer.head.status,
        String::from_utf8_lossy(&answer.body)
    );
    let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let offset = answer["offset"]
        .as_u64()
        .context("no offset in an answer")?;
    ensure!(
        offset == length,
        "{length} bytes were sent, and {offset} written"
    );
    Ok(())
}

/// As much as one POST may bring (guest HTTP contract, section 4.6).
fn block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    Noise::new(11).fill(&mut block);
    block
}

const BLOCK_BYTES: usize = 1 << 20;
/// More would show nothing else.
const MOST_MIB: u64 = 256;
