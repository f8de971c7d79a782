  // The overview: columns sort by mouse and keyboard, and a filter keeps the rows that contain all of its words.
  for (const table of document.querySelectorAll("[data-sortable]")) {
    const [head] = table.tHead.rows;
    const body = table.tBodies[0];
    const value = (row, column) => row.cells[column].dataset.v;
    [...head.cells].forEach((cell, column) => {
      const kind = cell.dataset.sort;
      const button = make("button", cell.textContent, "sort");
      button.type = "button";
      cell.replaceChildren(button);
      button.addEventListener("click", () => {
        const natural = kind === "high" ? "descending" : "ascending";
        const opposite = kind === "high" ? "ascending" : "descending";
        const order = cell.ariaSort === natural ? opposite : natural;
        for (const other of head.cells) other.removeAttribute("aria-sort");
        cell.ariaSort = order;
        const compare = kind === "text" ? (a, b) => a.localeCompare(b) : (a, b) => a - b;
        const sign = order === "ascending" ? 1 : -1;
        body.append(...[...body.rows].sort((a, b) => sign * compare(value(a, column), value(b, column))));
      });
    });
    const filter = make("input", undefined, "filter");
    filter.type = "search";
    filter.placeholder = "Filter: kernel, failed, …";
    filter.ariaLabel = "Filter the kernels";
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(" ");
      for (const row of body.rows) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
    });
    document.getElementById("overview-tools").prepend(filter);
  }
