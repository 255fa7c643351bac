"""Drives a ringd daemon with the published client of the reference, and checks what its users rely on.

usage: check.py URL TOKEN DIRECTORY   (DIRECTORY is empty and belongs to the check)
"""

import io
import os
import sys
import tarfile

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
    files_make_the_round_trip,
    trees_make_the_round_trip,
    processes_are_listed,
]:
    check()
    print(f"ok {check.__name__}")
