#!/bin/sh
# Builds a source tree inside a guest, over HTTP alone.
#
# usage: remote-build.sh [TREE [BUILD [ARTIFACT]]]
#
#   TREE      the source tree (default: Debian's source of nasm, more than 1,100 files; where that cannot be
#             fetched, a C program in more than 1,000 files is made)
#   BUILD     the command that builds it, run by /bin/sh in the tree (default: sh build.sh)
#   ARTIFACT  what the build makes, relative to the tree (default: out/answer)
#
# For example, with the source of Lua 5.4 unpacked in ./lua-5.4.8:
#
#   remote-build.sh lua-5.4.8 'make linux' src/lua
#
# Here the guest is this machine: the daemon is started at the beginning and ended at the end. The daemon is $RINGD,
# else target/release/ringd (built first, in a checkout), else ringd from PATH. Tools that are missing are installed
# where that can be done (Debian, as root).

set -eu

main() {
	tree=${1-} build=${2-} artifact=${3-} expected=
	for tool in curl tar diff od cc:gcc make; do
		need "$tool"
	done
	find_ringd

	work=$(mktemp -d)
	trap stop EXIT
	trap 'exit 1' HUP INT TERM

	if [ -z "$tree" ]; then
		tree=$work/source
		fetch_source "$tree" || make_source "$tree"
	fi
	build=${build:-sh build.sh} artifact=${artifact:-out/answer}
	[ -d "$tree" ] || fail "$tree is not a directory"
	say "$(find "$tree" -type f | wc -l | tr -d ' ') files to build"

	start_daemon
	bootstrap
	upload
	compare_trees
	build_inside
	fetch_artifact
	fetch_tree
	stop_daemon
	say "done"
}

