// A figure that comes as Plotly's own data and layout, in the page's colours.
"use strict";
gpuprof.figures.plotly = (place, figure) => () => {
  const common = gpuprof.layout(520);
  place.style.height = `${common.height}px`; // else a plot that was drawn while hidden takes no room
  const layout = { ...figure.layout, ...common, font: { ...figure.layout.font, ...common.font } };
  Plotly.react(place, figure.data, layout, gpuprof.options());
};
