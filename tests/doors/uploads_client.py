"""Uploads as a person writes them with Python's own http.client: resumed after interruptions, and in parallel."""

import base64
import hashlib
import http.client
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlsplit

server, token, directory = sys.argv[1:]
data = bytes((at * 7 + at // 251) % 256 for at in range(2_000_000))
whole = "sha-256=:" + base64.b64encode(hashlib.sha256(data).digest()).decode() + ":"


def call(method, target, body=None, **fields):
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=20)
    head = {name.replace("_", "-"): str(value) for name, value in fields.items()}
    connection.request(method, target, body, {"authorization": "Bearer " + token, **head})
    answer = connection.getresponse()
    answer.text = answer.read().decode()
    connection.close()
    return answer


def expect(answer, status):
    assert answer.status == status, (answer.status, answer.getheaders(), answer.text)
    return answer


def patch(upload, offset, part, **fields):
    media = "application/partial-upload"
    return call("PATCH", upload, part, upload_offset=offset, content_type=media, **fields)


def read(name):
    with open(f"{directory}/{name}", "rb") as file:
        return file.read()


def resumed():
    """Sends until it is cut off, asks how far that came, goes on."""
    target = "/v1/fs/file?path=" + quote(f"{directory}/resumed")
    begun = call("PUT", target, data[:1000], upload_complete="?0", upload_length=len(data), repr_digest=whole)
    upload = expect(begun, 201).getheader("location")
    rounds = 0
    while True:
        state = expect(call("HEAD", upload), 204)
        if state.getheader("upload-complete") == "?1":
            break
        at = int(state.getheader("upload-offset"))
        rounds += 1
        if rounds < 4:
            connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=20)
            connection.putrequest("PATCH", upload)
            for name, value in {
                "authorization": "Bearer " + token,
                "content-type": "application/partial-upload",
                "content-length": len(data) - at,
                "upload-offset": at,
                "upload-complete": "?1",
            }.items():
                connection.putheader(name, str(value))
            connection.endheaders()
            connection.send(data[at : at + 300_000])
            connection.close()
        else:
            expect(patch(upload, at, data[at:], upload_complete="?1"), 204)
    assert read("resumed") == data


def parallel():
    """Sends parts in any order, forgets one, is told so, sends it."""
    target = "/v1/uploads?parallel=1&path=" + quote(f"{directory}/parallel")
    upload = expect(call("POST", target, upload_length=len(data)), 201).getheader("location")
    size = 130_000
    parts = list(range(0, len(data), size))
    parts.sort(key=lambda at: at * 7919 % 1009)
    with ThreadPoolExecutor(8) as pool:
        send = lambda at: expect(patch(upload, at, data[at : at + size]), 204)
        list(pool.map(send, parts[1:]))
    refused = expect(call("POST", upload + "/finish"), 409)
    first, last = refused.getheader("upload-missing").removeprefix("bytes=").split("-")
    assert int(first) == parts[0], (first, parts[0])
    expect(patch(upload, int(first), data[int(first) : int(last) + 1]), 204)
    for _ in range(2):
        expect(call("POST", upload + "/finish", repr_digest=whole), 204)
    assert read("parallel") == data


resumed()
parallel()
print("ok")
