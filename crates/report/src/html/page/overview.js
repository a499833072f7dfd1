"use strict";
// Events per second over the whole trace, and the visible period.

const Overview = {
  canvas: document.getElementById("overview"),
  grabbed: null,

  draw() {
    const { canvas } = this, scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    this.width = width;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const paint = canvas.getContext("2d");
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    const [begin, end] = View.whole(), perPixel = (end - begin) / width;
    const counts = this.counts(Math.ceil(width), begin, perPixel);
    const most = counts.reduce((a, b) => Math.max(a, b), 0);
    paint.fillStyle = css("--accent");
    for (let x = 0; x < counts.length; x++) {
      const tall = most > 0 ? (height - 16) * (counts[x] / most) : 0;
      paint.fillRect(x, height - tall, 1, tall);
    }
    paint.fillStyle = css("--bad");
    for (const loss of Data.losses) {
      const left = Math.round((loss.begin - begin) / perPixel);
      paint.fillRect(left, height - 5, Math.max(2, Math.round((loss.end - loss.begin) / perPixel)), 5);
    }
    if (Crash.at !== null) paint.fillRect(Math.round((Crash.at - begin) / perPixel) - 1, 0, 2, height);
    const [left, right] = [View.begin, View.end].map((time) => (time - begin) / perPixel);
    paint.fillStyle = css("--front");
    paint.globalAlpha = 0.12;
    paint.fillRect(0, 0, left, height);
    paint.fillRect(right, 0, width - right, height);
    paint.globalAlpha = 1;
    paint.fillRect(left - 1, 0, 1, height);
    paint.fillRect(right, 0, 1, height);
    paint.font = "11px system-ui, sans-serif";
    paint.fillStyle = css("--dim");
    // A column is at least as long as a bin.
    const rate = (most / Math.max(perPixel, 1)) * 1e9;
    paint.fillText(`most: ${short(rate)} events/s`, 6, 12);
  },

  counts(width, begin, perPixel) {
    const counts = new Float64Array(width);
    const level = Math.max(0, Math.floor(Math.log2(perPixel / Model.bin))), length = Model.bin * 2 ** level;
    Model.ofLane.forEach((all, lane) => {
      if (!Model.isThread(lane)) return;
      for (const series of all) {
        if (!View.wanted[series.event]) continue;
        const { bins, counts: of } = series.level(level);
        for (let at = 0; at < bins.length; at++) {
          const x = Math.floor((bins[at] * length - begin) / perPixel);
          counts[Math.min(width - 1, Math.max(0, x))] += of[at];
        }
      }
    });
    return counts;
  },

  time(x) {
    const [begin, end] = View.whole();
    return begin + (x / this.width) * (end - begin);
  },

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.grabbed = event.offsetX;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.grabbed === null || Math.abs(event.offsetX - this.grabbed) < 3) return;
      const [a, b] = [this.time(this.grabbed), this.time(event.offsetX)];
      View.show(Math.min(a, b), Math.max(a, b));
    });
    canvas.addEventListener("pointerup", (event) => {
      // A click moves the visible period there.
      if (this.grabbed !== null && Math.abs(event.offsetX - this.grabbed) < 3) {
        const length = View.end - View.begin, middle = this.time(event.offsetX);
        View.show(middle - length / 2, middle + length / 2);
      }
      this.grabbed = null;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      View.zoom(1.002 ** event.deltaY, this.time(event.offsetX));
    }, { passive: false });
  },
};
