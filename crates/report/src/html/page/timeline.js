"use strict";
// The lanes, on a canvas of the size of the visible part.

const GUTTER = 200, RULER = 24;

const Timeline = {
  canvas: document.getElementById("timeline"),
  box: document.getElementById("lanes"),
  spacer: document.getElementById("spacer"),
  rows: [],
  height: 0,
  hidden: new Set(),
  detail: { parts: [], state: "zoom", gaps: [] },
  // What was drawn where, for the pointer.
  drawn: [],

  // The rows, and their positions.
  layout() {
    const rows = [];
    let y = RULER;
    const add = (row, height) => {
      rows.push({ ...row, y, height });
      y += height;
    };
    const addProcess = (of) => {
      const process = Data.processes[of];
      if (process.events === 0 && !Model.hasLost.has(of)) return;
      const key = `process-${of}`;
      add({ kind: "process", process: of, key }, 22);
      if (this.hidden.has(key)) return;
      for (const lane of Model.ofProcess[of]) {
        add({ kind: "lane", lane, process: of }, 26 + 14 * Model.depth[lane]);
      }
      if (Model.levels.has(of)) add({ kind: "level", process: of }, 40);
      const hasLives = Model.lives[of].length > 0;
      if (hasLives) add({ kind: "lives", process: of }, 46);
    };
    const addCpus = (of) => {
      const lanes = Model.ofHost[of];
      if (lanes.length === 0) return;
      const key = `host-${of}`;
      add({ kind: "host", host: of, key }, 22);
      if (this.hidden.has(key)) return;
      for (const lane of lanes) add({ kind: "lane", lane, cpu: Number(Data.lanes[lane].id), host: of }, 26);
    };
    Data.hosts.forEach((_, of) => {
      if (Data.hosts.length > 1) {
        const key = `group-${of}`;
        add({ kind: "group", host: of, key }, 24);
        if (this.hidden.has(key)) return;
      }
      Model.processesOf(of).forEach(addProcess);
      addCpus(of);
    });
    this.rows = rows;
    this.height = y + 8;
    this.spacer.style.height = `${Math.max(0, this.height - this.box.clientHeight)}px`;
  },

  x(time) {
    return GUTTER + ((time - View.begin) / (View.end - View.begin)) * (this.width - GUTTER);
  },

  time(x) {
    return View.begin + ((x - GUTTER) / (this.width - GUTTER)) * (View.end - View.begin);
  },

  draw() {
    this.layout();
    const scale = devicePixelRatio || 1;
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    [this.width, this.canvasHeight] = [width, height];
    const canvas = this.canvas;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.detail = Detail.of(View.begin, View.end);
    const paint = (this.paint = canvas.getContext("2d"));
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    this.colors = { back: css("--back"), front: css("--front"), dim: css("--dim"), line: css("--line"), soft: css("--soft"), bad: css("--bad"), accent: css("--accent") };
    paint.fillStyle = this.colors.back;
    paint.fillRect(0, 0, width, height);
    paint.font = "11px system-ui, sans-serif";
    paint.textBaseline = "middle";
    this.drawn = [];
    const top = this.box.scrollTop;
    for (const row of this.rows) {
      const y = row.y - top;
      if (y + row.height < RULER || y > height) continue;
      paint.save();
      paint.beginPath();
      paint.rect(0, Math.max(y, RULER), width, row.height);
      paint.clip();
      this.drawRow(row, y);
      paint.restore();
    }
    this.drawGaps();
    this.drawSelected(top);
    this.drawRuler();
    this.drawCrash();
  },

  label(text, y, height, weight = "") {
    const { paint } = this;
    paint.fillStyle = this.colors.soft;
    paint.fillRect(0, y, GUTTER - 1, height);
    paint.fillStyle = this.colors.front;
    paint.font = `${weight} 11px system-ui, sans-serif`;
    paint.fillText(fitting(paint, text, GUTTER - 12), 8, y + Math.min(height / 2, 13));
    paint.font = "11px system-ui, sans-serif";
  },

  drawRow(row, y) {
    const { paint, colors } = this;
    // Nothing of the timeline is drawn over the labels.
    const within = (draw) => {
      paint.save();
      paint.beginPath();
      paint.rect(GUTTER, y, this.width - GUTTER, row.height);
      paint.clip();
      draw();
      paint.restore();
    };
    if (row.key !== undefined) {
      paint.fillStyle = colors.soft;
      paint.fillRect(0, y, this.width, row.height);
      const mark = this.hidden.has(row.key) ? "▸" : "▾";
      const names = {
        process: () => processName(row.process),
        host: () => `CPUs of ${Data.hosts[row.host] || "the machine"}`,
        group: () => `host ${hostName(row.host)}`,
      };
      this.label(`${mark} ${names[row.kind]()}`, y, row.height, row.kind === "group" ? "700" : "600");
      if (row.kind === "group" && this.hidden.has(row.key)) {
        const lanes = Model.processesOf(row.host).flatMap((of) => Model.ofProcess[of]);
        within(() => this.drawCounts(lanes, y, y + row.height - 1));
      }
      if (row.kind === "process") {
        within(() => {
          if (this.hidden.has(row.key)) this.drawCounts(Model.ofProcess[row.process], y, y + row.height - 1);
          this.drawLosses(row, y, (loss) => loss.process === row.process);
        });
      }
    } else if (row.kind === "lane") {
      this.label(laneName(row.lane), y, row.height);
      within(() => this.drawLane(row, y));
    } else if (row.kind === "level") {
      this.label("memory in use", y, row.height);
      within(() => this.drawLevel(row, y));
    } else if (row.kind === "lives") {
      this.label("life times: the longest", y, row.height);
      within(() => this.drawLives(row, y));
    }
    paint.fillStyle = colors.line;
    paint.fillRect(0, y + row.height - 1, this.width, 1);
  },

  drawLane(row, y) {
    const { lane } = row, bottom = y + 25;
    if (!this.drawEvents(lane, y, bottom)) this.drawCounts([lane], y, bottom);
    if (Model.isThread(lane)) this.drawSpans(lane, y + 26);
    if (row.cpu !== undefined) {
      const isOne = (loss) => loss.cpu === row.cpu && Data.processes[loss.process]?.host === row.host;
      this.drawLosses({ ...row, height: 7 }, y, isOne, "");
    }
  },

  // The number of events per pixel, in the colour of the most frequent class. Classes are not
  // stacked, so a rare one beside many others is found with the filter.
  drawCounts(lanes, y, bottom) {
    const width = Math.ceil(this.width - GUTTER), perPixel = (View.end - View.begin) / width;
    const level = Math.max(0, Math.floor(Math.log2(perPixel / Model.bin)));
    const length = Model.bin * 2 ** level;
    const total = new Float64Array(width), most = new Float64Array(width), which = new Int32Array(width).fill(-1);
    for (const series of lanes.flatMap((lane) => Model.ofLane[lane])) {
      if (!View.wanted[series.event]) continue;
      const { bins, counts } = series.level(level);
      let at = lowerBound(bins, Math.floor(View.begin / length));
      for (; at < bins.length && bins[at] * length <= View.end; at++) {
        const left = (bins[at] * length - View.begin) / perPixel;
        const right = left + length / perPixel;
        const begin = Math.max(0, Math.floor(left)), end = Math.min(width, Math.max(Math.floor(right), begin + 1));
        const count = counts[at] / Math.max(1, length / perPixel);
        for (let x = begin; x < end; x++) {
          total[x] += count;
          if (count > most[x]) [most[x], which[x]] = [count, series.event];
        }
      }
    }
    this.drawColumns(total, which, y, bottom);
  },

  drawColumns(total, which, y, bottom) {
    const { paint } = this, highest = total.reduce((a, b) => Math.max(a, b), 0);
    for (let x = 0; x < total.length; x++) {
      if (total[x] === 0) continue;
      const height = Math.max(2, (bottom - y - 4) * Math.sqrt(total[x] / highest));
      paint.fillStyle = colorOf(which[x]);
      paint.fillRect(GUTTER + x, bottom - height, 1, height);
    }
  },

  // Draws single events if they are loaded. Otherwise returns false, and counts are drawn.
  drawEvents(lane, y, bottom) {
    const { paint, colors, detail } = this;
    if (detail.state === "zoom" || detail.state === "loading") return false;
    const width = Math.ceil(this.width - GUTTER), found = [];
    let count = 0;
    for (const part of detail.parts) {
      const all = part.byLane.get(lane);
      if (!all) continue;
      const begin = firstSince(part, all, View.begin);
      for (let at = begin; at < all.length && part.times[all[at]] <= View.end; at++) {
        if (!View.wanted[part.events[all[at]]]) continue;
        found.push([part, all[at]]);
        count++;
      }
    }
    // For omitted events, there are counts.
    if (detail.state === "left out") this.drawCounts([lane], y, bottom);
    if (count > width / 2) {
      if ((View.end - View.begin) / width > Model.bin) return detail.state === "left out";
      const total = new Float64Array(width), which = new Int32Array(width);
      for (const [part, n] of found) {
        const x = Math.min(width - 1, Math.floor(this.x(part.times[n]) - GUTTER));
        total[x]++;
        which[x] = part.events[n];
      }
      this.drawColumns(total, which, y, bottom);
      for (const [part, n] of found) this.drawn.push({ lane, x: this.x(part.times[n]), y, bottom, part, n });
      return true;
    }
    found.forEach(([part, n], at) => {
      const x = this.x(part.times[n]), next = at + 1 < found.length ? this.x(found[at + 1][0].times[found[at + 1][1]]) : this.width;
      paint.fillStyle = colorOf(part.events[n]);
      paint.fillRect(x - 1, y + 3, 2, bottom - y - 3);
      if (next - x > 40) {
        paint.fillStyle = colors.dim;
        paint.fillText(fitting(paint, withoutProvider(Data.classes[part.events[n]].name), next - x - 8), x + 4, y + 13);
      }
      this.drawn.push({ lane, x, y, bottom, part, n });
    });
    return true;
  },

  drawSpan(span, y, height, isFaint) {
    const { paint } = this;
    const left = Math.max(this.x(span.begin), GUTTER - 2);
    const right = Math.min(this.x(span.begin + span.duration), this.width + 2);
    if (right < GUTTER || left > this.width) return;
    const width = Math.max(right - left, 1);
    paint.globalAlpha = isFaint ? 0.45 : 0.8;
    paint.fillStyle = colorOf(Data.classes.length + span.pair);
    paint.fillRect(left, y, width, height);
    paint.globalAlpha = 1;
    if (span.isOpen && span.begin + span.duration <= View.end) {
      paint.fillStyle = this.colors.bad;
      paint.fillRect(right - 3, y, 3, height);
    }
    if (width > 44 && height > 10) {
      paint.fillStyle = dark.matches ? "#000" : "#fff";
      paint.fillText(fitting(paint, `${withoutProvider(Data.pairs[span.pair].name)} ${duration(span.duration)}`, width - 8), left + 4, y + height / 2 + 0.5);
    }
    this.drawn.push({ span, left, right: left + width, y, bottom: y + height });
  },

  // A span shorter than a pixel is as opaque as the fraction that it covers.
  drawSpans(lane, top) {
    const { paint } = this, width = Math.ceil(this.width - GUTTER), busy = new Map();
    const draw = (span) => {
      if (span.begin > View.end || span.begin + span.duration < View.begin || !View.wantedPairs[span.pair]) return;
      const depth = Math.min(span.depth, 7), left = this.x(span.begin), wide = this.x(span.begin + span.duration) - left;
      if (wide >= 1) {
        this.drawSpan(span, top + depth * 14, 13);
        return;
      }
      const place = depth * width + Math.max(0, Math.floor(left - GUTTER)), known = busy.get(place);
      if (known) known.part += wide;
      else busy.set(place, { part: wide, pair: span.pair });
    };
    Model.spans[lane].forEach(draw);
    for (const span of spansOf(this.detail.parts, (n, part) => part.lanes[n] === lane)) {
      if (!Data.pairs[span.pair].is_async && span.duration < Data.span_threshold) draw(span);
    }
    for (const [place, { part, pair }] of busy) {
      paint.globalAlpha = 0.15 + 0.65 * Math.min(1, part);
      paint.fillStyle = colorOf(Data.classes.length + pair);
      paint.fillRect(GUTTER + (place % width), top + Math.floor(place / width) * 14, 1, 13);
    }
    paint.globalAlpha = 1;
  },

  // Asynchronous spans: in the first free row.
  drawLives(row, y) {
    const rows = new Float64Array(7).fill(-Infinity);
    const isHere = (span) => span.begin <= View.end && span.begin + span.duration >= View.begin && View.wantedPairs[span.pair];
    const more = [...spansOf(this.detail.parts, (n, part) => Data.lanes[part.lanes[n]].of === row.process)];
    const shorter = more.filter((span) => Data.pairs[span.pair].is_async && span.duration < Data.life_threshold);
    const all = [...Model.lives[row.process], ...shorter].filter(isHere).sort((a, b) => b.duration - a.duration);
    const shown = all.slice(0, 1500).sort((a, b) => a.begin - b.begin);
    for (const span of shown) {
      const place = rows.findIndex((end) => end <= this.x(span.begin));
      if (place < 0) continue;
      rows[place] = this.x(span.begin + span.duration) + 1;
      this.drawSpan(span, y + 2 + place * 6, 5, true);
    }
  },

  drawLevel(row, y) {
    const { bins, highest, last } = Model.levels.get(row.process), { paint } = this;
    let at = Math.max(0, lowerBound(bins, Math.floor(View.begin / Model.bin)) - 1);
    const top = highest.reduce((a, b) => Math.max(a, b), 1), bottom = y + row.height - 2;
    const height = (value) => (row.height - 14) * (value / top);
    const width = Math.ceil(this.width - GUTTER), perPixel = (View.end - View.begin) / width;
    let value = at < bins.length && bins[at] * Model.bin <= View.begin ? last[at] : 0;
    paint.fillStyle = this.colors.accent;
    paint.globalAlpha = 0.6;
    for (let x = 0; x < width; x++) {
      const end = View.begin + (x + 1) * perPixel;
      let most = value;
      while (at < bins.length && bins[at] * Model.bin < end) {
        most = Math.max(most, highest[at]);
        value = last[at++];
      }
      // What happened after the process's last event is unknown.
      if (View.begin + x * perPixel > Data.processes[row.process].last) break;
      paint.fillRect(GUTTER + x, bottom - height(most), 1, height(most));
    }
    paint.globalAlpha = 1;
    paint.fillStyle = this.colors.dim;
    paint.fillText(`top: ${bytes(top)}`, GUTTER + 6, y + 7);
  },

  drawLosses(row, y, isOne, text) {
    const { paint, colors } = this;
    for (const loss of Data.losses) {
      if (!isOne(loss) || loss.end < View.begin || loss.begin > View.end) continue;
      const left = Math.round(Math.max(this.x(loss.begin), GUTTER)), right = Math.max(Math.min(this.x(loss.end), this.width), left + 3);
      paint.fillStyle = colors.bad;
      paint.globalAlpha = 0.35;
      paint.fillRect(left, y, right - left, row.height);
      paint.globalAlpha = 1;
      paint.fillRect(left, y, 2, row.height);
      const label = text ?? lossText(loss);
      if (label !== "" && right - left > 24) paint.fillText(fitting(paint, label, right - left - 6), left + 5, y + row.height / 2);
      this.drawn.push({ loss, left: left - 2, right: right + 2, y, bottom: y + row.height });
    }
  },

  // Marks where single events are missing although the zoom would show them.
  drawGaps() {
    if (this.detail.state === "zoom") return;
    const { paint } = this;
    for (const [begin, end] of this.detail.gaps ?? []) {
      const left = Math.max(this.x(begin), GUTTER), right = Math.min(this.x(end), this.width);
      if (right - left < 1) continue;
      paint.fillStyle = this.colors.dim;
      paint.globalAlpha = 0.12;
      paint.fillRect(left, RULER, right - left, this.canvasHeight);
      paint.globalAlpha = 1;
      if (right - left > 140) paint.fillText(fitting(paint, "single events were left out here; counts are exact", right - left), left + 6, this.canvasHeight - 10);
    }
  },

  drawSelected(top) {
    const { selected } = View;
    if (!selected?.part) return;
    const row = this.rows.find((row) => row.lane === selected.part.lanes[selected.n]);
    const x = this.x(selected.part.times[selected.n]);
    if (!row || x < GUTTER) return;
    const { paint } = this;
    paint.strokeStyle = this.colors.front;
    paint.lineWidth = 1.5;
    paint.strokeRect(x - 4, Math.max(row.y - top, RULER) + 1, 8, 25);
    paint.globalAlpha = 0.4;
    paint.fillStyle = this.colors.front;
    paint.fillRect(x, RULER, 1, this.canvasHeight);
    paint.globalAlpha = 1;
  },

  drawRuler() {
    const { paint, colors } = this, length = View.end - View.begin;
    paint.fillStyle = colors.soft;
    paint.fillRect(0, 0, this.width, RULER);
    paint.fillStyle = colors.line;
    paint.fillRect(0, RULER - 1, this.width, 1);
    const rough = (length / (this.width - GUTTER)) * 130, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].find((n) => n * power >= rough) * power);
    const decimals = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(step) + 1e-9)));
    // At round times of day.
    const offset = Number(first % BigInt(Math.round(step)));
    let time = Math.ceil((View.begin + offset) / step) * step - offset;
    paint.fillStyle = colors.front;
    // The numbers lose precision in traces of years, so make sure that the loop ends.
    for (let n = 0; time <= View.end && n < 100; n++, time += step) {
      const x = this.x(time);
      paint.fillRect(x, RULER - 6, 1, 6);
      paint.fillText(timeOfDay(time, decimals), x + 4, 11);
    }
    paint.fillStyle = colors.soft;
    paint.fillRect(0, 0, GUTTER, RULER - 1);
    paint.fillStyle = colors.dim;
    paint.fillText(`${duration(length)} are shown`, 8, 11);
  },

  drawCrash() {
    if (Crash.at === null) return;
    const x = Math.round(this.x(Crash.at)), { paint } = this;
    if (x < GUTTER || x > this.width) return;
    paint.fillStyle = this.colors.bad;
    paint.fillRect(x - 1, 0, 2, this.canvasHeight);
    const label = Crash.label, width = paint.measureText(label).width + 10;
    const left = Math.max(GUTTER, Math.min(x + 1, this.width - width));
    paint.fillRect(left, RULER, width, 16);
    paint.fillStyle = dark.matches ? "#000" : "#fff";
    paint.fillText(label, left + 5, RULER + 8);
    this.drawn.push({ crash: true, left: x - 4, right: x + 4, y: 0, bottom: this.canvasHeight });
  },

  // Finds the object at a position on the canvas: events first, then the topmost one.
  at(x, y) {
    let best = null;
    for (const drawn of this.drawn) {
      if (y < drawn.y || y > drawn.bottom) continue;
      if (drawn.part) {
        const far = Math.abs(drawn.x - x);
        if (far <= 5 && (!best?.part || far <= best.far)) best = { ...drawn, far };
      } else if (x >= drawn.left && x <= drawn.right && !best?.part) {
        best = drawn;
      }
    }
    if (best) return best;
    const row = this.rows.find((row) => y + this.box.scrollTop >= row.y && y + this.box.scrollTop < row.y + row.height);
    return row ? { row } : null;
  },
};

