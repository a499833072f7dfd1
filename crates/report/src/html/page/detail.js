"use strict";
// Single events: a part is inflated when it is shown, and dropped when many others were shown
// since.

const Detail = {
  most: 24, // parts that are shown at once
  kept: 72,
  parts: new Map(), // place in Data.parts -> { state, used, … }
  clock: 0,
  changed: () => {},
  begins: Data.parts.map((part) => part[1]),

  // Parts with events in a period: their indices in Data.parts.
  range(begin, end) {
    let at = lowerBound(this.begins, begin);
    while (at > 0 && Data.parts[at - 1][2] >= begin) at--;
    let last = at;
    while (last < Data.parts.length && Data.parts[last][1] <= end) last++;
    return [at, last];
  },

  // The events of a period: the loaded parts, and whether that is all, or some are loading, too
  // many, or omitted.
  of(begin, end) {
    // What ends a little later may have begun in this period.
    const behind = Math.min(Math.max(Data.span_threshold, Data.life_threshold), (end - begin) * 2);
    const [at, last] = this.range(begin, end);
    if (last - at > this.most) return { parts: [], state: "zoom" };
    const [, further] = this.range(begin, end + behind);
    const parts = [];
    let state = "all";
    for (let n = at; n < Math.min(further, last + 8); n++) {
      const part = this.get(n);
      if (part.state === "here") parts.push(part);
      else if (n < last) state = part.state;
    }
    const gaps = this.gaps(begin, end);
    if (state === "all" && gaps.length > 0) state = "left out";
    return { parts, state, gaps };
  },

  // Periods whose single events were omitted.
  gaps(begin, end) {
    const gaps = [];
    if (Data.detailed === Data.events) return gaps;
    let [at, last] = this.range(begin, end);
    at = Math.max(0, at - 1);
    let number = at === 0 ? 0 : Data.parts[at][0], from = at === 0 ? 0 : Data.parts[at][1];
    for (let n = at; n < Math.min(last + 1, Data.parts.length); n++) {
      const part = Data.parts[n];
      if (part[0] !== number) gaps.push([from, part[1]]);
      number = part[0] + 1;
      from = part[2];
    }
    if (Data.parts.length === 0) gaps.push([0, Data.end]);
    return gaps.filter((gap) => gap[0] <= end && gap[1] >= begin);
  },

  // The part with this index in Data.parts.
  get(place) {
    let part = this.parts.get(place);
    if (!part) {
      part = { state: "loading", used: 0 };
      this.parts.set(place, part);
      this.load(place, part);
    }
    part.used = ++this.clock;
    return part;
  },

  async load(place, part) {
    const [number, begin] = Data.parts[place];
    try {
      const id = `part-${number}`;
      // The page itself may still be loading. An element is complete once another one follows;
      // before, it may have only a part of its text.
      while (!document.getElementById(id)?.nextSibling && document.readyState === "loading") {
        await new Promise((done) => setTimeout(done, 20));
      }
      Object.assign(part, takeApart(await inflate(id), begin), { state: "here" });
    } catch (error) {
      part.state = "damaged";
      console.error(error);
    }
    if (this.parts.size > this.kept) {
      const all = [...this.parts].sort((a, b) => a[1].used - b[1].used);
      for (const [old] of all.slice(0, all.length - this.kept)) this.parts.delete(old);
    }
    this.changed();
  },
};

// The columns, as in `detail.rs`.
function takeApart(bytes, begin) {
  const head = new Numbers(bytes), count = head.next();
  const lengths = Array.from({ length: 7 }, () => head.next());
  let at = head.at;
  const columns = lengths.map((length) => new Numbers(bytes.subarray(at, (at += length))));
  const [time, lane, cpu, event, ended, length, text] = columns;
  const part = {
    count,
    times: new Float64Array(count),
    lanes: new Uint32Array(count),
    cpus: new Int32Array(count),
    events: new Uint32Array(count),
    pairs: new Int32Array(count),
    durations: new Float64Array(count),
    depths: new Uint16Array(count),
    offsets: new Uint32Array(count + 1),
    text: text.bytes,
    byLane: new Map(),
  };
  let now = begin;
  for (let n = 0; n < count; n++) {
    part.times[n] = now += time.next();
    part.lanes[n] = lane.next();
    part.cpus[n] = cpu.next() - 1;
    part.events[n] = event.next();
    part.pairs[n] = ended.next() - 1;
    if (part.pairs[n] >= 0) {
      part.durations[n] = ended.next();
      part.depths[n] = ended.next();
    }
    part.offsets[n + 1] = part.offsets[n] + length.next();
    for (const of of [part.lanes[n], part.cpus[n]]) {
      if (of < 0) continue;
      if (!part.byLane.has(of)) part.byLane.set(of, []);
      part.byLane.get(of).push(n);
    }
  }
  return part;
}

const decoder = new TextDecoder();
const textOf = (part, n) => decoder.decode(part.text.subarray(part.offsets[n], part.offsets[n + 1]));

// Parses `{ a = 1, s = "x, }" }, { … }` into names and values.
function fieldsOf(text) {
  const fields = [];
  let depth = 0, quoted = false, from = 0;
  const take = (to) => {
    const [name, ...value] = text.slice(from, to).split(" = ");
    if (value.length > 0) fields.push([name.trim(), value.join(" = ").trim()]);
  };
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (quoted) {
      if (c === "\\") at++;
      else if (c === '"') quoted = false;
    } else if (c === '"') {
      quoted = true;
    } else if ("{[(".includes(c)) {
      if (++depth === 1) from = at + 1;
    } else if ("}])".includes(c)) {
      if (--depth === 0) take(at);
    } else if (c === "," && depth === 1) {
      take(at);
      from = at + 1;
    }
  }
  return fields;
}
