// Bars in pieces: data has bars of a name and pieces (hook, total_s), the largest first.
"use strict";
gpuprof.figures.bars = (place, data, both) => {
  const { colour, text, options, layout, axis, upTo } = gpuprof;
  const bars = [...data.bars].reverse();
  const most = Math.max(...bars.map((bar) => bar.pieces.length));
  const canvas = document.createElement("div");
  place.append(canvas);
  const totals = both.flatMap((one) => one.bars.map((bar) => bar.pieces.reduce((sum, piece) => sum + piece.total_s, 0)));
  const short = (name) => (name.length > 28 ? name.slice(0, 27) + "…" : name);
  return () => Plotly.react(canvas, Array.from({ length: most }, (_, i) => ({
    type: "bar", orientation: "h", y: bars.map((_, k) => k), x: bars.map((bar) => bar.pieces[i]?.total_s ?? null), width: 0.6,
    marker: { color: colour(["callbacks", "forward", "backward", "data_wait", "zero_grad", "logging", "loop"][i]), line: { color: colour("paper"), width: 1 } }, textposition: "none",
    text: bars.map((bar) => (bar.pieces[i] ? `${text(bar.name)}.${text(bar.pieces[i].hook)}` : "")),
    hovertemplate: "%{x:.3~g} s<extra>%{text}</extra>",
  })), {
    ...layout(70 + 26 * bars.length), margin: { l: 220, r: 15, t: 5, b: 40 }, barmode: "stack", showlegend: false,
    xaxis: { ...axis(), title: { text: "total over the run by hook, s" }, range: upTo(totals) },
    yaxis: { ...axis(), tickvals: bars.map((_, k) => k), ticktext: bars.map((bar) => text(short(bar.name))) },
  }, options());
};
