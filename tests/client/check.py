"""Drives a ringd daemon with the published client of the reference, and checks what its users rely on.

usage: check.py URL TOKEN DIRECTORY   (DIRECTORY is empty and belongs to the check)
"""

import asyncio
import contextlib
import io
import os
import socket
import sys
import tarfile
import threading

import microvms

url, token, directory = sys.argv[1:4]
session = microvms.Session.direct(url, token)


def health_is_read():
    health = session.wait_until_ready(timeout=20.0)
    assert health.bootstrapped
    assert health.version
    assert not health.identity_repaired and not health.identity_degraded
    assert health.available_bytes > 0
    assert [hook.hook for hook in health.hooks] == ["run"]
    assert health.hooks_dropped == 0
    assert health.image_env_keys > 0


def a_command_runs_to_its_result():
    result = session.run_sync(["echo", "hello"], timeout=20.0)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", "")
    assert not result.truncated and not result.writers_may_be_alive
    failed = session.run_sync("echo oops >&2; exit 7", shell=True, timeout=20.0)
    assert (failed.exit_code, failed.stderr) == (7, "oops\n")


def a_named_shell_and_user_are_resolved_in_the_guest():
    result = session.run_sync("echo $0; id -un", shell="bash", user="nobody", timeout=20.0)
    assert result.stdout.split() == ["/bin/bash", "nobody"] or result.stdout.split() == [
        "/usr/bin/bash",
        "nobody",
    ], result.stdout


def a_missing_program_is_a_spawn_failure():
    try:
        session.run(["/nonexistent/program"])
    except microvms.MicrovmError as error:
        assert "spawn" in str(error).lower(), error
    else:
        raise AssertionError("a missing program was started")


def a_retried_start_runs_once():
    mark = os.path.join(directory, "runs")
    for _ in range(3):
        session.run(f"echo run >> {mark}", shell=True, exec_id="once")
    session.exec("once").wait(timeout=20.0)
    assert open(mark, encoding="utf-8").read() == "run\n"


def an_exec_is_acked_once():
    handle = session.run(["printf", "x"], exec_id="acked")
    handle.wait(timeout=20.0)
    assert handle.ack().stdout == "x"
    assert handle.poll().phase == "acked"
    try:
        handle.ack()
    except microvms.MicrovmError as error:
        assert "already_acked" in str(error), error
    else:
        raise AssertionError("an exec was acked twice")


def a_running_group_is_killed():
    handle = session.run("sleep 600 & sleep 600", shell=True)
    assert handle.kill()
    result = handle.wait(timeout=20.0)
    assert result.signal == 15, result
    assert not session.kill(handle.exec_id)


def a_timeout_is_told():
    result = session.run_sync(["sleep", "600"], timeout=20.0, timeout_sec=0.2)
    assert result.timed_out and result.signal == 15, result


def output_is_streamed():
    chunks = []
    result = session.run_to_completion(
        "for i in 1 2 3; do echo $i; done", shell=True, on_output=chunks.append
    )
    assert result.exit_code == 0
    assert b"".join(bytes(chunk.data) for chunk in chunks) == b"1\n2\n3\n", chunks


def stdin_reaches_the_command():
    handle = session.run(["cat"], stdin=True)
    handle.write_stdin(b"one ")
    handle.write_stdin(b"two", eof=True)
    assert handle.wait_and_ack(timeout=20.0).stdout == "one two"


def collected(stream):
    """The bytes of each side and the exit of a stream; checks that offsets are contiguous."""
    sides, cursor, exit = {"stdout": b"", "stderr": b""}, None, None
    for event in stream:
        assert exit is None, f"{event} after the exit"
        if event.kind == "output":
            assert cursor is None or event.offset == cursor, (event.offset, cursor)
            cursor = event.end
            sides[event.stream] += bytes(event.data)
        elif event.kind == "exit":
            exit = event
        else:
            raise AssertionError(f"a gap: {event}")
    return sides, exit


def a_stream_tells_both_sides_and_the_exit():
    handle = session.run("printf 'a\\0b\\377'; echo oops >&2; exit 7", shell=True)
    sides, exit = collected(session.exec(handle.exec_id).stream())
    assert sides == {"stdout": b"a\0b\xff", "stderr": b"oops\n"}, sides
    assert (exit.exit_code, exit.signal, exit.timed_out, exit.offset) == (7, None, False, 9), exit
    # It can be told again, also after the ack.
    handle.wait_and_ack(timeout=20.0)
    assert collected(handle.stream())[0] == sides


