#!/bin/sh
# Installs what the tests need beyond the Rust toolchain, and runs all of them.
set -eu
cd "$(dirname "$0")/.."

need() { # need COMMAND PACKAGE: Debian's package brings the command
    command -v "$1" >/dev/null 2>&1 && return 0
    echo "installing $2 (for $1)"
    if ! apt-get install -y -q "$2" >/dev/null 2>&1; then
        apt-get update -q >/dev/null
        apt-get install -y -q "$2" >/dev/null
    fi
}
need curl curl
need cc gcc
need make make
need tar tar
need bsdtar libarchive-tools
need prlimit util-linux
need mkfs.ext4 e2fsprogs
need nginx nginx-light
need python3 python3
need chromium chromium
need git git
need script bsdutils

if ! target/venv/bin/python -c 'import microvms, requests, schemathesis, openapi_spec_validator' 2>/dev/null; then
    need pip3 python3-venv
    python3 -m venv target/venv
    target/venv/bin/pip install -q --disable-pip-version-check microvms==0.12.0 requests==2.34.2 \
        schemathesis==4.32.5 openapi-spec-validator==0.9.0
fi

# Most tests wait for a daemon of their own, so more of them than there are processors run at once.
export RUST_TEST_THREADS="${RUST_TEST_THREADS-6}"
exec cargo test --workspace --locked "$@"
