"use strict";
// Tables of all classes of events, and of all spans, sortable by a click.

class Table {
  constructor(id, caption, columns, rows, sorted) {
    this.table = document.getElementById(id);
    this.columns = columns;
    this.rows = rows;
    this.sorted = sorted;
    this.down = true;
    this.table.setAttribute("aria-label", caption);
    const head = element("tr", undefined, element("thead", undefined, this.table));
    this.heads = columns.map((column, n) => {
      const cell = element("th", undefined, head), button = element("button", column.name, cell);
      cell.scope = "col";
      button.addEventListener("click", () => {
        this.down = this.sorted === n ? !this.down : n > 0;
        this.sorted = n;
        this.draw();
      });
      return cell;
    });
    this.body = element("tbody", undefined, this.table);
  }

  draw() {
    const of = this.columns[this.sorted].value, sign = this.down ? -1 : 1;
    this.heads.forEach((head, n) => head.setAttribute("aria-sort", n !== this.sorted ? "none" : this.down ? "descending" : "ascending"));
    const rows = this.rows().sort((a, b) => sign * (of(a) > of(b) ? 1 : of(a) < of(b) ? -1 : 0));
    this.body.replaceChildren();
    for (const row of rows.slice(0, 500)) {
      const line = element("tr", undefined, this.body);
      for (const column of this.columns) {
        const cell = element("td", column.cell ? undefined : column.text(row), line);
        column.cell?.(row, cell);
      }
    }
    if (rows.length > 500) element("td", `and ${rows.length - 500} more; the filter finds them`, element("tr", undefined, this.body));
  }
}

function filterFor(name) {
  document.getElementById("filter").value = name;
  View.filter(name);
}

function named(name, color, cell) {
  const swatch = element("span", undefined, cell), button = element("button", name, cell);
  swatch.className = "swatch";
  swatch.style.background = color;
  button.title = "Filter by it";
  button.addEventListener("click", () => filterFor(name.split(" → ")[0]));
}

const Tables = {
  inView: new Float64Array(Data.classes.length),

  start() {
    const seconds = Math.max(Data.end, 1) / 1e9;
    const number = (name, value) => ({ name, value, text: (row) => integer(value(row)) });
    const time = (name, value) => ({ name, value, text: (row) => (row.count > 0 ? duration(value(row)) : "–") });
    this.classes = new Table("classes", "Kinds of events", [
      { name: "event", value: (row) => row.name, cell: (row, cell) => named(row.name, colorOf(row.n), cell) },
      number("count", (row) => row.events),
      { name: "per second", value: (row) => row.events, text: (row) => short(row.events / seconds) },
      { name: "in view, about", value: (row) => this.inView[row.n], text: (row) => integer(this.inView[row.n]) },
    ], () => Data.classes.map((row, n) => ({ ...row, n })).filter((row) => View.wanted[row.n] && row.events > 0), 1);
    this.pairs = new Table("pairs", "What lasts", [
      { name: "from → to", value: (row) => row.name, cell: (row, cell) => named(row.name, colorOf(Data.classes.length + row.n), cell) },
      number("count", (row) => row.count),
      time("shortest", (row) => row.min),
      time("mean", (row) => row.mean),
      time("99 %, about", (row) => row.p99),
      time("longest", (row) => row.max),
      number("no end seen", (row) => row.unended),
      number("no beginning seen", (row) => row.unbegun),
    ], () => Data.pairs.map((row, n) => ({ ...row, n })).filter((row) => View.wantedPairs[row.n] && row.count + row.unended + row.unbegun > 0), 1);
  },

  draw() {
    this.classes.draw();
    this.pairs.draw();
  },
};
