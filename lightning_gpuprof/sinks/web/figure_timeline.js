// One step of a window, moment by moment: data has duration_us and lanes, whose columns are lists of one length.
"use strict";
gpuprof.figures.timeline = (place, data, both) => {
  const LABELS = 168, AXIS = 24, GAP = 5, HEIGHTS = { phases: 24, idle: 16 }, USUAL = 19, LETTER = 6.4;
  const WORDS = { operator: "operators", call_launch: "launching calls", call_wait: "calls that wait", call_memory: "allocating calls",
    call_call: "other calls", compute: "kernels" };
  const { colour } = gpuprof;
  // The name of SVG, which is no address: the page has none of other hosts.
  const SVG = ["http:", "", "www.w3.org", "2000", "svg"].join("/");
  // Of two runs the longer step fills the width.
  const whole = Math.max(...both.map((one) => one.duration_us));
  let [from, to] = [0, whole];
  let shown = [];

  function make(name, attributes = {}, text = "") {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  }
  function time(us) {
    const [unit, size] = us >= 1e6 ? ["s", 1e6] : us >= 1e3 ? ["ms", 1e3] : ["µs", 1];
    return Number((us / size).toPrecision(3)).toLocaleString("en") + " " + unit;
  }

  const tools = document.createElement("div");
  const picture = make("svg", { class: "lanes" });
  const said = document.createElement("p");
  const colours = document.createElement("ul");
  tools.className = "tools";
  said.className = "said";
  said.setAttribute("aria-live", "polite");
  colours.className = "colours";
  const hint = "Hover for name and time; drag to zoom in.";
  said.textContent = hint;
  place.classList.add("timeline");
  place.setAttribute("role", "group"); // it holds buttons now
  place.append(tools, picture, said, colours);

  const around = (factor, shift = 0) => () => {
    const half = (to - from) / 2 * factor, middle = (from + to) / 2 + shift * (to - from);
    look(middle - half, middle + half);
  };
  const buttons = [["Zoom in", around(0.5)], ["Zoom out", around(2)], ["Earlier", around(1, -0.5)], ["Later", around(1, 0.5)],
    ["Whole step", () => look(0, whole)]];
  for (const [text, act] of buttons) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", act);
    tools.append(button);
  }
  const where = document.createElement("span");
  tools.append(where);

  function look(a, b) {
    const length = Math.min(Math.max(b - a, whole / 5000), whole);
    from = Math.min(Math.max(a, 0), whole - length);
    to = from + length;
    draw();
  }

  const used = new Map();
  for (const lane of data.lanes) for (const n of lane.kind === "finding" ? [] : lane.name) {
    const own = lane.kind === "phases" || lane.kind === "idle" ? lane.names[n] : lane.keys[n];
    used.set(lane.keys[n], lane.kind === "idle" ? "idle: " + own : WORDS[own] || own);
  }
  for (const [key, text] of used) {
    const item = document.createElement("li"), swatch = document.createElement("i");
    swatch.style.background = `var(--${key})`;
    item.append(swatch, text);
    colours.append(item);
  }

  // Whether white letters are read better on a colour that lets the paper through (relative luminance, sRGB).
  function isDark(key, opacity) {
    const part = (hex, n) => (parseInt(hex.slice(2 * n + 1, 2 * n + 3), 16) / 255) ** 2.2;
    const luminance = (hex) => 0.2126 * part(hex, 0) + 0.7152 * part(hex, 1) + 0.0722 * part(hex, 2);
    return opacity * luminance(colour(key)) + (1 - opacity) * luminance(colour("paper")) < 0.18;
  }

  function draw() {
    const width = Math.max(place.clientWidth || 900, 360), scale = (width - LABELS) / (to - from);
    const x = (us) => LABELS + (us - from) * scale;
    shown = [];
    let top = 0;
    const body = make("g");
    for (const lane of data.lanes) {
      const height = HEIGHTS[lane.kind] || USUAL;
      body.append(make("text", { x: 0, y: top + height / 2 + 4, class: "lane" }, lane.title));
      body.append(make("line", { x1: LABELS, x2: width, y1: top + height + 2, y2: top + height + 2, class: "rule" }));
      for (let i = 0; i < lane.name.length; i++) {
        const a = lane.start_us[i], b = a + lane.length_us[i];
        if (b < from || a > to) continue;
        const left = Math.max(x(a), LABELS), right = Math.min(x(b), width), wide = Math.max(right - left, 0.7);
        const filled = lane.length_us[i] > 0 ? Math.min(lane.time_us[i] / lane.length_us[i], 1) : 1;
        const opacity = 0.3 + 0.7 * filled;
        const part = make("rect", { x: left, y: top, width: wide, height, "fill-opacity": opacity });
        part.style.fill = `var(--${lane.keys[lane.name[i]]})`;
        part.dataset.part = shown.push([lane, i]) - 1;
        body.append(part);
        const room = Math.floor((wide - 8) / LETTER), name = lane.names[lane.name[i]];
        if (room >= 4 && height >= USUAL) {
          const text = name.length <= room ? name : name.slice(0, room - 1) + "…";
          const style = isDark(lane.keys[lane.name[i]], opacity) ? "part light" : "part";
          body.append(make("text", { x: left + 4, y: top + height / 2 + 4, class: style }, text));
        }
      }
      top += height + GAP;
    }
    const marks = make("g");
    axis(marks, top, width, x);
    const chosen = make("rect", { class: "chosen", y: 0, height: top, width: 0 });
    picture.replaceChildren(marks, body, chosen);
    picture.setAttribute("width", width);
    picture.setAttribute("height", top + AXIS);
    where.textContent = to - from < whole * 0.999
      ? `${time(from)} to ${time(to)} of ${time(data.duration_us)}` : `${time(data.duration_us)}, on the host`;
  }

  function axis(body, top, width, x) {
    const rough = (to - from) / Math.max((width - LABELS) / 110, 1), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const digits = Math.max(0, Math.ceil(-Math.log10(step / (to >= 1e6 ? 1e6 : to >= 1e3 ? 1e3 : 1))));
    const [unit, size] = to >= 1e6 ? ["s", 1e6] : to >= 1e3 ? ["ms", 1e3] : ["µs", 1];
    for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-6; at += step) {
      body.append(make("line", { x1: x(at), x2: x(at), y1: 0, y2: top + 3, class: "tick" }));
      const anchor = x(at) > width - 30 ? "end" : x(at) < LABELS + 20 ? "start" : "middle";
      body.append(make("text", { x: x(at), y: top + 17, class: "tick", "text-anchor": anchor },
        `${(at / size).toFixed(digits)} ${unit}`));
    }
  }

  function tell(part) {
    if (part === undefined) { said.textContent = hint; return; }
    const [lane, i] = shown[part], several = lane.count[i] > 1;
    said.textContent = `${lane.title}: ${lane.names[lane.name[i]]}` + (several ? ` and others, ${lane.count[i]} in all` : "")
      + `, ${time(lane.time_us[i])}` + (several ? ` within ${time(lane.length_us[i])}` : "") + `, from ${time(lane.start_us[i])} on`;
  }
  let begun = null;
  const at = (event) => event.clientX - picture.getBoundingClientRect().left;
  const moment = (px) => from + (Math.max(px, LABELS) - LABELS) * (to - from) / (picture.clientWidth - LABELS);
  picture.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch" && at(event) >= LABELS) {
      begun = at(event);
      picture.setPointerCapture(event.pointerId);
    }
  });
  picture.addEventListener("pointermove", (event) => {
    if (begun === null) { tell(event.target.dataset.part); return; }
    const chosen = picture.querySelector(".chosen"), now = Math.max(at(event), LABELS);
    chosen.setAttribute("x", Math.min(begun, now));
    chosen.setAttribute("width", Math.abs(now - begun));
  });
  picture.addEventListener("pointerup", (event) => {
    const first = begun, last = at(event);
    begun = null;
    if (first !== null && Math.abs(last - first) > 4) look(moment(Math.min(first, last)), moment(Math.max(first, last)));
  });
  picture.addEventListener("pointercancel", () => { begun = null; });
  // A link from a finding shows the part of the step that it is about, with as much again on both sides.
  document.addEventListener("click", (event) => {
    const moment = event.target.closest("[data-moment]")?.dataset.moment;
    const lane = moment && data.lanes.find((one) => one.title === moment);
    if (!lane || !place.isConnected) return;
    const start = lane.start_us[0], length = lane.length_us[0];
    look(start - length, start + 2 * length);
    said.textContent = `${lane.title}: ${lane.names[0]}, ${time(length)} from ${time(start)} on`;
  });
  picture.addEventListener("dblclick", () => look(0, whole));
  new ResizeObserver(draw).observe(tools);
  return draw;
};
