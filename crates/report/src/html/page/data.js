"use strict";
// The page's data: names and numbers as JSON, counts and spans compressed.

const Data = JSON.parse(document.getElementById("data").textContent);

// The bytes of an inert element. Not through a Response, which reports any error as a failed fetch.
async function inflate(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  const { readable, writable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter();
  // A write finishes when its output was read. A failed write also fails `read`.
  Promise.all([writer.write(bytes), writer.close()]).catch(() => {});
  const chunks = [], reader = readable.getReader();
  let len = 0;
  for (let next; !(next = await reader.read()).done; len += next.value.length) chunks.push(next.value);
  const whole = new Uint8Array(len);
  for (let n = 0, at = 0; n < chunks.length; at += chunks[n++].length) whole.set(chunks[n], at);
  return whole;
}

// Decodes the numbers that `varint.rs` writes.
class Numbers {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  next() {
    let number = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      number += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte & 0x80);
    return number;
  }
}

// Counts of a class in a lane: non-empty bins, and the total of all earlier bins for each.
class Series {
  constructor(lane, event, bins, counts) {
    this.lane = lane;
    this.event = event;
    this.levels = [{ bins, counts }];
    this.before = new Float64Array(bins.length + 1);
    for (let n = 0; n < bins.length; n++) this.before[n + 1] = this.before[n] + counts[n];
  }
  // Bins whose length is multiplied by 2 to the power of `level`.
  level(level) {
    while (this.levels.length <= level) {
      const { bins, counts } = this.levels[this.levels.length - 1];
      const longer = new Uint32Array(bins.length), sums = new Float64Array(bins.length);
      let n = -1;
      for (let at = 0; at < bins.length; at++) {
        const bin = bins[at] >>> 1;
        if (n < 0 || longer[n] !== bin) longer[++n] = bin;
        sums[n] += counts[at];
      }
      this.levels.push({ bins: longer.slice(0, n + 1), counts: sums.slice(0, n + 1) });
    }
    return this.levels[level];
  }
  // The number of events between two bins, which may be fractions.
  between(begin, end) {
    return this.until(end) - this.until(begin);
  }
  until(bin) {
    const { bins, counts } = this.levels[0], at = lowerBound(bins, Math.floor(bin));
    const part = at < bins.length && bins[at] < bin ? counts[at] * (bin - bins[at]) : 0;
    return this.before[at] + part;
  }
}

// The first index whose value is not below `value`.
function lowerBound(values, value, begin = 0, end = values.length) {
  while (begin < end) {
    const middle = (begin + end) >>> 1;
    if (values[middle] < value) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

const Model = {
  bin: 2 ** Data.shift,
  ofLane: Data.lanes.map(() => []),
  levels: new Map(),
  // By lane, and by process.
  spans: Data.lanes.map(() => []),
  lives: Data.processes.map(() => []),
  depth: new Uint16Array(Data.lanes.length),

  async load() {
    this.group();
    const numbers = new Numbers(await inflate("counts"));
    for (let n = numbers.next(); n > 0; n--) {
      const lane = numbers.next(), event = numbers.next(), len = numbers.next();
      const bins = new Uint32Array(len), counts = new Float64Array(len);
      let bin = 0;
      for (let at = 0; at < len; at++) {
        bins[at] = bin += numbers.next();
        counts[at] = numbers.next();
      }
      this.ofLane[lane].push(new Series(lane, event, bins, counts));
    }
    for (let n = numbers.next(); n > 0; n--) {
      const process = numbers.next(), len = numbers.next();
      const bins = new Uint32Array(len), highest = new Float64Array(len), last = new Float64Array(len);
      let bin = 0;
      for (let at = 0; at < len; at++) {
        bins[at] = bin += numbers.next();
        highest[at] = numbers.next();
        last[at] = numbers.next();
      }
      this.levels.set(process, { bins, highest, last });
    }
    for (const kind of ["span", "life", "open"]) {
      let begin = 0;
      for (let n = numbers.next(); n > 0; n--) {
        const lane = numbers.next();
        begin += numbers.next();
        const span = { begin, duration: numbers.next(), pair: numbers.next(), depth: numbers.next(), lane, isOpen: kind === "open" };
        if (kind === "life") this.lives[Data.lanes[lane].of].push(span);
        else this.addSpan(span);
      }
    }
  },

  addSpan(span) {
    this.spans[span.lane].push(span);
    this.depth[span.lane] = Math.max(this.depth[span.lane], Math.min(span.depth + 1, 8));
  },

  // Lanes of each process, and CPUs of each host, in order.
  group() {
    const order = Data.lanes.map((_, lane) => lane).sort((a, b) => Number(Data.lanes[a].id) - Number(Data.lanes[b].id));
    this.ofProcess = Data.processes.map(() => []);
    this.ofHost = Data.hosts.map(() => []);
    for (const lane of order) {
      const { kind, of } = Data.lanes[lane];
      (kind === "cpu" ? this.ofHost : this.ofProcess)[of].push(lane);
    }
    // The busiest first.
    this.processes = Data.processes.map((_, of) => of).sort((a, b) => Data.processes[b].events - Data.processes[a].events);
    this.hasLost = new Set(Data.losses.map((loss) => loss.process));
  },

  // The processes of a host, the busiest first.
  processesOf(host) {
    return this.processes.filter((of) => Data.processes[of].host === host);
  },

  // Lanes that together contain each event once.
  isThread: (lane) => Data.lanes[lane].kind !== "cpu",

  // The approximate number of events of a class in a period.
  countByClass(begin, end) {
    const counts = new Float64Array(Data.classes.length);
    this.ofLane.forEach((all, lane) => {
      if (!this.isThread(lane)) return;
      for (const series of all) counts[series.event] += series.between(begin / this.bin, end / this.bin);
    });
    return counts;
  },
};
