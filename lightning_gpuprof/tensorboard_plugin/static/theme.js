// Dark or light as TensorBoard around the tab is, by its own switch; as the system is where there is no TensorBoard. The
// page's style has its dark colours once, in media rules: those are what is switched.
const QUERY = "(prefers-color-scheme: dark)";
const rules = new Map(); // media rule → what it said before

function host() {
  try {
    const found = window.parent.document; // throws where another host frames the tab
    return window.parent !== window && found.querySelector("tb-webapp") ? found.body : null;
  } catch {
    return null;
  }
}

function remember(sheet) {
  for (const rule of sheet.cssRules) {
    if (rule instanceof CSSMediaRule && rule.media.mediaText.includes(QUERY)) rules.set(rule, rule.media.mediaText);
  }
}

function apply(dark) {
  const root = document.documentElement;
  if (root.dataset.theme === (dark ? "dark" : "light")) return;
  root.dataset.theme = dark ? "dark" : "light";
  for (const [rule, before] of rules) rule.media.mediaText = dark ? before.replace(QUERY, "(min-width: 0)") : "not all";
  globalThis.gpuprof?.redrawAll();
}

// For the sheets that have the colours, once they are loaded.
export function followTheme(sheets) {
  const body = host();
  if (!body) return;
  sheets.forEach(remember);
  const read = () => apply(body.classList.contains("dark-mode"));
  new MutationObserver(read).observe(body, { attributes: true, attributeFilter: ["class"] });
  read();
}
