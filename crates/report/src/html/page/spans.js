"use strict";
// The slowest root spans of programs that use tracing, and one of them as a waterfall.

const Requests = {
  most: 2000, // lines of a waterfall
  data: null,
  rows: [],
  wanted: () => true,
  chosen: null, // a tree
  lines: [], // what the waterfall shows: { span, index, depth, hasBelow, line }
  folded: new Set(),
  selected: 0, // an index of a span

  async start() {
    if (Data.requests === 0) return;
    const bytes = await inflate("requests-data");
    this.data = JSON.parse(new TextDecoder().decode(bytes));
    this.rows = this.data.trees.map((tree) => ({ tree, root: tree.spans[0] }));
    const section = document.getElementById("requests");
    section.hidden = false;
    this.box = document.getElementById("waterfall");
    this.input = document.getElementById("find");
    const number = (name, value, text = integer) => ({ name, value, text: (row) => text(value(row)) });
    this.table = new Table("roots", "The slowest root spans", [
      { name: "request", value: (row) => this.name(row.root), cell: (row, cell) => this.link(row, cell) },
      number("duration", (row) => row.root.duration, duration),
      number("busy", (row) => row.root.busy, duration),
      number("spans", (row) => row.tree.spans.length + row.tree.left_out),
      { name: "began", value: (row) => row.root.begin, text: (row) => timeOfDay(row.root.begin) },
      { name: "process", value: (row) => row.tree.process, text: (row) => processName(row.tree.process) },
      { name: "fields", value: (row) => this.text(row.root), text: (row) => this.text(row.root) },
    ], () => this.rows.filter((row) => this.wanted(row.tree)), 1);
    this.input.addEventListener("input", () => this.find(this.input.value));
    section.addEventListener("keydown", (event) => this.keys(event));
    this.draw();
  },

  name(span) {
    return this.data.names[span.name];
  },

  // Fields and what is special of a span, in one line.
  text(span) {
    const marks = [span.orphan ? "parent unknown" : "", span.ending].filter(Boolean).map((mark) => `[${mark}]`);
    return [span.fields.map(([name, value]) => `${name} = ${value}`).join(", "), ...marks].filter(Boolean).join(" ");
  },

  link(row, cell) {
    const button = element("button", this.name(row.root), cell);
    button.title = "Show its spans";
    button.addEventListener("click", () => this.choose(row.tree));
  },

  // `field=value` wants a field with exactly this value, anything else a part of a text.
  find(text) {
    const at = text.indexOf("="), words = text.trim().toLowerCase();
    const plain = (value) => (value.startsWith('"') ? value.slice(1, -1) : value);
    const [name, value] = [text.slice(0, at).trim(), plain(text.slice(at + 1).trim())];
    const isField = (field) => field[0] === name && plain(field[1]) === value;
    const has = ({ fields }) => (at > 0 ? fields.some(isField) : fields.some(([name, value]) => `${name} = ${value}`.toLowerCase().includes(words)));
    const isNamed = (span) => at <= 0 && this.name(span).toLowerCase().includes(words);
    this.wanted = words === "" ? () => true : (tree) => tree.spans.some((span) => has(span) || isNamed(span) || span.events.some(has));
    this.draw();
  },

  draw() {
    if (!this.data) return;
    this.table.draw();
    const shown = this.rows.filter((row) => this.wanted(row.tree)).length;
    const further = this.data.further > 0 ? `; ${integer(this.data.further)} faster ones are not in the page: usertrace spans has them` : "";
    document.getElementById("found").textContent = `${integer(shown)} of the ${integer(this.rows.length)} slowest${further}`;
    if (this.chosen) this.drawWaterfall();
  },

  search() {
    if (this.data) this.input.select();
  },

  choose(tree) {
    this.chosen = tree;
    this.folded.clear();
    this.selected = 0;
    this.drawWaterfall();
    this.focus();
  },

  // The spans in order: parents before their children.
  order(tree) {
    const below = tree.spans.map(() => []);
    tree.spans.forEach((span, index) => span.parent >= 0 && below[span.parent].push(index));
    const order = [], rest = [[0, 0]];
    while (rest.length > 0) {
      const [index, depth] = rest.pop();
      order.push({ span: tree.spans[index], index, depth, hasBelow: below[index].length > 0 });
      if (!this.folded.has(index)) for (const child of below[index].reverse()) rest.push([child, depth + 1]);
    }
    return order;
  },

  drawWaterfall() {
    const { box, chosen: tree } = this, root = tree.spans[0];
    const end = Math.max(...this.ends(tree)), length = Math.max(end - root.begin, 1);
    const all = this.order(tree);
    this.lines = all.slice(0, this.most);
    box.replaceChildren();
    for (const entry of this.lines) this.drawLine(entry, root.begin, length);
    const further = all.length - this.lines.length + tree.left_out;
    if (further > 0) element("p", `and ${integer(further)} spans, events and periods of threads that have no room`, box);
    this.select(this.selected, false);
  },

  *ends(tree) {
    // Spans may outlive their root.
    for (const span of tree.spans.slice(0, 20000)) yield span.begin + span.duration;
  },

  drawLine(entry, begin, length) {
    const { span, index, depth, hasBelow } = entry, line = element("div", undefined, this.box);
    line.className = "span";
    line.setAttribute("role", "treeitem");
    line.setAttribute("aria-level", depth + 1);
    if (hasBelow) line.setAttribute("aria-expanded", String(!this.folded.has(index)));
    line.tabIndex = -1;
    const mark = hasBelow ? (this.folded.has(index) ? "▸ " : "▾ ") : "";
    const name = element("span", mark + this.name(span), line);
    name.className = "name";
    name.style.paddingLeft = `${Math.min(depth, 12) * 14}px`;
    name.title = this.text(span);
    element("span", duration(span.duration), line).className = "time";
    const bar = element("span", undefined, line);
    bar.className = "bar";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", this.spoken(span));
    const place = (kind, from, to) => {
      const part = element("span", undefined, bar);
      part.className = kind;
      part.style.left = `${((from - begin) / length) * 100}%`;
      if (to !== undefined) part.style.width = `${((to - from) / length) * 100}%`;
      return part;
    };
    place("open", span.begin, span.begin + span.duration);
    for (const [thread, from, to] of span.stays.slice(0, 500)) {
      const stay = place("stay", from, to);
      stay.style.background = colorOf(thread);
      stay.title = `${this.thread(thread)}: ${duration(to - from)}`;
    }
    for (const event of span.events.slice(0, 200)) {
      const lasts = event.duration >= 0;
      const part = place(lasts ? "event lasting" : "event", event.time, lasts ? event.time + event.duration : undefined);
      part.title = `${this.eventName(event)}: ${event.fields.map((field) => field.join(" = ")).join(", ")}`;
    }
    line.addEventListener("click", () => {
      this.select(index, true);
    });
    line.addEventListener("dblclick", () => this.fold(index, !this.folded.has(index)));
    entry.line = line;
  },

  thread(number) {
    const [, tid, name] = this.data.threads[number];
    return tid === null ? "a thread that the trace does not know" : `${name || "thread"} ${tid}`;
  },

  // What a bar shows, for those who do not see it.
  spoken(span) {
    const threads = [...new Set(span.stays.map(([thread]) => this.thread(thread)))];
    return `busy ${duration(span.busy)} of ${duration(span.duration)}${threads.length > 0 ? " in " + threads.join(", ") : ""}`;
  },

  select(index, focuses) {
    const at = Math.max(0, this.lines.findIndex((entry) => entry.index === index));
    this.selected = this.lines[at].index;
    this.lines.forEach(({ line }, n) => {
      line.setAttribute("aria-selected", String(n === at));
      line.tabIndex = n === at ? 0 : -1;
    });
    this.drawSpan(this.lines[at].span);
    if (focuses) this.focus();
  },

  focus() {
    const entry = this.lines.find((entry) => entry.index === this.selected);
    entry?.line.focus();
  },

  fold(index, isFolded) {
    if (isFolded) this.folded.add(index);
    else this.folded.delete(index);
    this.drawWaterfall();
    this.focus();
  },

  // All that is known of a span.
  drawSpan(span) {
    const box = document.getElementById("span");
    box.replaceChildren();
    element("h3", `${this.name(span)} ${span.id}`, box);
    const rows = (lines) => {
      const table = element("table", undefined, box);
      for (const cells of lines) {
        const row = element("tr", undefined, table);
        for (const cell of cells) element("td", cell, row);
      }
    };
    const marks = [span.orphan ? "its parent is not in the trace" : "", span.ending].filter(Boolean);
    rows([
      ["began", timeOfDay(span.begin)],
      ["lasted", `${duration(span.duration)}: busy ${duration(span.busy)}, idle ${duration(Math.max(span.duration - span.busy, 0))}`],
      ...marks.map((mark) => ["note", mark]),
      ...span.follows.map((id) => ["follows from", /^0+$/.test(id) ? "a span that is not in the trace" : id]),
      ...span.fields,
    ]);
    if (span.stays.length > 0) {
      element("h3", "Threads in it", box);
      rows(span.stays.slice(0, 200).map(([thread, from, to]) => [`+${duration(from - span.begin)}`, this.thread(thread), duration(to - from)]));
    }
    if (span.events.length > 0) {
      element("h3", "Events in it", box);
      rows(span.events.slice(0, 200).map((event) => [
        `+${duration(event.time - span.begin)}`, this.thread(event.thread), this.eventName(event),
        event.fields.map((field) => field.join(" = ")).join(", "),
      ]));
    }
    for (const [what, count] of [["threads", span.stays.length], ["events", span.events.length]]) {
      if (count > 200) element("p", `and ${integer(count - 200)} more ${what}`, box);
    }
  },

  // What began and ended has its duration behind its name.
  eventName(event) {
    const name = this.data.names[event.name];
    return event.duration >= 0 ? `${name} ${duration(event.duration)}` : name;
  },

  keys(event) {
    // The keys of the timeline are not meant here.
    event.stopPropagation();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === this.input) {
      const first = this.rows.find((row) => this.wanted(row.tree));
      if (event.key === "Enter" && first) this.choose(first.tree);
      else if (event.key === "Escape") {
        this.input.value = "";
        this.find("");
        Timeline.box.focus();
      } else return;
      event.preventDefault();
      return;
    }
    if (!this.box.contains(event.target)) {
      if (event.key === "Escape") this.search();
      return;
    }
    const at = this.lines.findIndex((entry) => entry.index === this.selected), { span, index, hasBelow } = this.lines[at];
    const to = (n) => this.select(this.lines[Math.min(Math.max(n, 0), this.lines.length - 1)].index, true);
    const actions = {
      ArrowUp: () => to(at - 1), ArrowDown: () => to(at + 1), Home: () => to(0), End: () => to(this.lines.length - 1),
      ArrowLeft: () => (hasBelow && !this.folded.has(index) ? this.fold(index, true) : this.select(Math.max(span.parent, 0), true)),
      ArrowRight: () => (hasBelow && this.folded.has(index) ? this.fold(index, false) : to(at + 1)),
      Enter: () => View.show(span.begin - span.duration * 0.05, span.begin + span.duration * 1.05),
      Escape: () => this.search(), r: () => this.search(),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  },
};
