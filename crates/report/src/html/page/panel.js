"use strict";
// Describes what is selected, and what is under the pointer.

const Panel = {
  box: document.getElementById("panel"),
  tooltip: document.getElementById("tooltip"),

  // Lines that describe a drawn object.
  describe(found, x) {
    if (found.part) {
      const { part, n } = found, lines = [Data.classes[part.events[n]].name, timeOfDay(part.times[n]), textOf(part, n)];
      if (part.pairs[n] >= 0) lines.push(`ends ${Data.pairs[part.pairs[n]].name}: ${duration(part.durations[n])}`);
      return lines;
    }
    if (found.span) {
      const { span } = found, end = span.isOpen ? "had not ended" : `to ${timeOfDay(span.begin + span.duration)}`;
      return [Data.pairs[span.pair].name, `${duration(span.duration)} (${integer(span.duration)} ns)`, `from ${timeOfDay(span.begin)} ${end}`, laneName(span.lane)];
    }
    if (found.loss) {
      const { loss } = found, cpu = loss.cpu === null ? "" : ` on CPU ${loss.cpu}`;
      return [`${lossText(loss)}${cpu}`, processName(loss.process), `between ${timeOfDay(loss.begin)} and ${timeOfDay(loss.end)}`];
    }
    if (found.crash) return [Crash.label, timeOfDay(Crash.at), `the last event is of ${timeOfDay(Crash.last)}`, ...crashLines()];
    if (found.row?.lane !== undefined && x >= GUTTER) return this.counts(found.row, x);
    if (found.row?.kind === "process") {
      const process = Data.processes[found.row.process];
      const lines = [processName(found.row.process), `${integer(process.events)} events`];
      if (Data.hosts.length > 1) lines.push(`host ${hostName(process.host)}`);
      if (process.cmdline) lines.push(process.cmdline);
      if (process.trace) lines.push(`trace ${process.trace}`);
      if (process.blocks !== null) lines.push(`at the end ${integer(process.blocks)} blocks of memory, ${bytes(process.bytes)}, were in use`);
      return lines;
    }
    if (found.row?.kind === "group") {
      const processes = Model.processesOf(found.row.host), events = processes.reduce((sum, of) => sum + Data.processes[of].events, 0);
      return [`host ${hostName(found.row.host)}`, `${integer(processes.length)} ${processes.length === 1 ? "process" : "processes"}`, `${integer(events)} events`];
    }
    return found.row?.lane !== undefined ? [laneName(found.row.lane), `${integer(Data.lanes[found.row.lane].events)} events`] : [];
  },

  // The approximate numbers of events around a position in a lane, by class.
  counts(row, x) {
    const [begin, end] = [Timeline.time(x - 1), Timeline.time(x + 1)];
    // At least a whole bin: the distribution within a bin is unknown.
    const [from, to] = [Math.floor(begin / Model.bin), Math.max(Math.floor(begin / Model.bin) + 1, end / Model.bin)];
    const counts = Model.ofLane[row.lane].filter((series) => View.wanted[series.event]);
    const some = counts.map((series) => [series.between(from, to), series.event]).filter(([count]) => count > 0);
    some.sort((a, b) => b[0] - a[0]);
    const lines = [`${laneName(row.lane)} at ${timeOfDay(begin)}`];
    for (const [count, event] of some.slice(0, 6)) lines.push(`${integer(count)} × ${Data.classes[event].name}`);
    if (some.length > 6) lines.push(`and ${some.length - 6} other kinds`);
    return some.length > 0 ? [...lines, `in ${duration((to - from) * Model.bin)}`] : lines.slice(0, 1);
  },

  point(x, y, found) {
    const lines = found ? this.describe(found, x) : [];
    this.tooltip.hidden = lines.length === 0;
    this.tooltip.textContent = lines.map((line) => (line.length > 400 ? line.slice(0, 400) + "…" : line)).join("\n");
  },

  move(x, y) {
    const { tooltip } = this;
    tooltip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tooltip.offsetWidth - 8))}px`;
    tooltip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - tooltip.offsetHeight - 8))}px`;
  },

  select(found) {
    View.selected = found?.part ? { part: found.part, n: found.n } : null;
    const { box } = this;
    box.replaceChildren();
    if (!found || found.row) {
      element("p", "Click on something, or press n for the next event.", box);
    } else if (found.part) {
      this.showEvent(found.part, found.n);
    } else {
      const [head, ...lines] = this.describe(found);
      element("h2", head, box);
      for (const line of lines) element("p", line, box);
    }
    View.changed();
  },

  showEvent(part, n) {
    const { box } = this, text = textOf(part, n);
    element("h2", Data.classes[part.events[n]].name, box);
    const table = element("table", undefined, box);
    const row = (name, value) => {
      const line = element("tr", undefined, table);
      element("td", name, line);
      element("td", value, line);
    };
    const lane = part.lanes[n];
    row("time", timeOfDay(part.times[n]));
    row("since the first", `${integer(part.times[n])} ns`);
    if (Data.hosts.length > 1) row("host", hostName(Data.processes[Data.lanes[lane].of].host));
    row("process", processName(Data.lanes[lane].of));
    row("thread", laneName(lane));
    if (part.cpus[n] >= 0) row("CPU", Data.lanes[part.cpus[n]].id);
    if (part.pairs[n] >= 0) row("ends", `${Data.pairs[part.pairs[n]].name}, after ${duration(part.durations[n])}`);
    element("h2", "Fields", box);
    const fields = element("table", undefined, box);
    fields.id = "fields";
    for (const [name, value] of fieldsOf(text)) {
      const line = element("tr", undefined, fields);
      element("td", name, line);
      element("td", value, line);
    }
    element("pre", text, box);
  },
};

function crashLines() {
  if (Crash.isExact) {
    const where = Crash.cpu === null ? "" : ` on CPU ${Crash.cpu}`, who = Crash.thread === null ? "" : `, in thread ${Crash.thread}`;
    // After a crash, other CPUs continue for some microseconds.
    const after = Crash.at - Crash.last, order = after < 0 ? "before" : "after";
    return [`the kernel crashed ${duration(Math.abs(after))} ${order} it${where}${who}`];
  }
  if (Crash.time === null) return ["when the kernel crashed, the dump does not say"];
  const ns = Number(BigInt(Crash.time) * 1000000000n - first);
  return [`the kernel crashed at ${timeOfDay(ns, 0)}, as the dump says to the second`];
}
