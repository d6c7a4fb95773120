// The list of runs: sorted by the column that was asked for, narrowed by a text.
import { make, runName } from "./make.js";

const order = { column: null, down: false };
let wanted = "";
const narrow = matchMedia("(max-width: 640px)");

const when = (seconds) => (seconds === null ? "-" : new Date(seconds * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" }));

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return (a < b ? -1 : 1) * (order.down ? -1 : 1);
}

function sorted(rows) {
  if (order.column === null) return rows;
  const key = (row) => (order.column < 0 ? row.shown : row.cells[order.column].key);
  return [...rows].sort((a, b) => compare(key(a), key(b)));
}

export function drawList(place, listed, open) {
  if (listed.rows.length === 0) {
    place.replaceChildren(
      make("h2", {}, "Runs"),
      ...(listed.note ? [make("p", { class: "absent" }, listed.note)] : []),
      make("p", { class: "absent" },
        "There is no run under the log directory yet. Train with Trainer(callbacks=[GpuProfiler()]) and this page fills."),
    );
    return;
  }
  const body = make("tbody");
  const count = make("span", { class: "hint", role: "status" });
  const headings = [make("th", { scope: "col" }, heading("run", -1))];
  listed.columns.forEach((column, index) => {
    headings.push(make("th", { scope: "col", class: column.numeric ? "n" : null }, heading(column.title, index)));
  });

  function heading(title, column) {
    return make("button", {
      type: "button", class: "by",
      onclick: () => {
        order.down = order.column === column ? !order.down : column >= 0 && listed.columns[column].numeric;
        order.column = column;
        fill();
      },
    }, title);
  }

  function fill() {
    const shown = sorted(listed.rows).filter((row) => `${row.shown} ${row.cells.map((cell) => cell.text).join(" ")}`
      .toLowerCase().includes(wanted));
    body.replaceChildren(...shown.map((row) => make("tr", {},
      make("td", {}, make("a", { href: "#", onclick: (event) => { event.preventDefault(); open(row.name); } },
        runName(row.shown))),
      ...row.cells.map((cell, index) => {
        const column = listed.columns[index];
        const text = column.title === "started" ? when(cell.key) : cell.text;
        const kind = { state: `state ${row.state.split(/\W/)[0]}`, "top finding": "words" }[column.title];
        return make("td", { class: kind ?? (column.numeric ? "n" : null), "data-label": column.title, title: cell.why || null },
          make("bdi", {}, text));
      }))));
    count.textContent = wanted ? `${shown.length} of ${listed.rows.length}` : "";
    headings.forEach((cell, index) => {
      const by = index - 1 === order.column;
      by ? cell.setAttribute("aria-sort", order.down ? "descending" : "ascending") : cell.removeAttribute("aria-sort");
    });
  }

  const field = make("input", {
    type: "search", placeholder: "Search runs", "aria-label": "Search runs", maxlength: 200,
    oninput: () => { wanted = field.value.trim().toLowerCase(); fill(); },
  });
  field.value = wanted;
  fill();
  const area = make("div", { class: "scroll" }, make("table", { class: "runs" }, make("thead", {}, make("tr", {}, ...headings)), body));
  narrow.onchange = () => area.classList.toggle("folded", narrow.matches);
  narrow.onchange();
  place.replaceChildren(
    make("h2", {}, `Runs `, make("small", {}, String(listed.rows.length))),
    ...(listed.note ? [make("p", { class: "absent" }, listed.note)] : []),
    make("p", { class: "search" }, field, count),
    area,
  );
}
