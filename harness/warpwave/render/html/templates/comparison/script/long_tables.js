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
    const { targets, states, rows } = data.tests;
    const named = rows.map(([id, ...found]) => [id, ...found.map((state) => (state < 0 ? "missing" : states[state][0]))]);
    const verdicts = Object.fromEntries(states);
    long(details, ["test", ...targets], named, (column, text) => (column && text !== "missing" ? `v-${verdicts[text]}` : ""));
  };
  const configurations = (details) => {
    const kernel = details.dataset.code; // empty for those of all kernels
    const rows = kernel ? data.code.rows.filter((row) => row[0] === kernel).map((row) => row.slice(1)) : data.code.rows;
    const heads = [...(kernel ? [] : ["kernel"]), "function", "configuration", ...data.code.columns];
    long(details, heads, rows, (column) => (column > heads.indexOf("configuration") - 1 ? "cellcode" : ""));
  };
