// Draws the figure of the step time from the numbers in #step-data. Everything else on the page works without script.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("step-data").textContent);
  const place = document.getElementById("step-figure");
  const button = document.getElementById("step-scale");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const sorted = data.period_ms.filter((v) => v !== null).sort((a, b) => a - b);
  if (sorted.length === 0) return;
  const quantile = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
  const longest = sorted[sorted.length - 1];
  // A few very long steps must not press all others flat: they are cut at the edge and marked there.
  const typical = Math.max(2 * quantile(0.5), 1.15 * quantile(0.95));
  let clipped = longest > 1.3 * typical;

  // Printed pages are light whatever the screen is.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  function traces() {
    const areas = data.phases.map((curve) => ({
      type: "scatter", mode: "lines", name: curve.phase, x: data.batch, y: curve.ms, stackgroup: "period",
      line: { width: 0, shape: "hvh", color: colour(curve.phase) }, fillcolor: colour(curve.phase),
      hovertemplate: "%{y:.3~g} ms",
    }));
    const period = {
      type: "scatter", mode: "lines", name: "period", opacity: 0.5, x: data.batch, y: data.period_ms,
      line: { width: 0.7, shape: "hvh", color: colour("faint") }, hovertemplate: "%{y:.3~g} ms",
    };
    const shown = [...areas, period];
    if (clipped) {
      const beyond = data.period_ms.map((v, i) => [v, data.batch[i]]).filter(([v]) => v > typical);
      shown.push({
        type: "scatter", mode: "markers", name: "beyond the scale", x: beyond.map(([, b]) => b),
        y: beyond.map(() => typical * 0.985), text: beyond.map(([v]) => v.toPrecision(3) + " ms"),
        marker: { symbol: "triangle-up", size: 9, color: colour("critical") }, hovertemplate: "%{text}",
      });
    }
    return shown;
  }

  function layout() {
    const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line") };
    return {
      paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"),
      font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
      height: 440, margin: { l: 60, r: 15, t: 32, b: 45 }, hovermode: "x unified",
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") } },
      legend: { orientation: "h", y: -0.2, traceorder: "normal" },
      xaxis: { ...axis, range: [data.batch[0], data.batch[data.batch.length - 1]], title: { text: "batch" }, hoverformat: ",d", tickformat: ",d" },
      yaxis: { ...axis, title: { text: "time per step, ms" }, range: [0, clipped ? typical : 1.05 * longest] },
    };
  }

  function draw() {
    // The buttons are named one by one: some versions add one that uploads the figure.
    Plotly.react(place, traces(), layout(), {
      displaylogo: false, responsive: true, plotlyServerURL: "",
      modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
    });
    button.hidden = longest <= 1.3 * typical;
    button.textContent = clipped ? "Show the longest steps in full" : "Cut the longest steps";
  }

  document.getElementById("step-hint").hidden = true;
  draw();
  button.addEventListener("click", () => { clipped = !clipped; draw(); });
  dark.addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
