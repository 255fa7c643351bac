// Drives a tunnel of a ringd daemon with the published WebSocket client of Node, against an echo on loopback.
//
// usage: ws_check.js URL TOKEN DIRECTORY
"use strict";

const assert = require("assert");
const crypto = require("crypto");
const net = require("net");
const WebSocket = require("ws");

const [url, token] = process.argv.slice(2);
const SIZES = [0, 1, 125, 126, 127, 65535, 65536, 1 << 20];

const address = (port) => `${url.replace("http", "ws")}/v1/tcp?port=${port}`;
const headers = { authorization: `Bearer ${token}` };

function open(port, protocols = []) {
  const socket = new WebSocket(address(port), protocols, { headers });
  const box = { socket, held: Buffer.alloc(0), wake: () => {} };
  socket.on("message", (data, isBinary) => {
    assert(isBinary !== false, "a text message came");
    box.held = Buffer.concat([box.held, data]);
    box.wake();
  });
  return new Promise((resolve, reject) => {
    socket.once("open", () => resolve(box));
    socket.once("error", reject);
  });
}

// So many bytes: a tunnel keeps bytes, not the bounds of messages.
async function take(box, count) {
  while (box.held.length < count) {
    await new Promise((resolve) => (box.wake = resolve));
  }
  const taken = box.held.subarray(0, count);
  box.held = box.held.subarray(count);
  return taken;
}

const closed = (socket) =>
  new Promise((resolve) => socket.once("close", (code, reason) => resolve([code, String(reason)])));

async function everySizeComesBack(port) {
  const box = await open(port);
  for (const size of SIZES) {
    const sent = crypto.randomBytes(size);
    box.socket.send(sent);
    assert((await take(box, size)).equals(sent), `${size} bytes`);
  }
  const end = closed(box.socket);
  box.socket.close(1000);
  assert.deepStrictEqual(await end, [1000, ""]);
}

async function aFragmentedMessageComesBack(port) {
  const box = await open(port);
  const parts = SIZES.map((size) => crypto.randomBytes(size));
  parts.forEach((part, at) => {
    box.socket.send(part, { fin: at === parts.length - 1 });
    if (at === 3) box.socket.ping("between");
  });
  const whole = Buffer.concat(parts);
  assert((await take(box, whole.length)).equals(whole));
  box.socket.terminate();
}

async function aPingIsAnswered(port) {
  const box = await open(port, ["lambda-microvms", "lambda-microvms.port.1"]);
  assert.strictEqual(box.socket.protocol, "lambda-microvms");
  assert.strictEqual(box.socket.extensions, "");
  const payload = crypto.randomBytes(125);
  const pong = new Promise((resolve) => box.socket.once("pong", resolve));
  box.socket.ping(payload);
  assert((await pong).equals(payload));
  box.socket.terminate();
}

async function aRefusalHasItsReason() {
  const box = await open(0);
  const [code, reason] = await closed(box.socket);
  assert.strictEqual(code, 4400);
  assert(reason.includes("port 0"), reason);
}

async function main() {
  const server = net.createServer((stream) => stream.on("error", () => {}).pipe(stream));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const port = server.address().port;
  for (const check of [everySizeComesBack, aFragmentedMessageComesBack, aPingIsAnswered, aRefusalHasItsReason]) {
    await check(port);
    console.log("ok", check.name);
  }
  process.exit(0);
}

setTimeout(() => {
  console.error("it takes too long");
  process.exit(1);
}, 60_000).unref();
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
