"use strict";
// A table is sorted by pressing a heading: numbers by size, the rest as text, what is absent last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const isNumber = heading.classList.contains("number");
      const before = heading.getAttribute("aria-sort");
      const order = before ? (before === "ascending" ? "descending" : "ascending")
        : (isNumber ? "descending" : "ascending");
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const keyed = [...body.rows].map((row) => {
        const text = row.cells[column].textContent.trim();
        return [isNumber ? Number.parseFloat(text.replaceAll(",", "")) : text, row];
      });
      keyed.sort(([a], [b]) => {
        if (!isNumber) return sign * a.localeCompare(b, undefined, { numeric: true });
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return sign * (a - b);
      });
      body.append(...keyed.map(([, row]) => row));
    });
  });
}
// On paper nothing can be unfolded; what would fill pages stays folded.
const mostRowsOnPaper = 60;
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")]
    .filter((details) => details.querySelectorAll("tr").length <= mostRowsOnPaper);
  folded.forEach((details) => { details.open = true; });
});
window.addEventListener("afterprint", () => {
  folded.forEach((details) => { details.open = false; });
});
