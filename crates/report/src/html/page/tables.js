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

const BARS = "▁▂▃▄▅▆▇█";

// The range of values in a bucket of a histogram.
function bucketRange(n) {
  if (n === 0) return "≤ 0";
  return n === 63 ? `≥ ${short(2 ** 62)}` : n === 1 ? "1" : `${short(2 ** (n - 1))} to ${short(2 ** n)}`;
}

// A histogram as a line of bars, from the first bucket that is used on.
function bars(row, cell) {
  const first = row.histogram.findIndex((count) => count > 0);
  if (first < 0) return;
  const most = Math.max(...row.histogram);
  const used = row.histogram.slice(first);
  const bar = (count) => (count === 0 ? " " : BARS[Math.min(7, Math.floor((count / most) * 8))]);
  const line = element("span", used.map(bar).join(""), cell);
  line.className = "bars";
  const lines = used.map((count, n) => `${bucketRange(first + n)}: ${integer(count)}`);
  line.title = lines.join("\n");
  line.setAttribute("role", "img");
  line.setAttribute("aria-label", lines.join(", "));
  element("span", ` ${bucketRange(first)} … ${bucketRange(row.histogram.length - 1)}`, cell);
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

  // Counters of channels that count, if there are any.
  startCounters() {
    if (Data.counters.length === 0) return;
    document.getElementById("counted").hidden = false;
    const number = (name, value) => ({ name, value, text: (row) => integer(value(row)) });
    const ofValues = (name, value) => ({ name, value, text: (row) => (row.values > 0 ? integer(value(row)) : "–") });
    const event = (row) => row.event || "(no room in the table)";
    const key = (row) => (row.key_name && row.key ? `${row.key_name}=${row.key}` : "");
    const counters = new Table("counters", "Counters", [
      { name: "event", value: event, text: event },
      { name: "key", value: key, text: key },
      { name: "value", value: (row) => row.value_name, text: (row) => row.value_name },
      number("count", (row) => row.count),
      ofValues("sum", (row) => row.sum),
      ofValues("mean", (row) => (row.values > 0 ? row.sum / row.values : 0)),
      ofValues("lowest", (row) => row.min),
      ofValues("highest", (row) => row.max),
      { name: "distribution", value: (row) => row.values, cell: bars },
    ], () => [...Data.counters], 3);
    counters.draw();
  },

  draw() {
    this.classes.draw();
    this.pairs.draw();
  },
};
