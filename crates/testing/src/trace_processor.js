// Asks Perfetto's own trace processor, as its web page has it (WebAssembly, and what drives that in a worker), by SQL.
//
//     node trace_processor.js DIRECTORY TRACE <queries, a JSON array  >answers, an array of arrays of rows
//
// Numbers are strings: integers have 64 bits, and not all others are JSON. It speaks protos/perfetto/trace_processor/trace_processor.proto, as the page
// does: TraceProcessorRpcStream to a port, and the answers from there.

'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const {MessageChannel} = require('worker_threads');

const [directory, trace] = process.argv.slice(2);
const queries = JSON.parse(fs.readFileSync(0, 'utf8'));

// What a worker finds around it.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.location = {href: `file://${directory}/engine_bundle.js`};
globalThis.XMLHttpRequest = class {
  open(method, name) {
    this.path = path.join(directory, path.basename(name));
  }
  send() {
    const bytes = fs.readFileSync(this.path);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
};
// It would be taken for Node, for which it was not built.
const node = globalThis.process;
const said = [];
console.warn = (text) => said.push(text);
console.log = console.warn;

function fail(what) {
  node.stderr.write(`${what}\n${said.join('\n')}\n`);
  node.exit(1);
}

// --- Protobuf ---

function varint(number) {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    const last = rest < 128n;
    bytes.push(Number(rest & 127n) | (last ? 0 : 128));
    if (last) return Buffer.from(bytes);
  }
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const block = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);

function readVarint(bytes, at) {
  let [value, shift] = [0n, 0n];
  for (;;) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) return [BigInt.asUintN(64, value), at];
  }
}

// Fields, each a number and a value, which is a BigInt or bytes.
function* fields(bytes) {
  let [at, key, value] = [0];
  while (at < bytes.length) {
    [key, at] = readVarint(bytes, at);
    switch (Number(key & 7n)) {
      case 0:
        [value, at] = readVarint(bytes, at);
        break;
      case 1:
        value = bytes.subarray(at, (at += 8));
        break;
      case 2: {
        [value, at] = readVarint(bytes, at);
        value = bytes.subarray(at, (at += Number(value)));
        break;
      }
      default:
        throw new Error(`wire type ${key & 7n}`);
    }
    yield [Number(key >> 3n), value];
  }
}

function* packed(bytes) {
  for (let at = 0, value; at < bytes.length; ) {
    [value, at] = readVarint(bytes, at);
    yield value;
  }
}

// --- Requests ---

const APPEND = 1, FINALIZE = 2, QUERY = 3;
let sequence = 0;
const waiting = [];
let port, rest = Buffer.alloc(0);

function request(method, argument) {
  const message = [number(1, sequence++), number(2, method), ...(argument ? [argument] : [])];
  const bytes = new Uint8Array(block(1, Buffer.concat(message)));
  return new Promise((resolve) => {
    waiting.push(resolve);
    port.postMessage(bytes);
  });
}

// Whole messages of what has come.
function take(bytes) {
  rest = Buffer.concat([rest, bytes]);
  for (;;) {
    // The length may not be there as a whole.
    const end = rest.findIndex((byte, at) => at > 0 && byte < 128);
    if (end < 0) return;
    const [len, at] = readVarint(rest, 1);
    if (rest.length < at + Number(len)) return;
    const message = rest.subarray(at, at + Number(len));
    rest = rest.subarray(at + Number(len));
    answer(message);
  }
}

let partial = null;
function answer(message) {
  const all = [...fields(message)];
  const of = (field) => all.find(([known]) => known === field)?.[1];
  if (of(5)) fail(`fatal error: ${Buffer.from(of(5))}`);
  for (const result of [201, 212]) {
    for (const [field, value] of fields(of(result) ?? Buffer.alloc(0))) {
      const error = field === (result === 201 ? 2 : 1);
      if (error && value.length) fail(`the trace is refused: ${Buffer.from(value)}`);
    }
  }
  if (Number(of(3)) !== QUERY) return waiting.shift()();
  partial ??= {names: 0, rows: [], row: []};
  let isLast = false;
  for (const [field, value] of fields(of(203))) {
    if (field === 1) partial.names++;
    if (field === 2 && value.length) fail(`a query is refused: ${Buffer.from(value)}`);
    if (field === 3) isLast = batch(value) || isLast;
  }
  if (isLast) {
    waiting.shift()(partial.rows);
    partial = null;
  }
}

function batch(bytes) {
  const types = [], integers = [], floats = [], blobs = [];
  let strings = [], isLast = false;
  for (const [field, value] of fields(bytes)) {
    if (field === 1) types.push(...(typeof value === 'bigint' ? [value] : packed(value)));
    if (field === 2) integers.push(...(typeof value === 'bigint' ? [value] : packed(value)));
    if (field === 3) for (let at = 0; at < value.length; at += 8) floats.push(Buffer.from(value).readDoubleLE(at));
    if (field === 4) blobs.push(value);
    if (field === 5) strings = Buffer.from(value).toString('utf8').split('\0');
    if (field === 6) isLast = value !== 0n;
  }
  for (const type of types) {
    const cell = [
      () => fail('an invalid cell'),
      () => null,
      () => BigInt.asIntN(64, integers.shift()).toString(),
      () => String(floats.shift()),
      () => strings.shift(),
      () => Buffer.from(blobs.shift()).toString('hex'),
    ][Number(type)]();
    partial.row.push(cell);
    if (partial.row.length === partial.names) {
      partial.rows.push(partial.row);
      partial.row = [];
    }
  }
  return isLast;
}

async function main() {
  const bundle = path.join(directory, 'engine_bundle.js');
  globalThis.process = undefined;
  vm.runInThisContext(fs.readFileSync(bundle, 'utf8'), {filename: bundle});
  const channel = new MessageChannel();
  port = channel.port1;
  port.on('message', take);
  globalThis.onmessage({data: channel.port2});
  // It is compiled at once, and ready when what that left to be done next is done.
  await new Promise((resolve) => setTimeout(resolve, 0));
  const file = fs.openSync(trace, 'r');
  const chunk = Buffer.alloc(8 << 20);
  for (let len; (len = fs.readSync(file, chunk)) > 0; ) await request(APPEND, block(101, chunk.subarray(0, len)));
  await request(FINALIZE);
  const answers = [];
  for (const query of queries) answers.push(await request(QUERY, block(103, block(1, Buffer.from(query)))));
  node.stdout.write(JSON.stringify(answers), () => node.exit(0));
}

// Not the stack's lines of source, which are as long as the program.
const brief = (error) => String(error?.stack ?? error).split('\n').filter((line) => line.length < 400).join('\n');
main().catch((error) => fail(brief(error)));
node.on('uncaughtException', (error) => fail(brief(error)));
