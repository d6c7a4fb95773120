// For each phase a bar from p05 to p95 with a line at the median: data has rows of phase, words, p05, median and p95, in ms.
"use strict";
gpuprof.figures.spread = (place, data, both) => {
  const { colour, options, layout, axis, merged, upTo } = gpuprof;
  const rows = [...data.rows].reverse();
  const y = rows.map((row) => row.words);
  // Both runs have their phases in the order of a step: what only the other has leaves its line free.
  const lines = merged(both.map((one) => one.rows.map((row) => row.words).reverse()));
  const canvas = document.createElement("div");
  place.append(canvas);
  return () => Plotly.react(canvas, [
    {
      type: "bar", orientation: "h", y, base: rows.map((row) => row.p05), x: rows.map((row) => row.p95 - row.p05),
      marker: { color: rows.map((row) => colour(row.phase)) }, width: 0.55, hovertemplate: "%{text}<extra>%{y}</extra>",
      text: rows.map((row) => `p05 ${row.p05.toPrecision(3)} ms, median ${row.median.toPrecision(3)} ms, p95 ${row.p95.toPrecision(3)} ms`),
      textposition: "none",
    },
    {
      type: "scatter", mode: "markers", y, x: rows.map((row) => row.median), hoverinfo: "skip",
      marker: { symbol: "line-ns", size: 16, line: { width: 3, color: colour("ink") } },
    },
  ], {
    ...layout(70 + 30 * lines.length), margin: { l: 100, r: 15, t: 5, b: 40 }, showlegend: false,
    xaxis: { ...axis(), title: { text: "p05 to p95, line at the median, ms" }, range: upTo(both.flatMap((one) => one.rows.map((row) => row.p95))) },
    yaxis: { ...axis(), automargin: true, categoryarray: lines, range: [-0.5, lines.length - 0.5] },
  }, options());
};
