"use strict";
// The visible period, and the filter of events.

const View = {
  begin: 0,
  end: 1,
  // The shortest visible period. In traces of years, no shorter than the numbers can distinguish.
  nearest: Math.max(50, Data.end / 2 ** 46),
  // For each class, and for each pair.
  wanted: Data.classes.map(() => true),
  wantedPairs: Data.pairs.map(() => true),
  selected: null,
  listeners: [],
  waits: false,

  // The whole trace, with a small margin.
  whole() {
    const length = Math.max(Data.end, 100);
    const least = Math.min(0, ...Data.losses.map((loss) => loss.begin).filter((begin) => begin > -length));
    return [least - length * 0.01, length * 1.01];
  },

  fit() {
    this.show(...this.whole());
  },

  show(begin, end) {
    const [least, most] = this.whole();
    const length = Math.min(Math.max(end - begin, this.nearest), most - least);
    begin = Math.min(Math.max((begin + end - length) / 2, least), most - length);
    [this.begin, this.end] = [begin, begin + length];
    this.changed();
  },

  // Zooms by a factor around a time; a factor below 1 zooms in.
  zoom(factor, at = (this.begin + this.end) / 2) {
    const length = Math.max((this.end - this.begin) * factor, this.nearest);
    const part = (at - this.begin) / (this.end - this.begin);
    this.show(at - length * part, at + length * (1 - part));
  },

  pan(part) {
    const by = (this.end - this.begin) * part;
    this.show(this.begin + by, this.end + by);
  },

  // Words in names, or patterns of names; ! rejects; the last match counts.
  filter(text) {
    const words = text.split(",").map((word) => word.trim()).filter((word) => word !== "" && word !== "!");
    const rules = words.map((word) => {
      const isWanted = !word.startsWith("!");
      const pattern = (isWanted ? word : word.slice(1)).toLowerCase();
      if (!/[*?]/.test(pattern)) return { isWanted, matches: (name) => name.includes(pattern) };
      const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
      const whole = new RegExp(`^(?:${escaped})$`, "s");
      return { isWanted, matches: (name) => whole.test(name) || whole.test(withoutProvider(name)) };
    });
    const isWanted = (name) => {
      const rule = rules.findLast((rule) => rule.matches(name.toLowerCase()));
      return rule ? rule.isWanted : !rules.some((rule) => rule.isWanted);
    };
    this.wanted = Data.classes.map((event) => isWanted(event.name));
    this.wantedPairs = Data.pairs.map((pair) => {
      // For `a:x_entry → x_exit`, either of its events.
      const [begin, end] = pair.name.split(" → ");
      return isWanted(begin) || (end !== undefined && isWanted(`${begin.split(":")[0]}:${end}`));
    });
    this.changed();
  },

  changed() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      for (const listener of this.listeners) listener();
    });
  },
};
