"""Asks a confined daemon whatever its OpenAPI document allows, and more, and checks that every answer is published.

usage: fuzz.py SENTINEL URL   (SENTINEL is a file of the host that the daemon must not see)

The number of examples is bounded, and the same things are asked each time.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse

import requests
from openapi_spec_validator import validate

sentinel, url = sys.argv[1:3]
TOKEN = "tok-1"
EXAMPLES = 40
session = requests.Session()


def ask(method, target, **more):
    return session.request(method, url + target, timeout=20, **more)


def bootstrap():
    payload = {"runHookPayload": json.dumps({"agent_token": TOKEN})}
    ask("POST", "/aws/lambda-microvms/runtime/v1/run", json=payload).raise_for_status()
    session.headers["authorization"] = "Bearer " + TOKEN


def run(script):
    request = {"exec_id": script, "command": [script], "shell": True}
    ask("POST", "/v1/exec/start", json=request).raise_for_status()
    return ask("GET", "/v1/exec/" + urllib.parse.quote(script, safe="") + "?wait=10").json()


def at(path):
    return "/v1/fs/file?path=" + urllib.parse.quote(path)


def the_daemon_is_confined():
    assert os.path.exists(sentinel)
    assert ask("GET", at(sentinel)).status_code == 404, "it sees the files of the host"
    names = set(run("ls -A /")["stdout"].split())
    assert names <= {"bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "ringd", "sbin", "tmp", "usr", "work"}, names
    assert run("ls -A /dev")["stdout"].split() == ["null"]
    for path in ["/f", "/etc/passwd", "/usr/f", "/usr/bin/env", "/bin/f", "/lib/f", "/ringd", "/dev/f", "/proc/sys/kernel/hostname"]:
        written = ask("PUT", at(path), data=b"x")
        assert written.status_code >= 400, f"it wrote {path}"
        removed = ask("DELETE", "/v1/fs/path?recursive=1&path=" + path)
        assert removed.status_code >= 400, f"it removed {path}"
    assert ask("DELETE", "/v1/fs/path?recursive=1&path=/usr").status_code >= 400
    assert run("touch /usr/f /etc/f")["exit_code"] != 0
    assert run("id -u; grep ^Cap /proc/self/status")["stdout"].split()[0] == "64321"
    capabilities = run("grep ^Cap /proc/self/status")["stdout"].split()[1::2]
    assert set(capabilities) == {"0" * 16}, capabilities
    interfaces = run("cat /proc/net/dev")["stdout"].splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"], interfaces
    seen = [int(name) for name in run("ls /proc")["stdout"].split() if name.isdigit()]
    assert max(seen) < 1000, f"it sees the processes of the host: {seen}"
    # The one who asks is in sight, and out of reach.
    assert run(f"kill -0 {os.getpid()}")["exit_code"] != 0


def there_is_something_to_ask_about():
    """Execs, files and an upload, which the hooks name in about half of the requests."""
    for exec_id, command in [("ended", ["echo", "text"]), ("reads", ["cat"])]:
        request = {"exec_id": exec_id, "command": command, "stdin": exec_id == "reads"}
        ask("POST", "/v1/exec/start", json=request).raise_for_status()
    ask("PUT", at("tree/file"), data=b"text\n" * 100).raise_for_status()
    begun = ask("POST", "/v1/uploads?path=uploaded")
    begun.raise_for_status()
    os.environ["FUZZ_UPLOAD"] = begun.headers["location"].rsplit("/", 1)[1]


def the_document_is_valid():
    document = ask("GET", "/v1/openapi.json").json()
    validate(document)
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations)) > 30, operations


def every_answer_is_published():
    """Runs schemathesis with the checks below."""
    command = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"),
        "run",
        url + "/v1/openapi.json",
        "--header=authorization: Bearer " + TOKEN,
        "--checks=status_code_conformance,response_schema_conformance,no_defect,media_type_is_published",
        # To end the daemon is not what it is asked for here.
        "--exclude-operation-id=hook.terminate",
        "--phases=examples,coverage,fuzzing",
        f"--max-examples={EXAMPLES}",
        "--generation-deterministic",
        "--request-timeout=20",
        "--suppress-health-check=all",
        "--no-color",
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": os.path.dirname(__file__)}
    with tempfile.TemporaryDirectory() as directory:
        outcome = subprocess.run(command, env=environment, cwd=directory, text=True, capture_output=True)
    print(outcome.stdout[-20_000:], outcome.stderr[-5_000:])
    assert outcome.returncode == 0, f"schemathesis ended with {outcome.returncode}"


bootstrap()
for check in [
    the_daemon_is_confined,
    the_document_is_valid,
    there_is_something_to_ask_about,
    every_answer_is_published,
]:
    check()
    print(f"ok {check.__name__}", flush=True)
assert ask("GET", "/v1/health").status_code == 200, "the daemon serves no more"
