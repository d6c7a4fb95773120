// The tab's state lives behind the hash of TensorBoard's own address, under the names that TensorBoard keeps for plugins,
// so that a link leads back to the run and the view. Without TensorBoard around it, it lives in the page's own address.
const PREFIX = "p.gpuprof.";
const KEYS = ["run", "view", "other"];
const page = (() => {
  try {
    return window.parent.location.hash !== undefined ? window.parent : window;
  } catch {
    return window; // framed by another host
  }
})();

function pieces() {
  return page.location.hash.replace(/^#/, "").split("&").filter(Boolean);
}
const isOwn = (piece) => piece.startsWith(PREFIX);

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

export function read() {
  const found = {};
  for (const piece of pieces().filter(isOwn)) {
    const [key, ...value] = piece.slice(PREFIX.length).split("=");
    if (KEYS.includes(key)) found[key] = decoded(value.join("="));
  }
  return found;
}

export function write(state, { replace = false } = {}) {
  const kept = pieces().filter((piece) => !isOwn(piece));
  if (page !== window && kept.length === 0) kept.push("gpuprof");
  const own = KEYS.filter((key) => state[key]).map((key) => `${PREFIX}${key}=${encodeURIComponent(state[key])}`);
  const hash = "#" + [...kept, ...own].join("&");
  if (hash === page.location.hash) return;
  // TensorBoard must not take it for a change of tab: no event comes of these two.
  page.history[replace ? "replaceState" : "pushState"](page.history.state, "", page.location.pathname + page.location.search + hash);
}

// The listener is told whether the reader comes back from another tab of TensorBoard, which forgets where we were.
export function onChange(listener) {
  const isOurs = () => page === window || pieces()[0] === "gpuprof";
  let wasOurs = isOurs();
  const changed = () => {
    const back = isOurs() && !wasOurs && !pieces().some(isOwn);
    wasOurs = isOurs();
    if (wasOurs) listener(back);
  };
  for (const name of ["popstate", "hashchange"]) page.addEventListener(name, changed);
}
