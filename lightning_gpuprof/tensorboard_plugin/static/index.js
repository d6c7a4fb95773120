// TensorBoard loads this module into a frame of its own and calls render().
import * as address from "./address.js";
import { ask } from "./ask.js";
import { make } from "./make.js";
import { drawList } from "./run_list.js";
import { followTheme } from "./theme.js";
import { clear, drawView, loadPlotly } from "./view.js";

const RUNNING_EVERY_MS = 4000;
const LIST_EVERY_MS = 10000;
const PENDING_EVERY_MS = 700;

const state = { run: "", view: "", other: "" };
let listed = { rows: [], columns: [], views: [], note: "" };
let shown = "";
let timer = 0;
let goesOn = true;
let asking = null;
let empty = [];
let parts = {};

export async function render() {
  document.documentElement.lang = "en";
  document.title = "GPU Profiler";
  const colours = make("link", { rel: "stylesheet", href: "report.css", onload: () => followTheme([colours.sheet]) });
  document.head.append(colours, make("link", { rel: "stylesheet", href: "tab.css" }));
  document.head.append(make("meta", { name: "color-scheme", content: "light dark" }));
  build();
  Object.assign(state, address.read());
  address.onChange((kept) => {
    if (kept) address.write(state, { replace: true });
    else {
      Object.assign(state, { run: "", view: "", other: "" }, address.read());
      show();
    }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && goesOn) schedule(0); });
  document.addEventListener("click", followLink);
  await Promise.all([refreshList(), state.run ? show() : null]);
  if (state.run) return;
  if (listed.rows.length === 1) { // nothing to choose from
    state.run = listed.rows[0].name;
    address.write(state, { replace: true });
  }
  await show();
}

function build() {
  // New runs may have come since the list was read.
  const onfocus = () => { refreshList(); };
  parts.run = make("select", { id: "run", onfocus, onchange: () => go({ run: parts.run.value }) });
  parts.other = make("select", { id: "other", onfocus, onchange: () => go({ other: parts.other.value }) });
  parts.state = make("span", { class: "state", role: "status" });
  parts.views = make("nav", { "aria-label": "Views" });
  parts.view = make("main", { id: "view", tabindex: "-1", "aria-busy": "true" });
  parts.compare = make("label", { for: "other" }, "beside ", parts.other);
  parts.bar = make("div", { class: "top", role: "banner" },
    make("h1", {}, make("a", { href: "#", onclick: (event) => { event.preventDefault(); go({ run: "", view: "", other: "" }); } },
      "GPU Profiler")),
    make("label", { for: "run" }, "Run ", parts.run), parts.compare, parts.state);
  document.body.append(parts.bar, make("div", { class: "frame" }, parts.views, parts.view));
}

async function go(change, anchor = "", moment = "") {
  Object.assign(state, change);
  if (!state.run) state.other = "";
  address.write(state);
  scrollTo(0, 0);
  await show();
  if (anchor) document.getElementById(anchor)?.scrollIntoView();
  if (moment) showMoment(moment);
}

