  // The read-out: the case nearest to the pointer, or selected with the arrow keys.
  const table = (rows) => {
    const body = make("table");
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((text, column) => line.append(make("td", text, column ? "num" : "")));
    }
    return body;
  };
  const show = (drawn, index, anchor) => {
    const found = figures.get(drawn.dataset.figure);
    const svg = drawn.querySelector(".plot svg");
    const guide = svg.querySelector(".guide");
    const several = new Set(found.series.map((entry) => entry.target)).size > 1;
    const rows = [];
    found.series.forEach((entry, position) => {
      if (svg.querySelector(`[data-series="${position}"]`).classList.contains("off")) return;
      const point = entry.points[index];
      const name = several ? `${entry.provider}, ${entry.target}` : entry.provider;
      rows.push(point ? [name, figure3(point[0]), spread(point), share(point), STATES[point[4]]] : [name, "no number"]);
    });
    if (found.down) for (const y of ["y1", "y2"]) guide.setAttribute(y, found.at[index]);
    else for (const x of ["x1", "x2"]) guide.setAttribute(x, found.at[index]);
    guide.style.visibility = "visible";
    readout.replaceChildren(make("p", `${found.labels[index]}${found.unit ? `, ${found.unit}` : ""}`), table(rows));
    readout.hidden = false;
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const at = anchor ?? (found.down ? { x: box.left + box.width / 2, y: box.top + found.at[index] * scale } : { x: box.left + found.at[index] * scale, y: box.top + 24 });
    const left = at.x + 18 + readout.offsetWidth < innerWidth ? at.x + 18 : at.x - 18 - readout.offsetWidth;
    readout.style.left = `${Math.max(6, left) + scrollX}px`;
    readout.style.top = `${Math.max(6, Math.min(at.y + 14, innerHeight - readout.offsetHeight - 8)) + scrollY}px`;
  };
  const hide = (drawn) => {
    readout.hidden = true;
    drawn.querySelector(".guide").style.visibility = "hidden";
  };
  const bindDrawing = (drawn) => {
    const plot = drawn.querySelector(".plot");
    const svg = plot.querySelector("svg");
    const { at, down } = figures.get(drawn.dataset.figure);
    let chosen = -1;
    plot.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      const here = (down ? event.clientY - box.top : event.clientX - box.left) / scale;
      chosen = at.reduce((best, x, index) => (Math.abs(x - here) < Math.abs(at[best] - here) ? index : best), 0);
      show(drawn, chosen, { x: event.clientX, y: event.clientY });
    });
    plot.addEventListener("pointerleave", () => hide(drawn));
    plot.addEventListener("blur", () => hide(drawn));
    plot.addEventListener("keydown", (event) => {
      const last = at.length - 1;
      const next = { ArrowRight: chosen + 1, ArrowDown: chosen + 1, ArrowLeft: chosen - 1, ArrowUp: chosen - 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide(drawn);
      if (next === undefined) return;
      event.preventDefault();
      chosen = Math.max(0, Math.min(last, next));
      show(drawn, chosen);
    });
  };
