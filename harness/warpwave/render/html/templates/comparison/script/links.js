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