// A finding's moment is shown by the timeline, which is drawn a little later.
function showMoment(moment, tries = 50) {
  if (!document.querySelector(".lanes")) {
    if (tries) setTimeout(showMoment, 100, moment, tries - 1);
    return;
  }
  const link = make("a", { "data-moment": moment, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}

// A link inside of a view names another view, or an element of this one.
function followLink(event) {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const anchor = link.getAttribute("href").slice(1);
  const target = anchor === "verdict" ? "overview" : anchor;
  const here = document.getElementById(anchor);
  if (here) { here.scrollIntoView(); return; }
  const group = listed.views.find((view) => view.anchor === target || view.views.includes(target));
  if (group) go({ view: group.anchor }, target, link.dataset.moment);
}

async function refreshList() {
  const answer = await ask("runs").catch(() => ({ error: "TensorBoard does not answer." }));
  if (answer.rows) {
    listed = answer;
    drawSelectors();
    drawViews();
  }
  return answer;
}

function drawSelectors() {
  const names = listed.rows.map((row) => [row.name, row.shown]);
  fill(parts.run, [["", "all runs"], ...names], state.run);
  fill(parts.other, [["", "no other run"], ...names.filter(([name]) => name !== state.run)], state.other);
  parts.compare.hidden = !state.run || listed.rows.length < 2;
}

function fill(select, entries, chosen) {
  if (chosen && !entries.some(([name]) => name === chosen)) entries = [...entries, [chosen, chosen]];
  const same = select.options.length === entries.length && entries.every(([name, text], i) => select.options[i].value === name && select.options[i].text === text);
  if (!same) select.replaceChildren(...entries.map(([name, text]) => make("option", { value: name }, text)));
  select.value = chosen;
}

function drawViews() {
  const current = state.view || "overview";
  parts.views.hidden = !state.run;
  const drawn = JSON.stringify([listed.views.map((view) => view.anchor), empty]);
  if (parts.views.dataset.drawn !== drawn) {
    const focused = document.activeElement?.closest("nav a")?.getAttribute("href");
    const link = (view) => make("a", { href: `#${view.anchor}` }, view.title);
    const [full, without] = [false, true].map((is) => listed.views.filter((view) => empty.includes(view.anchor) === is));
    const names = without.map((view) => view.title).join(", ");
    parts.views.replaceChildren(...full.map(link), ...(without.length
      ? [make("details", {}, make("summary", {}, `Nothing measured: ${names}`), ...without.map(link))] : []));
    parts.views.dataset.drawn = drawn;
    if (focused) parts.views.querySelector(`a[href="${focused}"]`)?.focus();
  }
  const group = listed.views.find((view) => view.anchor === current || view.views.includes(current));
  for (const link of parts.views.querySelectorAll("a")) {
    const here = link.getAttribute("href") === `#${group?.anchor}`;
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    if (here && link.parentElement.matches("details")) link.parentElement.open = true;
  }
}

function schedule(delay) {
  clearTimeout(timer);
  goesOn = true;
  timer = setTimeout(() => (document.hidden || innerWidth === 0 ? schedule(1000) : show({ again: true })), delay);
}

async function show({ again = false } = {}) {
  clearTimeout(timer);
  goesOn = false;
  asking?.abort();
  const mine = (asking = new AbortController());
  const key = JSON.stringify(state);
  const same = key === shown;
  drawSelectors();
  drawViews();
  try {
    await (state.run ? showRun(key, same, mine.signal) : showList(same, again));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!same) message("absent", "TensorBoard does not answer.");
    schedule(RUNNING_EVERY_MS);
  } finally {
    if (mine === asking) parts.view.setAttribute("aria-busy", "false");
  }
}

async function showList(same, again) {
  parts.state.textContent = "";
  if (!same) delete parts.view.dataset.shown;
  const answer = same || again || listed.rows.length === 0 ? await refreshList() : listed;
  if (state.run) return;
  if (answer.error) message("absent", answer.error);
  else if (!answer.unchanged || !same) {
    clear(parts.view);
    const focus = document.activeElement?.getAttribute?.("aria-label");
    drawList(parts.view, listed, (run) => go({ run, view: "overview" }));
    if (focus === "Search runs") parts.view.querySelector("input")?.focus();
  }
  if (!answer.error) shown = JSON.stringify(state);
  schedule(answer === listed && !same ? RUNNING_EVERY_MS : LIST_EVERY_MS);
}

async function showRun(key, same, signal) {
  const view = state.view || "overview";
  const route = state.other ? "compare" : "view";
  const parameters = { run: state.run, view, ...(state.other ? { other: state.other } : {}) };
  if (!same) parts.view.setAttribute("aria-busy", "true");
  const answer = await ask(route, parameters, { signal, fresh: !same });
  if (signal.aborted) return;
  if (answer.unchanged) {
    schedule(RUNNING_EVERY_MS);
    return;
  }
  if (answer.pending) {
    if (!same) message("hint", answer.pending);
    schedule(PENDING_EVERY_MS);
    return;
  }
  if (answer.error) {
    message("absent", answer.error[0].toUpperCase() + answer.error.slice(1));
    parts.state.textContent = "";
    schedule(RUNNING_EVERY_MS);
    return;
  }
  const states = answer.states.map((one) => one.slice(0, 80));
  parts.state.textContent = states.join(" / ");
  parts.state.className = `state ${states[0].split(/\W/)[0]}`;
  empty = answer.empty;
  drawViews();
  await drawView(parts.view, answer.html, { runs: JSON.stringify([state.run, state.other]), same, signal });
  if (signal.aborted) return;
  shown = key;
  parts.view.dataset.shown = `${state.run}|${view}`;
  if (answer.goes_on) schedule(RUNNING_EVERY_MS);
  else setTimeout(() => loadPlotly().catch(() => {}), 500);
}

function message(kind, text) {
  shown = "";
  delete parts.view.dataset.shown;
  if (parts.view.textContent === text) return;
  clear(parts.view);
  parts.view.append(make("p", { class: kind, role: "alert" }, text));
}