def a_stream_is_read_while_the_command_runs():
    handle = session.run(["cat"], stdin=True)
    stream = handle.stream()
    for line in [b"one\n", b"two\n", b"three\n"]:
        assert handle.write_stdin(line).written == len(line)
        assert bytes(next(stream).data) == line
    assert handle.close_stdin().eof
    end = next(stream)
    assert (end.kind, end.exit_code, end.offset) == ("exit", 0, 14), end


def a_stream_resumes_at_any_offset():
    data = os.urandom(300_001)
    path = os.path.join(directory, "streamed")
    session.upload_file(path, data)
    handle = session.run(["cat", path])
    first = handle.stream(reconnect=False)
    seen, cursor = b"", 0
    while cursor < 100_000:
        event = next(first)
        seen, cursor = seen + bytes(event.data), event.end
    # The first stream is left where it is, with what it has read ahead.
    sides, exit = collected(session.exec(handle.exec_id).stream(offset=cursor))
    assert seen + sides["stdout"] == data
    assert exit.offset == len(data)
    for offset in [1, 16_384, 299_999, 300_001]:
        sides, exit = collected(handle.stream(offset=offset, error_on_gap=True))
        assert sides["stdout"] == data[offset:] and exit.offset == len(data), offset
    assert b"".join(bytes(e.data) for e in first if e.kind == "output") == data[cursor:]


class Cutter:
    """A proxy in front of the daemon that cuts every connection after some bytes of its answers."""

    def __init__(self, most):
        self.most, self.cuts = most, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        host, port = url.removeprefix("http://").split(":")
        daemon = socket.create_connection((host, int(port)))
        threading.Thread(target=self.ask, args=(client, daemon), daemon=True).start()
        left = self.most
        while left > 0 and (data := daemon.recv(min(left, 4096))):
            client.sendall(data)
            left -= len(data)
        if left == 0:
            self.cuts += 1
        for end in [client, daemon]:
            # A thread that still reads would keep it open. It may have ended by itself.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def ask(self, client, daemon):
        try:
            while data := client.recv(65536):
                daemon.sendall(data)
        except OSError:
            pass  # It was cut.


def a_cut_stream_is_resumed_by_the_client():
    data = os.urandom(300_001)
    path = os.path.join(directory, "cut")
    session.upload_file(path, data)
    handle = session.run(["cat", path])
    cutter = Cutter(100_001)
    through = microvms.Session.direct(cutter.url, token)
    sides, exit = collected(through.exec(handle.exec_id).stream(error_on_gap=True))
    assert sides["stdout"] == data and exit.offset == len(data)
    assert cutter.cuts >= 3, cutter.cuts


def a_gap_is_told_when_output_has_expired():
    # The daemon of this check keeps one MiB.
    total = 3_000_000
    handle = session.run(f"head -c {total} /dev/zero | tr '\\0' x", shell=True)
    handle.wait(timeout=20.0)
    events = list(handle.stream())
    assert events[0].kind == "gap" and events[0].start == 0, events[0]
    assert events[0].end == total - (1 << 20), events[0]
    assert sum(len(e.data) for e in events if e.kind == "output") == 1 << 20
    assert events[-1].kind == "exit" and events[-1].offset == total
    try:
        list(handle.stream(error_on_gap=True))
    except microvms.MicrovmError as error:
        assert str(events[0].end) in str(error), error
    else:
        raise AssertionError("a gap was not told")


def a_spawned_process_has_two_sides():
    process = session.spawn("echo out; echo err >&2; exit 3", shell=True)
    assert b"".join(process.stdout) == b"out\n"
    assert b"".join(process.stderr) == b"err\n"
    result = process.wait(timeout=20.0)
    assert (result.exit_code, result.stdout, process.gaps) == (3, "out\n", []), result


def a_spawned_process_is_fed_and_ends_with_its_input():
    process = session.spawn(["cat"], stdin=True)
    handle = session.exec(process.exec_id)
    handle.write_stdin(b"ping\n")
    assert next(process.stdout) == b"ping\n"
    handle.write_stdin(b"pong\n", eof=True)
    assert b"".join(process.stdout) == b"pong\n"
    assert process.wait(timeout=20.0).exit_code == 0


