// Large tables (data-large) get headings that sort and, from some rows on, a field that filters; both are made here, so
// that a page without script shows nothing that does not work. Tables that are wider than a telephone are folded. Columns
// of steps (data-step) get a slider that shows one step at a time.
"use strict";
gpuprof.finishers.push((root) => {
  const FILTERED_FROM = 12;
  const UNITS = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, "µs": 1e-6, us: 1e-6, ns: 1e-9, ms: 1e-3, min: 60, h: 3600 };
  // "<0.001" is below 0.001 and above 0, "12.0 to 12.3" counts as its begin, "-" as nothing; a factor "x12" is a gain of
  // 1,100 %
  function value(text) {
    const found = /^(?:([-−+]?)([<≤x×]?))\s*([-−]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*([^\s\d/]*)/.exec(text.trim());
    if (!found) return null;
    const number = Number(found[3].replaceAll(",", "").replace("−", "-")) * (UNITS[found[4]] || 1);
    const sign = "-−".includes(found[1] || " ") ? -1 : 1;
    return sign * ({ "<": 0.99 * number, x: 100 * (number - 1), "×": 100 * (number - 1) }[found[2]] ?? number);
  }

  function sortable(table) {
    const body = table.tBodies[0], before = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      if (heading.classList.contains("b")) return;
      const numeric = heading.classList.contains("n"), button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const order = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
        const next = order[(order.indexOf(heading.getAttribute("aria-sort") || "none") + 1) % 3];
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (next !== "none") heading.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const text = (row) => row.cells[column].textContent;
        const rows = next === "none" ? before : [...before].sort((a, b) => {
          if (!numeric) return sign * text(a).localeCompare(text(b), "en", { numeric: true });
          const [one, other] = [value(text(a)), value(text(b))];
          if (one === null || other === null) return (one === null) - (other === null);
          return sign * (one - other);
        });
        body.append(...rows);
      });
    });
  }

  // A name that was cut has the whole of it on hover.
  function text(cell) {
    const shown = cell.textContent, whole = shown.includes("...") ? cell.querySelector("abbr") : null;
    return (shown + (whole ? " " + whole.title : "")).toLowerCase();
  }

  function filtered(table) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < FILTERED_FROM) return;
    const label = document.createElement("label"), field = document.createElement("input");
    const told = document.createElement("span");
    label.className = "filter";
    field.type = "search";
    field.placeholder = "part of a name";
    told.setAttribute("role", "status");
    label.append("Show rows with ", field, told);
    (table.closest(".scroll") || table).before(label);
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      let kept = 0;
      for (const row of rows) {
        // cells of numbers would let "1" find nearly every row
        const names = [...row.cells].filter((cell) => !cell.classList.contains("n"));
        row.hidden = wanted !== "" && !names.some((cell) => text(cell).includes(wanted));
        kept += !row.hidden;
      }
      told.textContent = wanted ? `${kept} of ${rows.length} rows` : "";
    });
  }

  // The slider's first place shows all steps; of one step the rows that it has, those with most time first.
  function sliding(table) {
    const headings = [...table.tHead.rows[0].cells], steps = headings.filter((one) => "step" in one.dataset);
    if (steps.length < 2) return;
    const names = steps.map((one) => one.textContent), rows = [...table.tBodies[0].rows];
    const label = document.createElement("label"), field = document.createElement("input");
    const told = document.createElement("output");
    label.className = "filter";
    Object.assign(field, { type: "range", min: 0, max: steps.length, value: 0 });
    label.append("One step at a time ", field, " ", told);
    (table.closest(".scroll") || table).before(label);
    function show() {
      const chosen = steps[field.value - 1], column = chosen?.cellIndex;
      const time = (row) => value(row.cells[column].textContent) || 0;
      for (const row of table.rows) {
        for (const step of steps) row.cells[step.cellIndex].classList.toggle("off", Boolean(chosen) && step !== chosen);
      }
      for (const row of rows) row.classList.toggle("off", Boolean(chosen) && !time(row));
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      table.tBodies[0].append(...(chosen ? [...rows].sort((a, b) => time(b) - time(a)) : rows));
      told.textContent = chosen ? names[field.value - 1] : "all steps";
      field.setAttribute("aria-valuetext", told.textContent);
    }
    field.addEventListener("input", show);
    show();
  }

  // On a narrow screen a table that would have to be scrolled sideways has a row of labelled values for each of its rows.
  const NARROW = 640;
  const folding = new ResizeObserver((areas) => areas.forEach(({ target: area }) => {
    const table = area.querySelector("table");
    if (!area.clientWidth || area.clientWidth === Number(area.dataset.width)) return;
    area.dataset.width = area.clientWidth;
    area.classList.remove("folded");
    if (area.clientWidth > NARROW || table.scrollWidth <= area.clientWidth) return;
    const headings = [...table.tHead.rows[0].cells].map((one) => (one.classList.contains("b") ? "" : one.textContent.trim()));
    for (const row of table.querySelectorAll("tbody tr, tfoot tr")) {
      [...row.cells].forEach((cell, column) => { cell.dataset.label = headings[column]; });
    }
    area.classList.add("folded");
  }));
  for (const table of root.querySelectorAll(".scroll > table")) folding.observe(table.parentElement);

  for (const table of root.querySelectorAll("table:has(th[data-step])")) {
    sliding(table);
    table.querySelectorAll("th[data-step]").forEach((one) => one.removeAttribute("data-step"));
  }
  for (const table of root.querySelectorAll("table[data-large]")) {
    table.removeAttribute("data-large");
    filtered(table);
    sortable(table);
  }
});
