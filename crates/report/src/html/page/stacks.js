"use strict";
// Call stacks: the flame graph with its controls, and tables of memory and of waits for locks.

const Stacks = {
  // Names of weights, and how they are shown.
  weights: {
    events: { label: "events", show: (value) => `${integer(value)} events` },
    bytes: { label: "bytes", show: bytes },
    time: { label: "time", show: duration },
    live: { label: "in use at the end", show: bytes },
    peak: { label: "in use at the peak", show: bytes },
  },

  async start() {
    const hint = document.getElementById("stackless");
    if (document.getElementById("call-stacks").textContent === "") {
      hint.hidden = Data.events === 0;
      return;
    }
    const data = JSON.parse(decoder.decode(await inflate("call-stacks")));
    this.data = data;
    document.getElementById("stacks").hidden = false;
    const notes = document.getElementById("stack-notes");
    for (const note of data.notes) element("li", note, notes);
    if (data.left_out > 0) {
      element("li", `Frames with less than ${this.percent(data.left_out)} of each weight are added up as “further frames”. The exports --folded, --pprof and --firefox have all of them.`, notes);
    }
    this.flame = new Flame(document.getElementById("flame"), data, {
      name: (n) => this.name(n),
      search: (n) => this.searched(n),
      describe: (n) => this.describe(n),
      focused: (n) => this.focused(n),
      changed: () => this.changed(),
    });
    this.controls();
    this.tables();
  },

  controls() {
    const { data, flame } = this, box = document.getElementById("weights");
    data.weights.forEach((weight, n) => {
      if (data.own[n].every((own) => own === 0)) return;
      const label = element("label", undefined, box), button = element("input", undefined, label);
      button.type = "radio";
      button.name = "weight";
      button.value = weight;
      label.append(this.weights[weight].label);
      button.addEventListener("change", () => flame.weigh(n));
      // The first that there is.
      if (!box.querySelector(":checked")) {
        button.checked = true;
        flame.weigh(n);
      }
    });
    this.search = document.getElementById("flame-search");
    this.search.addEventListener("input", () => flame.search(this.search.value));
    document.getElementById("flame-all").addEventListener("click", () => flame.zoom(0));
  },

  // Handles a key in the section of the flame graph. Returns whether it has a meaning there.
  key(event) {
    if (!this.flame) return false;
    if (event.target === this.search) {
      if (event.key !== "Escape" && event.key !== "Enter") return false;
      if (event.key === "Escape") {
        this.search.value = "";
        this.flame.search("");
      }
      this.flame.focus(this.flame.focused);
      return true;
    }
    if (event.key === "/") {
      this.search.select();
      return true;
    }
    if (!document.getElementById("flame").contains(event.target)) return false;
    if (event.key === "Escape" && this.flame.words !== "") {
      this.search.value = "";
      this.flame.search("");
      return true;
    }
    return this.flame.key(event.key);
  },

  percent: (share) => `${Number((share * 100).toPrecision(3))} %`,

  name(n) {
    const { data } = this;
    if (n === 0) return { text: "all", kind: "root" };
    if (data.name[n] === null) return { text: "further frames", kind: "further" };
    const { text, kind, module } = data.names[data.name[n]];
    if (kind !== "function" && kind !== "inlined") return { text, kind };
    return { text, kind, color: this.color(module ?? text.split("::")[0]) };
  },

  // A light colour of a module: dark text is readable on it.
  color(text) {
    let hash = 0;
    for (const c of text) hash = (hash * 31 + c.codePointAt(0)) % 360;
    return `hsl(${hash} 70% 76%)`;
  },

  searched(n) {
    const { data } = this, name = data.name[n];
    if (n === 0 || name === null) return "";
    const { text, module, place } = data.names[name];
    return `${text}\n${module ?? ""}\n${place ?? ""}`.toLowerCase();
  },

  show(value) {
    return this.weights[this.data.weights[this.flame.weight]].show(value);
  },

  describe(n) {
    const { data, flame } = this, { text, kind } = this.name(n), name = data.names[data.name[n]];
    const total = flame.totals[n], all = flame.totals[0], own = data.own[flame.weight][n];
    const shares = [`${this.percent(all > 0 ? total / all : 0)} of all`];
    if (flame.zoomed !== 0 && flame.isWithin(n, flame.zoomed)) shares.push(`${this.percent(total / flame.totals[flame.zoomed])} of what is shown`);
    const lines = [`${text}: ${this.show(total)}, ${shares.join(", ")}`];
    if (own > 0 && own < total) lines.push(`itself: ${this.show(own)}`);
    if (kind === "inlined") lines.push("inlined into its caller");
    if (name?.place) lines.push(name.place);
    if (name?.module) lines.push(name.module);
    return lines;
  },

  focused(n) {
    document.getElementById("flame-focused").textContent = this.describe(n).join(" · ");
  },

  changed() {
    const { flame } = this, status = document.getElementById("flame-status");
    const shown = flame.totals[flame.zoomed], found = flame.found();
    const parts = [this.show(shown)];
    if (flame.zoomed !== 0) parts.push(`in ${this.name(flame.zoomed).text}`);
    if (found !== null) parts.push(`${this.percent(shown > 0 ? found / shown : 0)} of it match “${flame.words}”`);
    status.textContent = parts.join(" ");
    document.getElementById("flame-all").disabled = flame.zoomed === 0;
  },

  // A stack as its most telling function, which unfolds to all of it.
  stack(row, cell) {
    const frames = row.stack.map((frame) => this.data.frames[frame]);
    if (frames.length === 0) {
      cell.textContent = "no call stack";
      return;
    }
    const shown = ({ function: name, place }) => (place ? `${name} (${place})` : name);
    const details = element("details", undefined, cell), culprit = frames[row.culprit];
    element("summary", shown(culprit), details);
    const list = element("ol", undefined, details);
    for (const frame of frames) element("li", shown(frame) + (frame.is_inlined ? ", inlined" : ""), list);
  },

  culprit(row) {
    return row.stack.length > 0 ? this.data.frames[row.stack[row.culprit]].function : "";
  },

  tables() {
    const number = (name, value, text) => ({ name, value, text: (row) => text(value(row)) });
    const process = { name: "process", value: (row) => processName(row.process), text: (row) => processName(row.process) };
    const stack = { name: "call stack", value: (row) => this.culprit(row), cell: (row, cell) => this.stack(row, cell) };
    const owner = Data.processes.length > 1 ? [process] : [];
    const memory = [stack, number("bytes", (row) => row.bytes, bytes), number("blocks", (row) => row.blocks, integer), ...owner];
    const waits = [
      stack,
      { name: "lock", value: (row) => row.lock, text: (row) => row.lock },
      number("waits", (row) => row.count, integer),
      number("total", (row) => row.total, duration),
      number("mean", (row) => row.total / row.count, duration),
      number("longest", (row) => row.longest, duration),
      ...owner,
    ];
    this.table("leaks", "Memory in use at the end, by call stack", memory, this.data.leaks, 1);
    this.table("peaks", "Memory in use at the peak, by call stack", memory, this.data.peaks, 1);
    this.table("waits", "Waits for locks, by call stack", waits, this.data.waits, 3);
  },

  table(id, caption, columns, { rows, further }, sorted) {
    if (rows.length === 0) return;
    const table = new Table(id, caption, columns, () => [...rows], sorted);
    const section = document.getElementById(id).parentElement;
    section.hidden = false;
    if (further > 0) element("p", `and ${integer(further)} further call stacks with less`, section);
    table.draw();
  },
};
