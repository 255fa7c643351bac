"""Reads files of a ringd daemon with `requests`, and checks what its users rely on.

usage: requests_check.py URL TOKEN DIRECTORY   (DIRECTORY is empty and belongs to the check)
"""

import base64
import hashlib
import os
import random
import sys

import requests

url, token, directory = sys.argv[1:4]
path = os.path.join(directory, "f")
session = requests.Session()
session.headers["authorization"] = "Bearer " + token


def get(name=path, method="GET", params=(), headers=None, **more):
    params = {"path": name, **dict(params)}
    return session.request(method, url + "/v1/fs/file", params=params, headers=headers or {}, timeout=20, **more)


def write(content):
    with open(path, "wb") as file:
        file.write(content)
    return content


def a_file_is_read():
    # By default requests asks for gzip, and decodes it.
    for content in [b"", b"short", b"a line\n" * 100_000, random.randbytes(3_000_001)]:
        write(content)
        reply = get()
        reply.raise_for_status()
        assert reply.content == content


def a_large_file_is_streamed():
    content = write(random.randbytes(20_000_001))
    with get(stream=True, headers={"accept-encoding": "identity"}) as reply:
        assert reply.headers["content-length"] == str(len(content))
        assert b"".join(reply.iter_content(65536)) == content
    with get(stream=True) as reply:
        assert b"".join(reply.iter_content(65536)) == content


def what_broke_off_is_resumed():
    content = write(random.randbytes(5_000_000))
    plain = {"accept-encoding": "identity"}
    with get(stream=True, headers=plain) as reply:
        etag = reply.headers["etag"]
        held = next(reply.iter_content(1_000_000))
    rest = get(headers={**plain, "range": "bytes=%d-" % len(held), "if-range": etag})
    assert rest.status_code == 206
    assert rest.headers["content-range"] == "bytes %d-4999999/5000000" % len(held)
    assert held + rest.content == content
    # Of another version nothing is appended.
    content = write(random.randbytes(5_000_000))
    rest = get(headers={**plain, "range": "bytes=%d-" % len(held), "if-range": etag})
    assert rest.status_code == 200 and rest.content == content


def a_resume_at_the_end_has_nothing_more():
    write(b"0123456789")
    reply = get(headers={"range": "bytes=10-"})
    assert reply.status_code == 416 and reply.headers["content-range"] == "bytes */10"


def what_is_held_is_not_sent_again():
    write(b"a line\n" * 1000)
    first = get()
    again = get(headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    again = get(headers={"if-modified-since": first.headers["last-modified"]})
    assert (again.status_code, again.content) == (304, b"")


def a_digest_is_checked():
    wanted = {"want-repr-digest": "sha-256=1"}
    for size in [0, 1000, 1_048_577]:
        content = write(random.randbytes(size))
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        head = get(method="HEAD", headers=wanted)
        assert head.headers["repr-digest"] == "sha-256=:%s:" % digest
        # Behind a large file it is a trailer, which requests passes over.
        assert get(headers=wanted).content == content


def lines_are_read():
    write(b"".join(b"line %d\n" % number for number in range(1, 1001)))
    assert get(params={"last_lines": 2}).text == "line 999\nline 1000\n"
    assert get(params={"start_line": 10, "end_line": 11}).text == "line 10\nline 11\n"
    assert get("/proc/version", params={"last_lines": 1}).text.startswith("Linux")


for check in [
    a_file_is_read,
    a_large_file_is_streamed,
    what_broke_off_is_resumed,
    a_resume_at_the_end_has_nothing_more,
    what_is_held_is_not_sent_again,
    a_digest_is_checked,
    lines_are_read,
]:
    check()
    print(check.__name__)
