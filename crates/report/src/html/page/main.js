"use strict";
// The header, keys and pointers, and the start.

function header() {
  document.getElementById("title").textContent = Data.title;
  const hosts = Data.hosts.filter((host) => host !== "").join(", ");
  const facts = [
    hosts && `${Data.hosts.length > 1 ? "hosts" : "host"} ${hosts}`,
    Data.begin !== null && `${dateOf(0)} ${timeOfDay(0)} – ${timeOfDay(Data.end)} (${duration(Data.end)})`,
    `${integer(Data.events)} events`,
    `${integer(Data.lost_events)} lost`,
    `${Data.processes.length} ${Data.processes.length === 1 ? "process" : "processes"}`,
    Data.detailed < Data.events && `${integer(Data.detailed)} of them one by one`,
    `usertrace ${Data.version}`,
  ];
  document.getElementById("facts").textContent = facts.filter(Boolean).join(" · ");
  const notes = document.getElementById("notes"), note = (text) => element("li", text, notes);
  if (Data.events === 0) note("There are no events.");
  if (Data.lost_events > 0) note(`${integer(Data.lost_events)} events were lost: marked red, l shows the next place.`);
  if (Data.lost_packets > 0) note(`${integer(Data.lost_packets)} packets were overwritten before they were read; how many events were in them nobody knows.`);
  if (Data.processes.some((process) => process.crash?.may_be_forged)) note("The dump did not say where its traces are, and a search found them. A program may have forged them.");
  if (Crash.at !== null) note(`Out of the dump of a kernel that crashed. The last event is of ${timeOfDay(Crash.last)}; ${crashLines()[0]}.`);
  const isUnknown = (lane) => lane.kind === "process" && Data.pairs.some((pair) => !pair.is_async);
  if (Data.lanes.some(isUnknown)) note("This trace does not tell all threads apart, so what seems to last may be of two threads: record --context vtid,procname tells them apart.");
  for (const line of Data.clocks) note(line);
  for (const problem of Data.problems) note(problem);
  if (Data.nr_problems > Data.problems.length) note(`and ${Data.nr_problems - Data.problems.length} more of that`);
}

const STATES = {
  zoom: "zoom in for single events",
  loading: "single events are loading",
  all: "all single events are here",
  "left out": "some single events were left out: report --from --to of this time has them",
  damaged: "single events cannot be read",
};

function status() {
  const counts = Tables.inView.filter((count, n) => View.wanted[n]);
  const events = counts.reduce((a, b) => a + b, 0);
  const times = `${timeOfDay(Math.max(View.begin, 0), 6)} – ${timeOfDay(Math.min(View.end, Data.end), 6)} (${duration(View.end - View.begin)})`;
  document.getElementById("status").textContent = `${times}: about ${integer(events)} events, ${STATES[Timeline.detail.state]}`;
}

// Selects the next or previous matching event among the loaded ones.
function step(forward) {
  const { parts } = Timeline.detail, { selected } = View;
  const from = selected && selected.part.times[selected.n] >= View.begin && selected.part.times[selected.n] <= View.end ? selected : null;
  let best = null;
  const isNearer = (a, b) => forward === a < b;
  for (const part of parts) {
    for (let n = 0; n < part.count; n++) {
      const time = part.times[n];
      if (!View.wanted[part.events[n]] || time < View.begin || time > View.end) continue;
      if (from) {
        // Events at the same time have an order, too.
        const isBehind = time !== from.part.times[from.n] ? time > from.part.times[from.n] : part === from.part && n > from.n;
        if (isBehind !== forward || (part === from.part && n === from.n)) continue;
      }
      if (!best || isNearer(time, best.part.times[best.n]) || (!forward && time === best.part.times[best.n])) best = { part, n };
    }
  }
  if (best) Panel.select(best);
}

function nextLoss() {
  const losses = [...Data.losses].sort((a, b) => a.begin - b.begin);
  if (losses.length === 0) return;
  const middle = (View.begin + View.end) / 2;
  const loss = losses.find((loss) => (loss.begin + loss.end) / 2 > middle + 1 && !(View.lastLoss === loss)) ?? losses[0];
  View.lastLoss = loss;
  const length = Math.max((loss.end - loss.begin) * 3, 1000), at = (loss.begin + loss.end) / 2;
  View.show(at - length / 2, at + length / 2);
  Panel.select({ loss });
}

