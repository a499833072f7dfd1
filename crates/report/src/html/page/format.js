"use strict";
// Readable numbers, and colours.

const dark = matchMedia("(prefers-color-scheme: dark)");
const first = BigInt(Data.begin ?? 0);
const pad = (number, digits) => String(number).padStart(digits, "0");

// A time in ns since the first event, as the time of day with some decimals.
function timeOfDay(ns, decimals = 9) {
  const time = first + BigInt(Math.round(ns));
  let seconds = time / 1000000000n, rest = time % 1000000000n;
  if (rest < 0n) {
    rest += 1000000000n;
    seconds -= 1n;
  }
  const date = new Date(Number(seconds) * 1000);
  const day = `${pad(date.getHours(), 2)}:${pad(date.getMinutes(), 2)}:${pad(date.getSeconds(), 2)}`;
  return decimals > 0 ? `${day}.${pad(rest, 9).slice(0, decimals)}` : day;
}

function dateOf(ns) {
  const date = new Date(Number((first + BigInt(Math.round(ns))) / 1000000n));
  return `${date.getFullYear()}-${pad(date.getMonth() + 1, 2)}-${pad(date.getDate(), 2)}`;
}

function duration(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toPrecision(4))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

// An exact number, with thin spaces between thousands.
const integer = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u202f");

function short(number) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  }
  return String(Number(number.toPrecision(3)));
}

function bytes(number) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (number >= size) return `${(number / size).toFixed(1)} ${unit}`;
  }
  return `${number} bytes`;
}

// The n-th of a series of different colours.
const hue = (n) => (n * 137.508 + 210) % 360;
const colorOf = (n) => `hsl(${hue(n).toFixed(0)} 62% ${dark.matches ? 62 : 45}%)`;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// An element with text, which is never parsed as HTML.
function element(name, text, parent) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

function processName(index) {
  const { name, pid } = Data.processes[index];
  if (name && pid === null) return name;
  return `${name || "process"} (${pid ?? "?"})`;
}

const hostName = (index) => Data.hosts[index] || "without a name";

function laneName(lane) {
  const { kind, id, name } = Data.lanes[lane];
  if (kind === "cpu") return `CPU ${id}`;
  if (kind === "process") return "all threads";
  if (kind === "rest") return "further threads";
  return `${name ? name + " " : "thread "}${id}`;
}

// The last part of a pair's or an event's name.
const withoutProvider = (name) => name.slice(name.indexOf(":") + 1);
