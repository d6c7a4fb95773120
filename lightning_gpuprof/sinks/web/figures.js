// Draws every element that has data-figure: its kind names the function that gets the element, its numbers and, of two
// runs side by side, a list of both figures' numbers, so that their axes are the same. All numbers of a figure are in
// tables too, so that a page works without script.
"use strict";
globalThis.gpuprof = (() => {
  const figures = {};
  // What else is to be done with new parts of a page, each a function that gets their root.
  const finishers = [];
  const redraws = new Map();
  // Printed pages are light whatever the screen is.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  // Lines of one panel: told apart by their dashes, too.
  const pens = () => ["backward", "data_wait", "zero_grad", "callbacks", "forward", "logging"].map((name, i) => (
    { color: colour(name), dash: ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"][i] }));
  // Plotly reads tags in labels: names are data.
  const text = (name) => name.replace(/[<>&]/g, (c) => ({ "<": "&lt;", ">": "&gt;", "&": "&amp;" })[c]);

  // What all figures have in common; the buttons are named one by one: some versions add one that uploads the figure.
  const options = () => ({
    displaylogo: false, responsive: true, plotlyServerURL: "",
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  });
  // A sheet is narrower than the screen, and nothing on it can be scrolled.
  const sheet = { width: 690, printing: false };
  const layout = (height) => ({
    height, ...(sheet.printing ? { width: sheet.width } : { autosize: true }), paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"),
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") } },
  });
  // The least that holds all of these limits, those that are not known left out.
  function widest(limits) {
    const known = limits.filter(Boolean);
    return known.length ? [Math.min(...known.map((one) => one[0])), Math.max(...known.map((one) => one[1]))] : undefined;
  }
  // Lists that come from one order as one list, the same whichever comes first: what only one has stands after what is
  // before it there.
  const merged = (lists) => [...lists].sort((a, b) => (a.join() < b.join() ? 1 : -1)).reduce((all, list) => {
    list.forEach((key, i) => { if (!all.includes(key)) all.splice(i ? all.indexOf(list[i - 1]) + 1 : 0, 0, key); });
    return all;
  }, []);
  // From 0 to a little more than the largest of numbers that may be absent.
  const upTo = (values) => [Math.min(0, ...values), 1.05 * Math.max(0, ...values) || 1];
  const axis = () => ({ gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line") });

  // Figures over the run have one x axis: what one of them shows, all of them show.
  const run = { unit: "batch", range: null, cut: true, others: new Map(), busy: false };
  run.axis = (limits) => ({
    ...axis(), range: run.range ?? limits[run.unit],
    ...(run.unit === "batch" ? { title: { text: "batch" }, hoverformat: ",.6~g", tickformat: ",d" }
      : { title: { text: "time since the start, s" }, hoverformat: ",.5~g", ticksuffix: " s" }),
  });
  run.join = (canvas, redraw) => {
    run.others.set(canvas, redraw);
    canvas.on("plotly_relayout", (change) => {
      if (run.busy) return;
      const whole = change["xaxis.autorange"] || change["xaxis.range[0]"] === undefined && !change["xaxis.range"];
      if (whole && !change["xaxis.autorange"]) return;
      run.range = whole ? null : [...canvas.layout.xaxis.range];
      run.each((other) => other !== canvas || whole);
    });
  };
  run.each = (chosen) => {
    run.busy = true;
    for (const [other, draw] of run.others) {
      if (!other.isConnected) run.others.delete(other);
      else if (chosen(other)) draw();
    }
    run.busy = false;
  };
  run.button = () => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "unit";
    button.addEventListener("click", () => {
      run.unit = run.unit === "batch" ? "time" : "batch";
      run.range = null;
      run.each(() => true);
      run.name();
    });
    queueMicrotask(run.name);
    return button;
  };
  run.name = () => document.querySelectorAll("button.unit").forEach((button) => {
    button.textContent = run.unit === "batch" ? "Show over time" : "Show over batches";
  });

  // One figure a task, so that the page can be read and scrolled meanwhile.
  const waiting = [];
  function draw(root) {
    for (const drawn of [redraws, run.others]) for (const place of drawn.keys()) if (!place.isConnected) drawn.delete(place);
    for (const place of root.querySelectorAll("[data-figure]")) {
      if (redraws.has(place) || waiting.includes(place)) continue;
      const source = place.querySelector('script[type="application/json"]');
      if (figures[place.dataset.figure] && source) waiting.push(place);
    }
    finishers.forEach((finish) => finish(root));
    if (waiting.length) setTimeout(drawNext);
    else finished();
  }
  function finished() {
    document.documentElement.dataset.drawn = "all";
    performance.mark("gpuprof drawn");
  }
  // A drawn figure has no numbers left in the page, and its neighbour asks for them.
  const parsed = new WeakMap();
  function numbers(place) {
    const source = place.querySelector('script[type="application/json"]');
    if (!parsed.has(place) && source) parsed.set(place, JSON.parse(source.textContent));
    return parsed.get(place);
  }
  // The figure that the other run has in the same place.
  function neighbour(place) {
    const column = place.closest(".column"), columns = column ? [...column.parentElement.children] : [];
    const alike = (one) => [...(one?.querySelectorAll(`[data-figure="${place.dataset.figure}"]`) ?? [])];
    return alike(columns.find((one) => one !== column))[alike(column).indexOf(place)];
  }
  function drawOne(place) {
    const other = neighbour(place);
    const data = numbers(place), both = other && numbers(other) ? [data, numbers(other)] : [data];
    place.replaceChildren();
    const redraw = figures[place.dataset.figure](place, data, both);
    if (redraw) { redraws.set(place, redraw); redraw(); }
  }
  function drawNext() {
    const place = waiting.shift();
    if (!place) return;
    try {
      if (place.isConnected) drawOne(place);
    } catch (error) {
      console.error(error);  // the other figures are drawn
    }
    if (waiting.length) setTimeout(drawNext);
    else finished();
  }
  function redrawAll() {
    for (const [place, redraw] of redraws) place.isConnected ? redraw() : redraws.delete(place);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  matchMedia("print").addEventListener("change", redrawAll);
  // In a part that was closed a figure had no width to be drawn in.
  document.addEventListener("toggle", (event) => {
    if (!event.target.open) return;
    for (const [place, redraw] of redraws) if (event.target.contains(place)) redraw();
  }, true);
  addEventListener("beforeprint", () => {
    while (waiting.length) drawNext();
    sheet.printing = true;
    redrawAll();
  });
  addEventListener("afterprint", () => { sheet.printing = false; redrawAll(); });
  return { figures, finishers, sheet, draw, redrawAll, colour, pens, text, options, layout, axis, widest, merged, upTo, run };
})();