# need COMMAND[:PACKAGE]: finds a tool, or installs it.
need() {
	command=${1%%:*} package=${1##*:}
	if ! command -v "$command" >/dev/null; then
		say "installing $package"
		{ apt-get install -y -q "$package" || { apt-get update && apt-get install -y -q "$package"; }; } >/dev/null 2>&1
	fi
	command -v "$command" >/dev/null || fail "$command is needed and could not be installed"
}

# The daemon: $RINGD, or what is built here, or what is installed.
find_ringd() {
	if [ -n "${RINGD-}" ]; then
		[ -x "$RINGD" ] || fail "RINGD is $RINGD, which cannot be run"
	elif [ -f Cargo.toml ] && command -v cargo >/dev/null; then
		say "building ringd"
		cargo build --release --locked -p ringd
		RINGD=${CARGO_TARGET_DIR-target}/release/ringd
	else
		RINGD=$(command -v ringd) || fail "no ringd: run this in a checkout, or set RINGD"
	fi
}

# The source of nasm from the Debian archive that this machine is set up for.
fetch_source() {
	mkdir -p "$work/apt/lists/partial" "$work/apt/parts" "$work/orig" "$1"
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ ! -f "$list" ] || sed -n 's/^deb /deb-src /p' "$list" >>"$work/apt/parts/source.list"
	done
	for list in /etc/apt/sources.list.d/*.sources; do
		[ ! -f "$list" ] || sed 's/^Types: .*/Types: deb-src/' "$list" >"$work/apt/parts/$(basename "$list")"
	done
	apt="apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$work/apt/parts \
		-o Dir::State::lists=$work/apt/lists -o APT::Sandbox::User=root"
	if ! ($apt update && cd "$work/orig" && $apt source --download-only nasm) >"$work/apt.log" 2>&1; then
		say "Debian's source of nasm cannot be fetched; a program is made instead"
		return 1
	fi
	tar -xf "$work"/orig/*.orig.tar.* -C "$1" --strip-components 1
	build=${build:-'./configure CFLAGS=-O0 >configure.log 2>&1 && make nasm >make.log 2>&1 && ls -l nasm'}
	artifact=${artifact:-nasm} asked=-v expected='NASM version*'
}

# A program of 32 parts, each of 32 files with one function, that adds up what they return.
make_source() {
	awk -v root="$1" '
		function path(part, name) { return root "/part" part "/" name }
		BEGIN {
			for (part = 0; part < 32; part++) {
				system("mkdir -p " root "/part" part)
				unit = ""
				calls = "0"
				for (number = 0; number < 32; number++) {
					id = part * 32 + number
					file = path(part, "f" number ".c")
					printf "long f%d(long x)\n{\n\treturn x * %d;\n}\n", id, id + 1 >file
					close(file)
					unit = unit "#include \"f" number ".c\"\n"
					calls = calls " + f" id "(1)"
				}
				file = path(part, "unit.c")
				printf "%slong part%d(void)\n{\n\treturn %s;\n}\n", unit, part, calls >file
				close(file)
				declared = declared "long part" part "(void);\n"
				sum = sum " + part" part "()"
			}
			file = root "/main.c"
			printf "#include <stdio.h>\n%sint main(void)\n{\n\tprintf(\"%%ld\\n\", 0%s);\n}\n", declared, sum >file
		}'
	cat >"$1/build.sh" <<'END'
set -e
mkdir -p out
for part in part*; do
	cc -O1 -c "$part/unit.c" -o "out/$part.o"
done
cc -O1 main.c out/*.o -o out/answer
echo "built $(ls out/*.o | wc -l) parts"
END
	# 1 + 2 + ... + 1024
	asked='' expected=524800
}

start_daemon() {
	: >"$work/listening"
	"$RINGD" serve --listen tcp://127.0.0.1:0 >"$work/listening" 2>"$work/log" &
	daemon=$!
	tries=0
	until url=$(sed -n 's|^listening tcp://|http://|p' "$work/listening") && [ -n "$url" ]; do
		kill -0 "$daemon" 2>/dev/null || fail "the daemon did not start: $(cat "$work/log")"
		tries=$((tries + 1))
		[ "$tries" -lt 100 ] || fail "the daemon does not say where it listens: $(cat "$work/log")"
		sleep 0.1
	done
	say "the daemon listens on $url"
}

# The first to name a token has the guest; from then on every call must show it.
bootstrap() {
	token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	printf '{"runHookPayload":"{\\"agent_token\\":\\"%s\\",\\"env\\":{\\"PATH\\":\\"%s\\"}}"}' "$token" "$PATH" \
		>"$work/run.json"
	call POST /aws/lambda-microvms/runtime/v1/run -H 'content-type: application/json' -d "@$work/run.json"
	# In a file, so that no list of processes shows it.
	printf 'authorization: Bearer %s\n' "$token" >"$work/authorization"
}

# A tree of any number of files is one request.
upload() {
	guest=$work/guest
	tar -cf "$work/up.tar" -C "$tree" .
	call PUT "/v1/fs/tar?path=$guest" -H 'content-type: application/x-tar' -T "$work/up.tar"
	say "uploaded $(wc -c <"$work/up.tar" | tr -d ' ') bytes"
}

build_inside() {
	script=$(printf '%s' "$build" | sed 's/\\/\\\\/g; s/"/\\"/g')
	printf '{"exec_id":"build","shell":true,"command":["%s"],"cwd":"%s","timeout_sec":1200}' "$script" "$guest" \
		>"$work/start.json"
	call POST /v1/exec/start -H 'content-type: application/json' -d "@$work/start.json"
	until call GET /v1/exec/build && grep -q '"phase":"exited"' "$work/answer"; do
		sleep 0.1
	done
	grep -q '"exit_code":0,' "$work/answer" || fail "the build failed: $(cat "$work/answer")"
	say "built: $(cat "$work/answer")"
	call POST /v1/exec/build/ack
}

fetch_artifact() {
	call GET "/v1/fs/file?path=$guest/$artifact"
	mv "$work/answer" "$work/artifact"
	chmod +x "$work/artifact"
	[ -n "$expected" ] || return 0
	# shellcheck disable=SC2086 # no argument when there is none
	found=$("$work/artifact" $asked) || fail "the artifact does not run"
	case $found in
	$expected) ;;
	*) fail "the artifact says $found instead of $expected" ;;
	esac
	say "the artifact runs and says $found"
}

# What was uploaded must come back as it was.
compare_trees() {
	call GET "/v1/fs/tar?path=$guest"
	mkdir "$work/back"
	tar -xf "$work/answer" -C "$work/back"
	diff -r "$tree" "$work/back" >"$work/differences" || fail "the tree came back changed: $(cat "$work/differences")"
	say "the tree came back as it was"
}

# The tree with all that the build has made.
fetch_tree() {
	call GET "/v1/fs/tar?path=$guest"
	say "downloaded the built tree: $(tar -tf "$work/answer" | wc -l | tr -d ' ') members"
}

stop_daemon() {
	kill "$daemon"
	status=0
	wait "$daemon" || status=$?
	daemon=
	[ "$status" -eq 0 ] || fail "the daemon ended with $status: $(cat "$work/log")"
}

# call METHOD TARGET [curl options]: leaves the body in $work/answer, fails on any status but 2xx.
call() {
	method=$1 target=$2
	shift 2
	[ ! -f "$work/authorization" ] || set -- -H "@$work/authorization" "$@"
	status=$(curl -sS -X "$method" -o "$work/answer" -w '%{http_code}' "$@" "$url$target") ||
		fail "$method $target: no answer; the daemon says: $(cat "$work/log")"
	case $status in
	2??) ;;
	*) fail "$method $target: $status $(cat "$work/answer")" ;;
	esac
}

# Whatever happened, nothing is left running and nothing lies about.
stop() {
	status=$?
	[ -z "${daemon-}" ] || kill "$daemon" 2>/dev/null || true
	[ -z "${work-}" ] || rm -rf "$work"
	exit "$status"
}

say() {
	printf 'remote-build: %s\n' "$*"
}

fail() {
	printf 'remote-build: %s\n' "$*" >&2
	exit 1
}

main "$@"
