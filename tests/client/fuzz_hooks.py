"""What schemathesis checks of each answer of a ringd daemon, and how it sends bodies that it does not know."""

import os
import zlib

import schemathesis
from hypothesis import strategies

BODIES = strategies.one_of(strategies.binary(max_size=2000), strategies.just(b"\0" * 1024))
for media in ["application/x-tar", "application/partial-upload"]:
    schemathesis.openapi.media_type(media, BODIES)


def sometimes(value):
    """True for about half of the values, and always for the same ones."""
    return zlib.crc32(str(value).encode(errors="replace")) % 2 == 0


def known(operation):
    """An id that is there, of what the operation is about. What never ends is not followed."""
    if operation.path.startswith("/v1/uploads"):
        return os.environ["FUZZ_UPLOAD"]
    return {"get": "ended"}.get(operation.method.lower(), "reads")


@schemathesis.hook
def map_path_parameters(ctx, path_parameters):
    if path_parameters and sometimes(path_parameters.get("id")):
        path_parameters["id"] = known(ctx.operation)
    return path_parameters


@schemathesis.hook
def map_query(ctx, query):
    if query and isinstance(query.get("path"), str) and sometimes(query["path"]):
        query["path"] = "tree" if len(query["path"]) % 2 else "tree/file"
        if ctx.operation.path == "/v1/fs/tar" and ctx.operation.method.lower() == "put":
            query["path"] = "/work/tree"
    return query


@schemathesis.hook
def map_body(ctx, body):
    if not isinstance(body, dict) or not sometimes(body):
        return body
    for key, value in {"path": "tree", "from": "tree/file", "names": ["file"]}.items():
        if isinstance(body.get(key), type(value)):
            body[key] = value
    if isinstance(body.get("command"), list):
        # A program that is there; what it is given is the fuzzer's.
        body.update(command=["true", *filter(lambda word: isinstance(word, str), body["command"])], shell=False)
        body.pop("user", None), body.pop("group", None), body.pop("cwd", None)
    return body


@schemathesis.hook
def before_call(ctx, case, kwargs):
    # Where there is something to watch the answer has no end.
    if case.path.endswith("/watch") and isinstance(case.query, dict) and "path" in case.query:
        case.query["path"] = "/no/such/directory"


@schemathesis.check
def no_defect(ctx, response, case):
    """A failure that names the disk is one of the guest; one that names nothing is a defect of the daemon."""
    if response.status_code >= 500:
        text = response.content.decode(errors="replace")
        assert text and "internal error" not in text, f"{response.status_code} {text!r}"


@schemathesis.check
def media_type_is_published(ctx, response, case):
    """As content_type_conformance, but a body that is empty needs no type."""
    if not response.content:
        return
    published = case.operation.definition.raw["responses"].get(str(response.status_code), {}).get("content", {})
    told = response.headers.get("content-type", [""])[0].split(";")[0]
    assert told in published, f"{told!r} is not one of {list(published)}"
