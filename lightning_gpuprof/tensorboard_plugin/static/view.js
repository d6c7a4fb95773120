// Puts the HTML of a view into the page and has its figures drawn; what the reader opened, typed and scrolled to stays.
const scripts = new Map();
let drawnRuns = "";

function script(name) {
  if (!scripts.has(name)) {
    scripts.set(name, new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = name;
      element.onload = resolve;
      element.onerror = () => { scripts.delete(name); reject(new Error(`${name} cannot be loaded`)); };
      document.head.append(element);
    }));
  }
  return scripts.get(name);
}

export const loadPlotly = () => script("plotly.js");

export function clear(place) {
  if (globalThis.Plotly) place.querySelectorAll(".js-plotly-plot").forEach((figure) => Plotly.purge(figure));
  place.replaceChildren();
}

const keyOf = (details, index) => `${index} ${details.querySelector("summary")?.textContent ?? ""}`;

function remembered(place) {
  const open = new Map([...place.querySelectorAll("details")].map((d, index) => [keyOf(d, index), d.open]));
  const typed = [...place.querySelectorAll('input[type="search"]')].map((field) => field.value);
  return { open, typed, x: scrollX, y: scrollY };
}

function unfold(place, was) {
  [...place.querySelectorAll("details")].forEach((d, index) => { d.open = was.open.get(keyOf(d, index)) ?? d.open; });
}

function type(place, was) {
  [...place.querySelectorAll('input[type="search"]')].forEach((field, index) => {
    if (!was.typed[index]) return;
    field.value = was.typed[index];
    field.dispatchEvent(new Event("input"));
  });
}

export async function drawView(place, html, { runs, same, signal }) {
  await script("figures.js");
  if (html.includes("data-figure")) await loadPlotly();
  if (signal.aborted) return; // the reader has gone on
  const was = same ? remembered(place) : null;
  // Without it the page is shorter for a moment, and the browser scrolls up.
  place.style.minHeight = same ? `${place.offsetHeight}px` : "";
  clear(place);
  place.innerHTML = html;
  if (was) unfold(place, was);
  // The batches of another run are others.
  if (runs !== drawnRuns) Object.assign(gpuprof.run, { range: null, cut: true });
  drawnRuns = runs;
  gpuprof.draw(place);
  if (was) {
    type(place, was);
    scrollTo(was.x, was.y);
  }
  setTimeout(() => { place.style.minHeight = ""; }, 1000); // figures may be drawn a little later
}
