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
