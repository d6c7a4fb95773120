// Copy buttons, which also work from disk and in frames, and links to what lies in a closed part of the page.
"use strict";
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    button.after(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  const target = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!target) return;
  if (target.matches("details")) target.open = true;
  const inner = target.querySelector(":scope > details.group");
  if (inner) inner.open = true;
  for (let part = target.parentElement?.closest("details"); part; part = part.parentElement?.closest("details")) part.open = true;
});
