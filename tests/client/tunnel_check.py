"""Opens tunnels through a ringd daemon with a published client of the reference, and checks every byte.

usage: tunnel_check.py URL TOKEN HOST_SEED GUEST_PUBLIC_KEY

The keys are base64. Which handshake is spoken is the client's choice: 0.12 speaks the first, 1.x the second.
"""

import base64
import hashlib
import random
import socket
import sys
import threading

import microvms

url, token, host_seed, guest_key = sys.argv[1:5]
session = microvms.Session.direct(url, token)
identity = microvms.TunnelIdentity(host_seed, guest_key)
SIZE = 64 << 20
NOISE = random.Random(7).randbytes(SIZE)
DIGEST = hashlib.sha256(NOISE).digest()
PATIENCE = 60


def service(serve):
    """A service of the guest: its port, and a list that grows by one entry per connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    met = []

    def accept():
        while True:
            connection, _ = listener.accept()
            met.append(connection)
            connection.settimeout(PATIENCE)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1], met


def exactly(connection, size):
    data = bytearray(size)
    view = memoryview(data)
    while size:
        count = connection.recv_into(view[len(data) - size :], size)
        assert count, f"{size} bytes are missing"
        size -= count
    return data


def take_and_return(connection):
    """Takes SIZE bytes, answers with their digest, then sends as many."""
    with connection:
        taken = exactly(connection, SIZE)
        connection.sendall(hashlib.sha256(taken).digest())
        connection.sendall(NOISE)


def connect(tunnel):
    host, port = tunnel.local_address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
    return connection


def bytes_go_both_ways(verify):
    port, met = service(take_and_return)
    with session.tunnel(port, verify_identity=verify) as tunnel:
        with connect(tunnel) as connection:
            connection.sendall(NOISE)
            assert exactly(connection, 32) == DIGEST, "what came into the guest"
            assert hashlib.sha256(exactly(connection, SIZE)).digest() == DIGEST, "what came out"
            assert connection.recv(1) == b"", "the guest has ended"
        report = tunnel.stop(timeout=PATIENCE)
    assert len(met) == 1
    assert (report.served, report.refused) == (1, 0), report
    assert report.ended == [], [(end.kind, end.code, end.detail) for end in report.ended]
    assert (report.truncated, report.unproven) == (0, 0), report


def questions_are_answered(verify):
    def echo(connection):
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    port, _ = service(echo)
    with session.tunnel(port, verify_identity=verify) as tunnel:
        connections = [connect(tunnel) for _ in range(5)]
        for turn in range(20):
            for number, connection in enumerate(connections):
                question = f"{number}/{turn}".encode()
                connection.sendall(question)
                assert exactly(connection, len(question)) == question
        for connection in connections:
            connection.close()
        report = tunnel.stop(timeout=PATIENCE)
    assert (report.served, report.refused, report.truncated) == (5, 0, 0), report


def refused(verify, code):
    port, met = service(lambda connection: connection.close())
    with session.tunnel(port, verify_identity=verify) as tunnel:
        with connect(tunnel) as connection:
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                pass
        report = tunnel.stop(timeout=PATIENCE)
    assert report.refused == 1, report
    assert [end.code for end in report.ended] == [code], report.ended[0].detail
    assert met == [], "a refused caller causes no dial"


def nothing_listens():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    with session.tunnel(port) as tunnel:
        with connect(tunnel) as connection:
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                pass
        report = tunnel.stop(timeout=PATIENCE)
    assert [end.code for end in report.ended] == [4502], report.ended
    assert str(port) in report.ended[0].detail, report.ended[0].detail


def base64_of(byte):
    return base64.b64encode(bytes([byte]) * 32).decode()


for verify in (None, identity):
    bytes_go_both_ways(verify)
    questions_are_answered(verify)
nothing_listens()
refused(microvms.TunnelIdentity(base64_of(8), guest_key), 4403)