function keys(event) {
  const box = Timeline.box, filter = document.getElementById("filter"), help = document.getElementById("help");
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (document.getElementById("stacks").contains(event.target)) {
    if (Stacks.key(event)) event.preventDefault();
    else if (event.key === "?" && event.target !== Stacks.search) help.showModal();
    return;
  }
  if (event.target === filter) {
    if (event.key === "Escape" || event.key === "Enter") box.focus();
    if (event.key === "Escape") filterFor("");
    return;
  }
  const actions = {
    "+": () => View.zoom(1 / 1.6), "=": () => View.zoom(1 / 1.6), w: () => View.zoom(1 / 1.6),
    "-": () => View.zoom(1.6), s: () => View.zoom(1.6),
    a: () => View.pan(-0.2), d: () => View.pan(0.2),
    ArrowLeft: () => View.pan(-0.1), ArrowRight: () => View.pan(0.1),
    0: () => View.fit(), Home: () => View.fit(),
    e: toEnd, End: toEnd,
    ArrowUp: () => box.scrollBy(0, -40), ArrowDown: () => box.scrollBy(0, 40),
    PageUp: () => box.scrollBy(0, -box.clientHeight), PageDown: () => box.scrollBy(0, box.clientHeight),
    c: fold,
    r: () => Requests.search(),
    n: () => step(true), p: () => step(false), l: nextLoss,
    "/": () => filter.select(), "?": () => help.showModal(),
  };
  const isButton = event.target instanceof HTMLButtonElement;
  if (!Object.hasOwn(actions, event.key) || (isButton && event.key.length > 1 && !event.key.startsWith("Arrow"))) return;
  event.preventDefault();
  actions[event.key]();
}

// Hides the lanes of all processes, or shows all hidden ones.
function fold() {
  const { hidden } = Timeline;
  if (hidden.size > 0) hidden.clear();
  else Data.processes.forEach((_, of) => hidden.add(`process-${of}`));
  View.changed();
}

function toEnd() {
  const length = View.end - View.begin;
  View.show(Data.end - length * 0.9, Data.end + length * 0.1);
}

function pointers() {
  const { canvas, box } = Timeline;
  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    grabbed = { x: event.offsetX, y: event.offsetY, begin: View.begin, end: View.end, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (grabbed) {
      const by = event.offsetX - grabbed.x;
      grabbed.moved ||= Math.abs(by) > 3;
      if (grabbed.moved) {
        const time = (by / (Timeline.width - GUTTER)) * (grabbed.end - grabbed.begin);
        View.show(grabbed.begin - time, grabbed.end - time);
      }
      return;
    }
    Panel.point(event.offsetX, event.offsetY, Timeline.at(event.offsetX, event.offsetY));
    Panel.move(event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (grabbed && !grabbed.moved) click(event.offsetX, event.offsetY);
    grabbed = null;
  });
  canvas.addEventListener("pointercancel", () => (grabbed = null));
  canvas.addEventListener("pointerleave", () => Panel.point(0, 0, null));
  canvas.addEventListener("wheel", (event) => {
    // With Shift, the lanes scroll.
    if (event.shiftKey) {
      box.scrollBy(0, event.deltaY || event.deltaX);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      View.pan(event.deltaX / (Timeline.width - GUTTER));
    } else {
      View.zoom(1.002 ** event.deltaY, Timeline.time(Math.max(event.offsetX, GUTTER)));
    }
    event.preventDefault();
  }, { passive: false });
  box.addEventListener("scroll", () => View.changed());
}

function click(x, y) {
  const found = Timeline.at(x, y);
  if (found?.row?.key && (x < GUTTER || found.row.kind !== "process")) {
    const { hidden } = Timeline, { key } = found.row;
    if (!hidden.delete(key)) hidden.add(key);
    View.changed();
    return;
  }
  Panel.select(found);
}

let tablesWait = 0;

function drawAll() {
  Timeline.draw();
  Overview.draw();
  Tables.inView = Model.countByClass(View.begin, View.end);
  status();
  // The tables are updated only when nothing else moves.
  clearTimeout(tablesWait);
  tablesWait = setTimeout(() => Tables.draw(), 80);
}

async function start() {
  await Model.load();
  Crash.find();
  header();
  Tables.start();
  Tables.startCounters();
  await Requests.start();
  await Calls.start();
  await Stacks.start();
  View.listeners.push(drawAll);
  Detail.changed = () => View.changed();
  document.addEventListener("keydown", keys);
  pointers();
  Overview.listen();
  const on = (id, name, action) => document.getElementById(id).addEventListener(name, action);
  on("zoom-in", "click", () => View.zoom(1 / 1.6));
  on("zoom-out", "click", () => View.zoom(1.6));
  on("fit", "click", () => View.fit());
  on("help-button", "click", () => document.getElementById("help").showModal());
  on("filter", "input", (event) => View.filter(event.target.value));
  new ResizeObserver(() => View.changed()).observe(Timeline.box);
  dark.addEventListener("change", () => {
    Tables.draw();
    Requests.draw();
    View.changed();
  });
  Panel.select(null);
  View.fit();
  drawAll();
  Tables.draw();
  Timeline.box.focus({ preventScroll: true });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start().catch((error) => {
  element("li", `This page cannot be shown: ${error}`, document.getElementById("notes"));
  console.error(error);
});
