// Ranks by phases: data has ranks, columns, ms and apart_ms (rows are ranks); the colour is the difference from the median.
"use strict";
gpuprof.figures.heat = (place, data, both) => {
  const { colour, options, layout, axis } = gpuprof;
  const canvas = document.createElement("div");
  place.append(canvas);
  const most = Math.max(...both.flatMap((one) => one.apart_ms.flat()).map((v) => Math.abs(v ?? 0))) || 1;
  return () => Plotly.react(canvas, [{
    type: "heatmap", x: data.columns, y: data.ranks, z: data.apart_ms, zmin: -most, zmax: most, xgap: 2, ygap: 2,
    colorscale: [[0, colour("less")], [0.5, colour("raised")], [1, colour("more")]],
    text: data.ms.map((row) => row.map((v) => (v === null ? "-" : v < 0.001 ? "<0.001" : v.toPrecision(3)))),
    ...(data.ranks.length <= 16 ? { texttemplate: "%{text}" } : {}), textfont: { color: colour("ink"), size: 12 },
    hovertemplate: "%{text} ms, %{z:+.3~g} ms beside the median rank<extra>%{y}, %{x}</extra>",
    colorbar: { title: { text: "ms" }, tickformat: "+~g", thickness: 12, outlinewidth: 0 },
  }], {
    ...layout(90 + 28 * data.ranks.length), margin: { l: 80, r: 15, t: 5, b: 60 },
    xaxis: { ...axis(), side: "bottom" }, yaxis: { ...axis(), autorange: "reversed" },
  }, options());
};
