// Draws the roofline from the numbers in #roofline-data. Everything else on the page works without script.
"use strict";
(() => {
  const figure = JSON.parse(document.getElementById("roofline-data").textContent);
  const place = document.getElementById("roofline-figure");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  function draw() {
    const layout = {
      ...figure.layout, height: 520, paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"),
      font: { ...figure.layout.font, color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") } },
    };
    // The buttons are named one by one: some versions add one that uploads the figure.
    Plotly.react(place, figure.data, layout, {
      displaylogo: false, responsive: true, plotlyServerURL: "",
      modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
    });
  }

  dark.addEventListener("change", draw);
  draw();
})();
