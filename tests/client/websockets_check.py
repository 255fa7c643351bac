"""Drives a tunnel of a ringd daemon with the published WebSocket client of Python, against an echo on loopback.

usage: websockets_check.py URL TOKEN DIRECTORY
"""

import asyncio
import os
import sys

import websockets
from websockets.asyncio.client import connect

url, token, _ = sys.argv[1:4]
SIZES = [0, 1, 125, 126, 127, 65535, 65536, 1 << 20]


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def tunnel(port, **options):
    address = f"{url.replace('http', 'ws', 1)}/v1/tcp?port={port}"
    headers = {"authorization": f"Bearer {token}"}
    return connect(address, additional_headers=headers, **options)


async def taken(socket, count):
    """So many bytes: a tunnel keeps bytes, not the bounds of messages."""
    got = bytearray()
    while len(got) < count:
        message = await socket.recv()
        assert isinstance(message, bytes), message
        assert 0 < len(message) <= 65536, len(message)
        got += message
    return bytes(got)


async def every_size_comes_back(port):
    async with tunnel(port) as socket:
        for size in SIZES:
            sent = os.urandom(size)
            await socket.send(sent)
            assert await taken(socket, size) == sent, size
    assert socket.close_code == 1000, socket.close_code
    assert socket.close_reason == "", socket.close_reason


async def a_fragmented_message_comes_back(port):
    async with tunnel(port) as socket:
        parts = [os.urandom(size) for size in SIZES]
        await socket.send(parts)
        whole = b"".join(parts)
        assert await taken(socket, len(whole)) == whole


async def text_comes_back_as_bytes(port):
    async with tunnel(port) as socket:
        await socket.send("grüß")
        assert await taken(socket, 6) == "grüß".encode()


async def a_ping_is_answered(port):
    async with tunnel(port) as socket:
        for payload in [b"", b"x", os.urandom(125)]:
            answered = await socket.ping(payload)
            await asyncio.wait_for(answered, 20)


async def compression_is_not_agreed_on_but_the_subprotocol_is(port):
    offered = ["lambda-microvms", "lambda-microvms.port.9000"]
    async with tunnel(port, compression="deflate", subprotocols=offered) as socket:
        assert socket.subprotocol == "lambda-microvms", socket.subprotocol
        assert socket.protocol.extensions == [], socket.protocol.extensions
        await socket.send(b"plain")
        assert await taken(socket, 5) == b"plain"


async def a_refusal_has_its_reason(_):
    try:
        async with tunnel(0) as socket:
            await socket.recv()
    except websockets.ConnectionClosed as closed:
        assert closed.rcvd.code == 4400, closed
        assert "port 0" in closed.rcvd.reason, closed
    else:
        raise AssertionError("port 0 was dialled")


async def a_missing_token_is_a_401(port):
    address = f"{url.replace('http', 'ws', 1)}/v1/tcp?port={port}"
    try:
        async with connect(address):
            raise AssertionError("nobody asked for a token")
    except websockets.InvalidStatus as refused:
        assert refused.response.status_code == 401, refused


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for check in [
        every_size_comes_back,
        a_fragmented_message_comes_back,
        text_comes_back_as_bytes,
        a_ping_is_answered,
        compression_is_not_agreed_on_but_the_subprotocol_is,
        a_refusal_has_its_reason,
        a_missing_token_is_a_401,
    ]:
        await asyncio.wait_for(check(port), 60)
        print("ok", check.__name__)


asyncio.run(main())
