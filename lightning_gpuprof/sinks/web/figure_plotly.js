// A figure that comes as Plotly's own data and layout, in the page's colours.
"use strict";
gpuprof.figures.plotly = (place, figure, both) => {
  const { layout, options, widest } = gpuprof;
  const log = (name) => figure.layout[`${name}axis`]?.type === "log";
  // What the lines and markers of both runs reach, and a little room for the markers at the edge.
  function reach(name) {
    const values = both.flatMap((one) => one.data).flatMap((trace) => trace[name]).filter((v) => v !== null && (!log(name) || v > 0));
    const [least, most] = widest(values.map((v) => [v, v])).map((v) => (log(name) ? Math.log10(v) : v));
    const room = 0.06 * (most - least) || 1;
    return [least - room, most + room];
  }
  const ranges = both.length > 1 ? { x: reach("x"), y: reach("y") } : {};

  return () => {
    const common = layout(520);
    place.style.height = `${common.height}px`; // else a plot that was drawn while hidden takes no room
    const own = { ...figure.layout, ...common, font: { ...figure.layout.font, ...common.font } };
    for (const [name, range] of Object.entries(ranges)) own[`${name}axis`] = { ...own[`${name}axis`], range };
    Plotly.react(place, figure.data, own, options());
  };
};
