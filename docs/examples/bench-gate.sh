#!/bin/sh
# A gate for any CI: is the ringd of this checkout slower than that of another commit?
#
# usage: bench-gate.sh [BASE [MINUTES]]
#
#   BASE      the commit to compare with (default: where HEAD left origin/main, else HEAD~1)
#   MINUTES   how long to measure (default: 5)
#
# The exit status is 0 when nothing is known to be worse, 1 when something is or a byte was wrong, and another one when
# nothing could be compared. The verdict is printed; bench-gate/ holds it as Markdown and JUnit XML, beside the figures.
# $RINGBENCH is the program, if it is built already. $FAIL_ABOVE is how much worse a figure may be (default: 5%).

set -eu

cd "$(git rev-parse --show-toplevel)"
base=${1-} minutes=${2:-5} out=bench-gate

if [ -z "${RINGBENCH-}" ]; then
	cargo build --release --locked -p ringbench
	RINGBENCH=${CARGO_TARGET_DIR:-target}/release/ringbench
fi

status=0
"$RINGBENCH" ci ${base:+--base "$base"} --minutes "$minutes" --fail-above "${FAIL_ABOVE:-5%}" --out "$out" || status=$?

case $status in
0) echo "nothing is known to be worse" ;;
1) echo "something became worse or failed: see $out/comparison.md" ;;
*) echo "nothing could be compared (status $status)" ;;
esac
exit "$status"
