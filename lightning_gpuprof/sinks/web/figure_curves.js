// Curves under each other over one x axis: data has panels (title, unit, lines of name, batch, t_s and values) and the
// limits of both axes.
"use strict";
gpuprof.figures.curves = (place, data, both) => {
  const { colour, pens, text, options, layout, axis, widest, merged, upTo, run } = gpuprof;
  const canvas = document.createElement("div");
  place.append(run.button(), canvas);
  // Of two runs both have all panels of either, so that the same stand side by side.
  const key = (panel) => `${panel.title}, ${panel.unit}`;
  const find = (wanted) => (one) => one.panels.find((panel) => key(panel) === wanted);
  const panels = merged(both.map((one) => one.panels.map(key)))
    .map((wanted) => find(wanted)(data) ?? { ...find(wanted)(both[1]), lines: [] });
  const n = panels.length;
  const name = (k) => (k ? `y${k + 1}` : "y");
  const limits = { batch: widest(both.map((one) => one.limits)), time: widest(both.map((one) => one.limits_s)) };
  // Of one run the panel finds its own scale, of two both have one.
  function scale(panel) {
    if (both.length === 1) return { rangemode: "tozero" };
    const alike = both.flatMap((one) => one.panels).filter((one) => key(one) === key(panel));
    return { range: upTo(alike.flatMap((one) => one.lines).flatMap((line) => line.values)) };
  }
  // Titles stand on one line: on a narrow one in smaller letters, of some 0.55 of their size on average.
  function letters(title) {
    const long = title.replace(/<[^>]*>|&\w+;/g, "").length;
    return Math.max(8.5, Math.min(12, ((canvas.clientWidth || 900) - 75) / (0.55 * long)));
  }
  let joined = false;

  function redraw() {
    const each = gpuprof.sheet.printing ? 82 : 105, gap = 26 / each / n;
    const traces = [], titles = [], axes = {};
    panels.forEach((panel, k) => {
      const top = 1 - k / n, bottom = 1 - (k + 1) / n;
      const all = pens();
      panel.lines.forEach((line, i) => traces.push({
        type: "scatter", mode: line.values.length < 40 ? "lines+markers" : "lines", name: text(line.name), yaxis: name(k),
        x: run.unit === "batch" ? line.batch : line.t_s, y: line.values, showlegend: false,
        line: { ...all[i % all.length], width: 1.4 }, marker: { size: 4 },
        hovertemplate: `%{y:,.4~g} ${text(panel.unit)}<extra>${text(panel.title)}: ${text(line.name)}</extra>`,
      }));
      // without a line Plotly leaves out the axis
      if (panel.lines.length === 0) traces.push({ type: "scatter", x: [null], y: [null], yaxis: name(k), showlegend: false });
      const known = panel.lines.map((line, i) =>
        `<span style="color:${all[i % all.length].color}">${["━━", "╍╍", "┅┅", "╍┅", "━╍", "━┅"][i % 6]}</span> ${text(line.name)}`);
      const title = `<b>${text(panel.title)}</b>, ${text(panel.unit)}   ${known.join("   ") || "not measured"}`;
      titles.push({
        text: title, showarrow: false, xref: "paper", yref: "paper", x: 0, y: top - gap, xanchor: "left",
        yanchor: "bottom", font: { size: letters(title) },
      });
      axes[k ? `yaxis${k + 1}` : "yaxis"] = { ...axis(), domain: [bottom, top - gap], ...scale(panel), nticks: 4 };
    });
    Plotly.react(canvas, traces, {
      ...layout(40 + each * n), ...axes, margin: { l: 60, r: 15, t: 5, b: 42 }, hovermode: "x", hoversubplots: "axis",
      uirevision: run.unit, annotations: titles,
      xaxis: { ...run.axis(limits), anchor: n > 1 ? name(n - 1) : "y",
        showspikes: true, spikemode: "across", spikethickness: 1, spikecolor: colour("faint") },
    }, options());
    if (!joined) { joined = true; run.join(canvas, redraw); }
  }
  return redraw;
};
