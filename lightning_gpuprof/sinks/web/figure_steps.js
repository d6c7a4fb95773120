// Step time over steps, stacked by phase, and below it what happened to them: data has batch, t_s (or null), period_ms
// and phases, lists of one length, and marks by kind.
"use strict";
gpuprof.figures.steps = (place, data, both) => {
  const { colour, options, layout, axis, widest, run } = gpuprof;
  if (data.period_ms.every((v) => v === null)) return null;
  const end = data.batch.length - 1;
  const scales = both.map(scaleOf);
  const longest = Math.max(...scales.map((one) => one.longest)), typical = Math.max(...scales.map((one) => one.typical));
  const limits = { batch: widest(both.map(batches)), time: data.t_s && widest(both.map(times)) };
  const tooLong = longest > 1.3 * typical;
  let clipped = false;
  let joined = false;

  // A few very long steps must not press all others flat: they are cut at the edge and marked there.
  function scaleOf(one) {
    const sorted = one.period_ms.filter((v) => v !== null).sort((a, b) => a - b);
    const quantile = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
    return { longest: sorted[sorted.length - 1] ?? 0, typical: Math.max(2 * quantile(0.5), 1.15 * quantile(0.95)) };
  }
  function batches(one) { return [one.batch[0], one.batch[one.batch.length - 1] + 1]; }
  function times(one) {
    const last = one.batch.length - 1;
    return one.t_s && [one.t_s[0], one.t_s[last] + (one.period_ms[last] ?? 0) / 1000];
  }

  const button = document.createElement("button");
  const canvas = document.createElement("div");
  button.type = "button";
  button.hidden = !tooLong;
  button.addEventListener("click", () => { run.cut = !run.cut; run.each(() => true); });
  place.append(...(data.t_s ? [run.button()] : []), button, canvas);

  const symbols = { window: "line-ew", validation: "diamond", checkpoint: "square", epoch: "line-ns-open",
    "speed level": "triangle-right" };
  const hues = { window: "accent", validation: "validation", checkpoint: "checkpoint", epoch: "faint",
    "speed level": "critical" };
  const outliers = data.marks.find((row) => row.kind === "outlier");
  // Of two runs both have all lines and all phases of either, so that both are equally high.
  const kinds = Object.keys(symbols).filter((kind) => both.some((one) => one.marks.some((row) => row.kind === kind)));
  const lanes = kinds.reverse()
    .map((kind) => data.marks.find((row) => row.kind === kind) ?? { kind, first: [], last: [], ms: [] });
  const absent = [...new Map(both.flatMap((one) => one.phases.map((curve) => [curve.phase, curve.words])))]
    .filter(([phase]) => !data.phases.some((curve) => curve.phase === phase));
  const shown = (ms) => (ms === null ? "" : ", " + (ms < 1000 ? ms.toPrecision(3) + " ms" : (ms / 1000).toPrecision(3) + " s"));

  // The time of a batch lies on the line between the nearest ones that are drawn.
  function at(batch) {
    if (run.unit === "batch" || !data.t_s) return batch;
    let low = 0, high = end;
    while (high - low > 1) { const middle = (low + high) >> 1; data.batch[middle] <= batch ? low = middle : high = middle; }
    const width = data.batch[high] - data.batch[low];
    const part = width > 0 ? Math.min(1, Math.max(0, (batch - data.batch[low]) / width)) : 0;
    return data.t_s[low] + part * (data.t_s[high] - data.t_s[low]);
  }

  // Over batches a step is drawn around its number, over time from its begin on.
  function around(first, last) {
    return run.unit === "batch" || !data.t_s ? [first - 0.5, last + 0.5] : [at(first), at(last + 1)];
  }

  function lane(row, y) {
    const x = [], text = [];
    row.first.forEach((first, i) => {
      const last = row.last[i];
      const where = first === last || row.kind === "speed level" ? `batch ${first}` : `batches ${first} to ${last}`;
      const said = row.kind + ", " + where + shown(row.ms[i]);
      x.push(at(first)); text.push(said);
      if (row.kind === "window") { x.splice(-1, 1, ...around(first, last), null); text.push(said, ""); }
    });
    if (x.length === 0) { x.push(null); text.push(""); } // else Plotly leaves out the axis
    return {
      type: "scatter", mode: row.kind === "window" ? "lines+markers" : "markers", name: row.kind, x, y: x.map(() => y),
      yaxis: "y2", text, hovertemplate: "%{text}<extra></extra>", showlegend: false, cliponaxis: false,
      line: { color: colour(hues[row.kind]), width: 6 },
      marker: { symbol: symbols[row.kind], size: 9, color: colour(hues[row.kind]), line: { width: 2, color: colour(hues[row.kind]) } },
    };
  }

  function traces() {
    const x = run.unit === "batch" || !data.t_s ? data.batch : data.t_s;
    const unknown = absent.map(([phase, words]) => ({ phase, words, ms: x.map(() => 0), hoverinfo: "skip" }));
    const areas = [...data.phases, ...unknown].map((curve) => ({
      type: "scatter", mode: "lines", name: curve.words, x, y: curve.ms, stackgroup: "period",
      line: { width: 0, shape: "hvh", color: colour(curve.phase) }, fillcolor: colour(curve.phase),
      ...(curve.hoverinfo ? { hoverinfo: "skip" } : { hovertemplate: "%{y:.3~g} ms" }),
    }));
    const period = {
      type: "scatter", mode: "lines", name: "step time", opacity: 0.5, x, y: data.period_ms,
      line: { width: 0.7, shape: "hvh", color: colour("faint") }, hovertemplate: "%{y:.3~g} ms",
    };
    const all = [...areas, period];
    const known = new Set(outliers ? outliers.first : []);
    const top = typical * 0.985;
    if (clipped) {
      const beyond = data.period_ms.map((v, i) => [v, i]).filter(([v, i]) => v > typical && !known.has(data.batch[i]));
      all.push({
        type: "scatter", mode: "markers", name: "beyond the scale", cliponaxis: false, x: [...beyond.map(([, i]) => x[i]), null],
        y: [...beyond.map(() => top), null], text: beyond.map(([v]) => v.toPrecision(3) + " ms"),
        marker: { symbol: "triangle-up-open", size: 9, color: colour("faint"), line: { width: 1.5 } },
        hovertemplate: "%{text}",
      });
    }
    if (both.some((one) => one.marks.some((row) => row.kind === "outlier"))) {
      const { first, ms } = outliers ?? { first: [null], ms: [null] };
      all.push({
        type: "scatter", mode: "markers", name: "outlier", cliponaxis: false, x: first.map((b) => (b === null ? null : at(b))),
        y: ms.map((v) => (clipped && v !== null ? Math.min(v, top) : v)),
        text: first.map((b, i) => `batch ${b}${shown(ms[i])}`),
        marker: {
          symbol: ms.map((v) => (clipped && v > top ? "triangle-up" : "x-thin")), size: 9,
          color: colour("critical"), line: { width: 2, color: colour("critical") },
        },
        hovertemplate: "%{text}",
      });
    }
    return [...all, ...lanes.map(lane)];
  }

  function redraw() {
    clipped = tooLong && run.cut;
    const share = lanes.length ? 0.04 + 0.05 * lanes.length : 0;
    const windows = data.marks.find((row) => row.kind === "window");
    Plotly.react(canvas, traces(), {
      ...layout(430 + 28 * lanes.length), margin: { l: 90, r: 15, t: 32, b: 45 }, hovermode: "x unified",
      uirevision: `${run.unit} ${clipped}`,
      // of one width whatever the names are: else the plots of two runs would not be equally high
      legend: { orientation: "h", y: -0.2, traceorder: "normal", entrywidth: 120 },
      xaxis: { ...run.axis(limits), anchor: lanes.length ? "y2" : "y" },
      yaxis: { ...axis(), title: { text: "time per step, ms" }, range: [0, clipped ? typical : 1.05 * longest],
        domain: [share, 1] },
      ...(lanes.length ? { yaxis2: { ...axis(), domain: [0, share - 0.03], range: [-0.6, lanes.length - 0.4],
        tickvals: lanes.map((_, i) => i), ticktext: lanes.map((row) => row.kind), fixedrange: true, zeroline: false } } : {}),
      shapes: (windows ? windows.first : []).map((first, i) => ({
        type: "rect", xref: "x", yref: "y domain", y0: 0, y1: 1,
        ...Object.fromEntries(around(first, windows.last[i]).map((at, k) => [`x${k}`, at])), fillcolor: colour("accent"), opacity: 0.18, line: { width: 0 }, layer: "above",
      })),
    }, options());
    button.textContent = clipped ? "Show the longest steps in full" : "Clip the longest steps";
    if (!joined) { joined = true; run.join(canvas, redraw); }
  }
  return redraw;
};
