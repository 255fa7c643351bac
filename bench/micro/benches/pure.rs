//! How long the rounds take: `cargo bench -p ringmicro`, a part of a name behind it picks some.

use divan::Bencher;
use divan::counter::BytesCount;
use ringmicro::{Bench, benches};

fn main() {
    divan::main();
}

#[divan::bench(args = benches())]
fn round(bencher: Bencher<'_, '_>, bench: &Bench) {
    let round = (bench.prepare)();
    match bench.bytes {
        0 => bencher.bench_local(round),
        bytes => bencher.counter(BytesCount::new(bytes)).bench_local(round),
    }
}
