"use strict";
(() => {
  const readout = document.getElementById("readout");
  // Set texts through textContent only, so that no name can become markup.
  const make = (tag, text, css) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (css) element.className = css;
    return element;
  };
  const figure3 = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : String(Number(x.toPrecision(3))));
  const spread = (p) => (p[1] && p[2] ? `${figure3(p[1])} to ${figure3(p[2])}` : "");
  const share = (p) => (p[3] ? `${Math.round(p[3] * 100)}%` : "");
  const STATES = ["", "unverified", "suspect"];

  // What is shown on demand. A large page has it compressed, and it is there a moment after the page.
  let data = null;
  let figures = null;
  const use = (text) => {
    data = JSON.parse(text);
    figures = new Map(data.figures.map((figure) => [figure.id, figure]));
  };
  const unpack = async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    use(await new Response(stream).text());
  };
  const embedded = document.getElementById("data");
  const ready = embedded.type === "application/json" ? use(embedded.textContent) : unpack(embedded.textContent);

  // Switches: a series is shown unless its provider or its target is switched off.
  const bindSwitches = (kernel) => {
    const buttons = [...kernel.querySelectorAll(".toggle")];
    const off = (kind) => new Set(buttons.filter((b) => b.dataset[kind] !== undefined && b.ariaPressed === "false").map((b) => b.dataset[kind]));
    const apply = () => {
      const providers = off("provider");
      const targets = off("target");
      for (const drawn of kernel.querySelectorAll("[data-figure]")) {
        const { series } = figures.get(drawn.dataset.figure);
        for (const group of drawn.querySelectorAll("[data-series]")) {
          const { provider, target } = series[group.dataset.series];
          group.classList.toggle("off", providers.has(provider) || targets.has(target));
        }
      }
    };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
        apply();
      });
    }
    apply();
  };

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

  // Build the long tables on demand.
  const long = (details, heads, rows, css) => {
    const scroll = make("div", undefined, "scroll");
    scroll.tabIndex = 0;
    const built = make("table");
    const head = built.createTHead().insertRow();
    for (const text of heads) head.append(make("th", text));
    const body = built.createTBody();
    const lines = rows.map((row) => {
      const line = body.insertRow();
      row.forEach((text, column) => line.append(make("td", text, css(column, text))));
      return [row.join(" ").toLowerCase(), line];
    });
    scroll.append(built);
    const filter = make("input", undefined, "filter");
    filter.type = "search";
    filter.placeholder = "Filter";
    filter.ariaLabel = "Filter the rows";
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(" ");
      for (const [text, line] of lines) line.hidden = !wanted.every((word) => text.includes(word));
    });
    details.append(filter, scroll);
  };
  const numbers = (details) => {
    const rows = [];
    for (const found of data.figures) {
      if (found.kernel !== details.dataset.numbers) continue;
      found.labels.forEach((label, index) => {
        for (const entry of found.series) {
          const point = entry.points[index];
          const lead = [found.title, label, entry.provider, entry.target];
          rows.push(point ? [...lead, figure3(point[0]), found.unit, spread(point), share(point), STATES[point[4]]] : [...lead, "no number", "", "", "", ""]);
        }
      });
    }
    const heads = ["sweep", "case", "provider", "target", "value", "unit", "20 to 80%", "of ceiling", "state"];
    long(details, heads, rows, (column) => (column === 4 || column === 6 || column === 7 ? "num" : ""));
  };
  const tests = (details) => {
    const { targets, verdicts, rows } = data.tests;
    const named = rows.map(([id, ...found]) => [id, ...found.map((verdict) => (verdict < 0 ? "missing" : verdicts[verdict]))]);
    long(details, ["test", ...targets], named, (column, text) => (column && text !== "missing" ? `v-${text === "skipped" ? "not-run" : text}` : ""));
  };
  const configurations = (details) => {
    const kernel = details.dataset.code; // empty for those of all kernels
    const rows = kernel ? data.code.rows.filter((row) => row[0] === kernel).map((row) => row.slice(1)) : data.code.rows;
    const heads = [...(kernel ? [] : ["kernel"]), "function", "configuration", ...data.code.columns];
    long(details, heads, rows, (column) => (column > heads.indexOf("configuration") - 1 ? "cellcode" : ""));
  };

  // Rows that most readers skip are on request; without a script they are all there.
  const bindMore = (button) => {
    const rows = [...button.parentElement.querySelectorAll("tr.other")];
    for (const row of rows) row.hidden = true;
    button.hidden = false;
    button.ariaExpanded = "false";
    button.addEventListener("click", () => {
      for (const row of rows) row.hidden = !row.hidden;
      button.ariaExpanded = rows[0]?.hidden ? "false" : "true";
    });
  };

  // A kernel's section is filled and made to answer when it is first opened: a page has hundreds.
  const dressed = new Set();
  const dress = (section) => {
    if (!data || dressed.has(section)) return;
    dressed.add(section);
    const place = section.querySelector("[data-packed]");
    if (place) place.innerHTML = data.bodies[place.dataset.packed]; // markup of this page's own templates, escaped there
    bindSwitches(section);
    for (const drawn of section.querySelectorAll("[data-figure]")) bindDrawing(drawn);
    for (const button of section.querySelectorAll("[data-more]")) bindMore(button);
    for (const details of section.querySelectorAll("[data-numbers]")) details.addEventListener("toggle", () => numbers(details), { once: true });
    for (const details of section.querySelectorAll("[data-code]")) details.addEventListener("toggle", () => configurations(details), { once: true });
  };
  const kernels = [...document.querySelectorAll("[data-kernel]")];
  const pageOf = (section) => section.querySelector("details.page");
  for (const section of kernels) pageOf(section).addEventListener("toggle", async () => (data ?? (await ready), dress(section)));
  const failed = (error) => {
    for (const place of document.querySelectorAll("[data-packed]")) place.textContent = `This browser could not unpack this section (${error}). comparison.json beside this file holds everything.`;
  };
  const begin = () => {
    for (const section of kernels) if (pageOf(section).open) dress(section);
    for (const [selector, build] of [["[data-tests]", tests], ['[data-code=""]', configurations]]) {
      for (const details of document.querySelectorAll(selector)) {
        if (details.open) build(details);
        else details.addEventListener("toggle", () => build(details), { once: true });
      }
    }
  };
  if (data) begin();
  else ready.then(begin).catch(failed);

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

  // A link into a folded part opens it. Printing opens the kernels.
  const reveal = () => {
    let found = null;
    try {
      found = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch {
      return; // a fragment that is no text
    }
    if (!found) return;
    for (let part = found; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    const own = found.querySelector(":scope > details.page");
    if (own) own.open = true;
    found.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => {
    for (const section of kernels) {
      dress(section);
      pageOf(section).open = true;
    }
    for (const row of document.querySelectorAll("tr.other")) row.hidden = false;
  });
})();
