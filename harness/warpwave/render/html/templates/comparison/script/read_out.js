  // The read-out: the case nearest to the pointer, or selected with the arrow keys.
  const table = (rows) => {
    const body = make("table");
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((text, column) => line.append(make("td", text, column ? "num" : "")));
    }
    return body;
  };
  const GAP = 14;
  // Where the point of a case is on the screen: of the visible lines, the one that is nearest to the pointer, or else the first.
  const placeOf = (svg, found, index, pointer) => {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const places = [];
    for (const mark of svg.querySelectorAll(`[data-series]:not(.off) ${found.down ? ".dot" : ".line"}`)) {
      for (const [, x, y] of mark.getAttribute("d").matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g)) {
        if (Math.abs((found.down ? y : x) - found.at[index]) < 1) places.push({ x: box.left + x * scale, y: box.top + y * scale });
      }
    }
    const far = (place) => (pointer ? Math.hypot(place.x - pointer.x, place.y - pointer.y) : 0);
    const middle = { x: box.left + (found.down ? box.width / 2 : found.at[index] * scale), y: box.top + (found.down ? found.at[index] * scale : 24) };
    return places.length ? places.reduce((best, place) => (far(place) < far(best) ? place : best)) : middle;
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
    const point = placeOf(svg, found, index, anchor);
    const [width, height] = [readout.offsetWidth, readout.offsetHeight];
    const right = point.x + GAP + width < innerWidth - 6;
    const beside = right || point.x - GAP - width > 6;
    // Beside the point; where neither side has room, below or above it.
    const left = right ? point.x + GAP : beside ? point.x - GAP - width : Math.max(6, Math.min(point.x - width / 2, innerWidth - 6 - width));
    const below = point.y + GAP + height < innerHeight - 6 ? point.y + GAP : point.y - GAP - height;
    const top = beside ? Math.max(6, Math.min(point.y - height / 2, innerHeight - height - 6)) : Math.max(6, below);
    readout.style.left = `${left + scrollX}px`;
    readout.style.top = `${top + scrollY}px`;
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
