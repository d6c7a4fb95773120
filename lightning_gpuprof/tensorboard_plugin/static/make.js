// Elements without any HTML: text stays text whatever it holds.
export function make(tag, attributes = {}, ...inner) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inner);
  return element;
}

const LONG = 22;  // letters for which a column may have no room

// The name of a run: a line ends after a slash; in a long folder also after a hyphen or an underscore.
export function runName(name) {
  const folders = name.split(/(?<=\/)/).map((folder) => (folder.length <= LONG
    ? [make("span", {}, folder)]
    : folder.split(/(?<=[-_])/).flatMap((part, index) => (index ? [make("wbr"), part] : [part]))));
  return make("bdi", { class: "name" }, ...folders.flatMap((parts, index) => (index ? [make("wbr"), ...parts] : parts)));
}
