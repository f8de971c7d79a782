  // The filters are in the address, so that what one sees can be shared: ?target=cuda&dtype=bf16
  const form = document.getElementById("filters");
  const lines = [...document.querySelectorAll("[data-target]")];
  const names = [...form.querySelectorAll("select")].map((select) => select.name);
  const apply = () => {
    const wanted = Object.fromEntries(names.map((name) => [name, form.elements[name].value]));
    for (const line of lines) line.hidden = names.some((name) => wanted[name] && line.dataset[name] !== wanted[name]);
    for (const kernel of document.querySelectorAll(".history-kernel")) kernel.hidden = !kernel.querySelector("figure:not([hidden])");
    const figures = lines.filter((line) => line.tagName === "FIGURE");
    document.getElementById("left").textContent = `${figures.filter((line) => !line.hidden).length} of ${figures.length} lines`;
  };
  const asked = new URLSearchParams(location.search);
  for (const name of names) {
    const select = form.elements[name];
    if ([...select.options].some((option) => option.value === asked.get(name))) select.value = asked.get(name);
  }
  form.hidden = false;
  form.addEventListener("change", () => {
    for (const name of names) {
      if (form.elements[name].value) asked.set(name, form.elements[name].value);
      else asked.delete(name);
    }
    const query = asked.toString();
    try {
      history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
    } catch {
      // a page from the disk may not change its address in every browser; the filters work all the same
    }
    apply();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
