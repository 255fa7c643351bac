#!/bin/sh
# Counts the instructions of ringd's pure parts and holds them against instructions.json; --bless renews that.
set -eu
cd "$(dirname "$0")/../.."

if ! command -v valgrind >/dev/null 2>&1; then
    echo 'installing valgrind'
    if ! apt-get install -y -q valgrind >/dev/null 2>&1; then
        apt-get update -q >/dev/null
        apt-get install -y -q valgrind >/dev/null
    fi
fi

cargo build --release --locked -q -p ringmicro
# All members are built together, as for the tests, so that nothing is built twice.
cargo build --workspace --locked -q --bin ringbench
target="${CARGO_TARGET_DIR-target}"
"$target/debug/ringbench" gate --program "$target/release/ringmicro" "$@"