def a_spawned_process_is_killed():
    process = session.spawn("trap '' HUP; echo up; sleep 600 & sleep 600", shell=True)
    assert next(process.stdout) == b"up\n"
    assert process.kill()
    # Both sides end with it.
    assert b"".join(process.stdout) == b"" and b"".join(process.stderr) == b""
    assert process.wait(timeout=20.0).signal == 15
    assert not process.kill()


def a_retried_spawn_follows_the_same_command():
    first = session.spawn("echo once", shell=True, exec_id="spawned")
    assert b"".join(first.stdout) == b"once\n"
    second = session.spawn("echo twice", shell=True, exec_id="spawned", offset=2)
    assert b"".join(second.stdout) == b"ce\n"


def streams_are_read_side_by_side():
    async def follow(word):
        handle = await session.run_async(f"for i in 1 2 3; do echo {word} $i; done", shell=True)
        return b"".join([bytes(e.data) async for e in handle.stream() if e.kind == "output"])

    async def everybody():
        return await asyncio.gather(*[follow(f"word{number}") for number in range(20)])

    for number, output in enumerate(asyncio.run(everybody())):
        assert output == b"".join(b"word%d %d\n" % (number, i) for i in (1, 2, 3)), output


def files_make_the_round_trip():
    data = os.urandom(3_000_001)
    path = os.path.join(directory, "deep/er/file")
    session.upload_file(path, data, mode="0640")
    assert os.stat(path).st_mode & 0o7777 == 0o640
    assert session.download_file(path) == data
    session.upload_file(path, b"a\nb\nc\n")
    assert session.download_file(path, start_line=2, end_line=3) == b"b\nc\n"
    assert session.file_exists(path)
    assert not session.file_exists(path + "-absent")


def trees_make_the_round_trip():
    archive = io.BytesIO()
    names = ["a", "sub/b", "sub/" + "long" * 40, "ünïcode"]
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            member.mode = 0o755
            tar.addfile(member, io.BytesIO(name.encode()[: len(name)]))
        link = tarfile.TarInfo("sub/link")
        link.type, link.linkname = tarfile.SYMTYPE, "b"
        tar.addfile(link)
    root = os.path.join(directory, "tree")
    session.upload_tar(root, archive.getvalue())
    back = tarfile.open(fileobj=io.BytesIO(session.download_tar(root)))
    found = {os.path.normpath(member.name): member for member in back.getmembers()}
    assert set(names) | {".", "sub", "sub/link"} == set(found), sorted(found)
    assert found["sub/link"].linkname == "b"
    for name in names:
        assert back.extractfile(found[name]).read() == name.encode()[: len(name)]
    local = os.path.join(directory, "local")
    os.mkdir(local)
    downloaded = session.download_dir(root, local, ["**"])
    assert len(downloaded) == len(names), downloaded


def processes_are_listed():
    handle = session.run(["sleep", "600"], exec_id="listed")
    listed = [group for group in session.procs() if group.exec_id == "listed"]
    assert len(listed) == 1 and listed[0].pids == [listed[0].pgid], listed
    handle.kill()
    handle.wait_and_ack(timeout=20.0)


for check in [
    health_is_read,
    a_command_runs_to_its_result,
    a_named_shell_and_user_are_resolved_in_the_guest,
    a_missing_program_is_a_spawn_failure,
    a_retried_start_runs_once,
    an_exec_is_acked_once,
    a_running_group_is_killed,
    a_timeout_is_told,
    output_is_streamed,
    stdin_reaches_the_command,
    a_stream_tells_both_sides_and_the_exit,
    a_stream_is_read_while_the_command_runs,
    a_stream_resumes_at_any_offset,
    a_cut_stream_is_resumed_by_the_client,
    a_gap_is_told_when_output_has_expired,
    a_spawned_process_has_two_sides,
    a_spawned_process_is_fed_and_ends_with_its_input,
    a_spawned_process_is_killed,
    a_retried_spawn_follows_the_same_command,
    streams_are_read_side_by_side,
    files_make_the_round_trip,
    trees_make_the_round_trip,
    processes_are_listed,
]:
    check()
    print(f"ok {check.__name__}")
