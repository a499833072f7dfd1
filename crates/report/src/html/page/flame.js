"use strict";
// A tree of weights as rows of boxes: callers above, what they call below. A box is as wide as its
// share. Boxes are elements of a tree, so a keyboard and a screen reader can walk it.

const ROW = 19;

class Flame {
  // `tree`: parent, name and own (by weight) of each node; parents come first, node 0 is the root.
  constructor(box, tree, callbacks) {
    this.box = box;
    this.tree = tree;
    this.callbacks = callbacks;
    this.children = tree.parent.map(() => []);
    tree.parent.forEach((parent, n) => n > 0 && this.children[parent].push(n));
    this.zoomed = 0;
    this.focused = 0;
    this.words = "";
    this.boxes = new Map();
    this.totals = null;
    box.addEventListener("click", (event) => this.click(event));
    box.addEventListener("pointermove", (event) => this.point(event));
    box.addEventListener("pointerleave", () => Panel.point(0, 0, null));
    box.addEventListener("focusin", (event) => {
      const n = Number(event.target.dataset.node);
      if (event.target !== box && !Number.isNaN(n)) this.focus(n, false);
    });
    new ResizeObserver(() => this.draw()).observe(box.parentElement);
  }

  // Shows another weight.
  weigh(weight) {
    this.weight = weight;
    const { parent, own } = this.tree;
    this.totals = Float64Array.from(own[weight]);
    for (let n = parent.length - 1; n > 0; n--) this.totals[parent[n]] += this.totals[n];
    for (const all of this.children) all.sort((a, b) => this.totals[b] - this.totals[a] || a - b);
    if (this.totals[this.zoomed] === 0) this.zoomed = 0;
    if (this.totals[this.focused] === 0) this.focused = this.zoomed;
    this.draw();
  }

  // The nodes from the root to a node.
  path(n) {
    const path = [n];
    while (path[0] !== 0) path.unshift(this.tree.parent[path[0]]);
    return path;
  }

  isWithin(n, outer) {
    while (n !== outer && n !== 0) n = this.tree.parent[n];
    return n === outer;
  }

  zoom(n) {
    this.zoomed = n;
    this.draw();
    this.focus(n);
  }

  search(words) {
    this.words = words.trim().toLowerCase();
    this.draw();
  }

  matches(n) {
    return this.words !== "" && this.callbacks.search(n).includes(this.words);
  }

  // What the matching boxes have of the shown ones, each once.
  found() {
    if (this.words === "") return null;
    let sum = 0;
    const visit = (n) => {
      if (this.matches(n)) sum += this.totals[n];
      else for (const child of this.children[n]) visit(child);
    };
    visit(this.zoomed);
    return sum;
  }

  // Lays out and draws. Boxes that are narrower than a pixel and a half have no element.
  draw() {
    const width = this.box.clientWidth, hadFocus = this.box.contains(document.activeElement);
    // Nothing is weighed yet, or the section is hidden.
    if (width === 0 || this.totals === null) return;
    const path = this.path(this.zoomed), rows = [];
    path.forEach((n, depth) => rows.push({ n, depth, left: 0, width }));
    const scale = this.totals[this.zoomed] > 0 ? width / this.totals[this.zoomed] : 0;
    // Wider boxes first, so that a limit leaves out the narrowest ones.
    for (let at = path.length - 1; at < rows.length && rows.length < 12000; at++) {
      const { n, depth, left } = rows[at];
      let x = left;
      for (const child of this.children[n]) {
        const wide = this.totals[child] * scale;
        if (wide >= 1.5) rows.push({ n: child, depth: depth + 1, left: x, width: wide });
        x += wide;
      }
    }
    const deepest = rows.reduce((most, row) => Math.max(most, row.depth), 0);
    this.box.style.height = `${(deepest + 1) * ROW}px`;
    this.boxes = new Map(rows.map((row) => [row.n, this.draw1(row)]));
    this.box.replaceChildren(...this.boxes.values());
    if (!this.boxes.has(this.focused)) this.focused = this.zoomed;
    this.boxes.get(this.focused).tabIndex = 0;
    if (hadFocus) this.boxes.get(this.focused).focus({ preventScroll: true });
    this.callbacks.changed();
  }

  draw1({ n, depth, left, width }) {
    const made = document.createElement("div"), { color, text, kind } = this.callbacks.name(n);
    made.className = `frame ${kind}`;
    made.dataset.node = n;
    made.tabIndex = -1;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", depth + 1);
    made.setAttribute("aria-label", this.callbacks.describe(n)[0]);
    if (this.children[n].length > 0) made.setAttribute("aria-expanded", "true");
    made.style.left = `${left}px`;
    made.style.top = `${depth * ROW}px`;
    made.style.width = `${Math.max(width - 1, 1)}px`;
    if (width > 24) made.textContent = text;
    if (this.words !== "") made.classList.add(this.matches(n) ? "found" : "other");
    else if (color) made.style.background = color;
    return made;
  }

  // Describes a node, and gives it the focus of the keyboard.
  focus(n, moves = true) {
    const before = this.boxes.get(this.focused), box = this.boxes.get(n);
    if (!box) return;
    if (before) {
      before.tabIndex = -1;
      before.removeAttribute("aria-selected");
    }
    this.focused = n;
    box.tabIndex = 0;
    box.setAttribute("aria-selected", "true");
    if (moves) box.focus();
    this.callbacks.focused(n);
  }

  at(event) {
    const box = event.target.closest(".frame");
    return box ? Number(box.dataset.node) : null;
  }

  click(event) {
    const n = this.at(event);
    if (n !== null) this.zoom(n);
  }

  point(event) {
    const n = this.at(event), { tooltip } = Panel;
    tooltip.hidden = n === null;
    if (n === null) return;
    tooltip.textContent = this.callbacks.describe(n).join("\n");
    Panel.move(event.clientX, event.clientY);
  }

  // Handles a key. Returns whether it has a meaning here.
  key(key) {
    const n = this.focused, { parent } = this.tree;
    const drawn = (all) => all.filter((n) => this.boxes.has(n));
    const beside = (by) => {
      const all = drawn(this.children[parent[n]]), at = all.indexOf(n) + by;
      if (n !== 0 && all[at] !== undefined) this.focus(all[at]);
    };
    const actions = {
      ArrowUp: () => n !== 0 && this.focus(parent[n]),
      ArrowDown: () => {
        const [first] = drawn(this.children[n]);
        if (first !== undefined) this.focus(first);
      },
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      Home: () => this.focus(0),
      Enter: () => this.zoom(n),
      " ": () => this.zoom(n),
      Escape: () => this.zoom(this.zoomed === 0 ? 0 : parent[this.zoomed]),
      0: () => this.zoom(0),
    };
    if (!Object.hasOwn(actions, key)) return false;
    actions[key]();
    return true;
  }
}
