"use strict";
// Calls of functions as a tree: who called whom, how often, and how long that took.

const Calls = {
  most: 3000, // rows
  nodes: [],
  open: new Set(),
  found: new Set(),
  selected: 0,
  rows: [],

  async start() {
    if (document.getElementById("calls-data").textContent === "") return;
    const data = JSON.parse(decoder.decode(await inflate("calls-data")));
    this.nodes = data.nodes.map(([parent, process, name, calls, without_exit, total, own], index) => ({
      index, parent, process, name: data.names[name], calls, without_exit, total, own, below: [], isRoot: parent === index,
    }));
    for (const node of this.nodes) if (!node.isRoot) this.nodes[node.parent].below.push(node);
    for (const node of [...this.nodes].reverse()) {
      node.below.sort((a, b) => b.total - a.total);
      // A process lasts as long as what it calls, in all threads.
      if (node.isRoot) node.total = node.below.reduce((sum, call) => sum + call.total, 0);
    }
    this.roots = this.nodes.filter((node) => node.isRoot).sort((a, b) => b.total - a.total);
    for (const root of this.roots) this.open.add(root.index);
    this.notes(data);
    document.getElementById("calls").hidden = false;
    this.body = document.querySelector("#calls-tree tbody");
    this.input = document.getElementById("calls-find");
    this.input.addEventListener("input", () => this.find(this.input.value));
    document.getElementById("calls").addEventListener("keydown", (event) => this.keys(event));
    this.selected = this.roots[0].index;
    this.draw();
  },

  notes(data) {
    const notes = document.getElementById("calls-notes"), note = (text) => element("li", text, notes);
    const lost = this.nodes.reduce((sum, node) => sum + node.without_exit, 0);
    if (lost > 0) note(`${integer(lost)} calls had no exit: an exception or longjmp left them, the event was lost, or they had not returned at the end. They last up to what showed that.`);
    if (data.unbegun > 0) note(`${integer(data.unbegun)} functions returned whose calls are not in the trace.`);
    if (data.left_out > 0) note(`${integer(data.left_out)} calls had no room.`);
    if (data.further > 0) note(`${integer(data.further)} kinds of calls that took the least time are not in the page.`);
    if (data.mixes_threads) note("This trace does not tell threads apart, so calls of several threads may be mixed: record --context vtid tells them apart.");
  },

  name(node) {
    return node.isRoot ? processName(node.process) : node.name;
  },

  find(text) {
    const word = text.trim().toLowerCase();
    this.found.clear();
    if (word !== "") {
      for (const node of this.nodes) {
        if (node.isRoot || !node.name.toLowerCase().includes(word)) continue;
        this.found.add(node.index);
        for (let at = node; !at.isRoot; at = this.nodes[at.parent]) this.open.add(at.parent);
      }
      const first = this.order().find(({ node }) => this.found.has(node.index));
      if (first) this.selected = first.node.index;
    }
    const total = [...this.found].reduce((sum, index) => sum + this.nodes[index].own, 0);
    document.getElementById("calls-found").textContent = word === "" ? "" : `${integer(this.found.size)} places, ${duration(total)} in themselves`;
    this.draw();
  },

  // The open nodes, callers before what they call.
  order() {
    const order = [], rest = this.roots.map((node) => ({ node, depth: 0 })).reverse();
    while (rest.length > 0 && order.length <= this.most) {
      const entry = rest.pop();
      order.push(entry);
      if (!this.open.has(entry.node.index)) continue;
      for (const node of [...entry.node.below].reverse()) rest.push({ node, depth: entry.depth + 1 });
    }
    return order;
  },

  draw() {
    const all = this.order();
    this.rows = all.slice(0, this.most);
    this.body.replaceChildren();
    for (const entry of this.rows) this.drawRow(entry);
    if (all.length > this.most) element("td", "and more: close some callers", element("tr", undefined, this.body));
    this.select(this.selected, false);
  },

  drawRow(entry) {
    const { node, depth } = entry, row = element("tr", undefined, this.body);
    const isOpen = this.open.has(node.index), mark = node.below.length === 0 ? "" : isOpen ? "▾ " : "▸ ";
    row.setAttribute("role", "row");
    row.setAttribute("aria-level", depth + 1);
    if (node.below.length > 0) row.setAttribute("aria-expanded", String(isOpen));
    row.classList.toggle("found", this.found.has(node.index));
    const whole = node.isRoot ? 0 : this.nodes[node.parent].total;
    const cells = [
      mark + this.name(node), duration(node.total), node.isRoot ? "" : duration(node.own), node.isRoot ? "" : integer(node.calls),
      node.calls > 0 ? duration(node.total / node.calls) : "", whole > 0 ? `${((node.total / whole) * 100).toFixed(1)}%` : "",
    ];
    for (const text of cells) element("td", text, row).setAttribute("role", "gridcell");
    row.firstChild.style.paddingLeft = `${8 + Math.min(depth, 40) * 14}px`;
    row.addEventListener("click", () => {
      this.selected = node.index;
      this.toggle(node, !this.open.has(node.index));
    });
    entry.row = row;
  },

  toggle(node, isOpen) {
    if (node.below.length > 0) {
      if (isOpen) this.open.add(node.index);
      else this.open.delete(node.index);
      this.draw();
    }
    this.select(node.index, true);
  },

  select(index, focuses) {
    const at = Math.max(0, this.rows.findIndex(({ node }) => node.index === index));
    this.selected = this.rows[at].node.index;
    this.rows.forEach(({ row }, n) => {
      row.tabIndex = n === at ? 0 : -1;
      row.setAttribute("aria-selected", String(n === at));
    });
    if (focuses) this.rows[at].row.focus();
  },

  keys(event) {
    // The keys of the timeline are not meant here.
    event.stopPropagation();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === this.input) {
      if (event.key === "Enter") this.select(this.selected, true);
      else if (event.key === "Escape") {
        this.input.value = "";
        this.find("");
      } else return;
      event.preventDefault();
      return;
    }
    const at = this.rows.findIndex(({ node }) => node.index === this.selected), { node } = this.rows[at];
    const to = (n) => this.select(this.rows[Math.min(Math.max(n, 0), this.rows.length - 1)].node.index, true);
    const isOpen = this.open.has(node.index) && node.below.length > 0;
    const actions = {
      ArrowUp: () => to(at - 1), ArrowDown: () => to(at + 1), Home: () => to(0), End: () => to(this.rows.length - 1),
      ArrowRight: () => (isOpen || node.below.length === 0 ? to(at + 1) : this.toggle(node, true)),
      ArrowLeft: () => (isOpen ? this.toggle(node, false) : this.select(node.parent, true)),
      Enter: () => this.toggle(node, !isOpen), Escape: () => this.input.select(), "/": () => this.input.select(),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  },
};
