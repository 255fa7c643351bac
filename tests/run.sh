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

# Of Prometheus only the checker of metrics is needed, not the service and what comes with it.
if ! command -v promtool >/dev/null 2>&1 && [ ! -x target/promtool/promtool ]; then
    echo 'fetching promtool (of the package prometheus)'
    mkdir -p target/promtool
    (
        cd target/promtool
        rm -f ./*.deb
        apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null; apt-get download -q prometheus >/dev/null; }
        dpkg-deb --fsys-tarfile ./*.deb | tar -x -O ./usr/bin/promtool >promtool.part
        chmod 755 promtool.part
        mv promtool.part promtool
        rm -f ./*.deb
    )
fi

if ! target/venv/bin/python -c 'import microvms, requests' 2>/dev/null; then
    need pip3 python3-venv
    python3 -m venv target/venv
    target/venv/bin/pip install -q --disable-pip-version-check microvms==0.12.0 requests==2.34.2
fi

# Most tests wait for a daemon of their own, so more of them than there are processors run at once.
export RUST_TEST_THREADS="${RUST_TEST_THREADS-6}"
exec cargo test --workspace --locked "$@"