// Marks where traces from a dump end.
const Crash = {
  at: null,
  label: "",
  find() {
    const dumps = Data.processes.filter((process) => process.crash && process.last !== null);
    if (dumps.length === 0) return;
    this.last = dumps.reduce((last, process) => Math.max(last, process.last), 0);
    const said = (name) => dumps.find((process) => process.crash[name] !== null)?.crash[name] ?? null;
    this.time = said("time"), this.cpu = said("cpu"), this.thread = said("thread");
    const ns = said("ns");
    this.isExact = ns !== null;
    this.at = this.isExact ? Number(BigInt(ns) - first) : this.last;
    this.label = this.isExact ? "the kernel crashed" : "end of the dump: last event before the crash";
    Data.end = Math.max(Data.end, this.at);
  },
};

function lossText(loss) {
  const what = [];
  if (loss.events > 0) what.push(`${integer(loss.events)} events`);
  if (loss.packets > 0) what.push(`${integer(loss.packets)} packets`);
  return `${what.join(" and ")} lost`;
}

function firstSince(part, all, time) {
  let begin = 0, end = all.length;
  while (begin < end) {
    const middle = (begin + end) >>> 1;
    if (part.times[all[middle]] < time) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

// The spans that ended with the events of some parts.
function* spansOf(parts, isOne) {
  for (const part of parts) {
    part.ends ??= Array.from(part.pairs.keys()).filter((n) => part.pairs[n] >= 0);
    for (const n of part.ends) {
      if (!isOne(n, part)) continue;
      const long = part.durations[n];
      yield { begin: part.times[n] - long, duration: long, pair: part.pairs[n], depth: part.depths[n], lane: part.lanes[n] };
    }
  }
}

// As much of a text as fits.
function fitting(paint, text, width) {
  if (paint.measureText(text).width <= width) return text;
  let length = Math.floor((text.length * width) / paint.measureText(text).width);
  while (length > 0 && paint.measureText(text.slice(0, length) + "…").width > width) length--;
  return length > 0 ? text.slice(0, length) + "…" : "";
}
