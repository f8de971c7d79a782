"use strict";
// The keyboard scrolls wide tables, and each block of code has a button of its own name.
document$.subscribe(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
  const buttons = () => document.querySelectorAll("nav.md-code__nav").forEach((nav, at) => (nav.ariaLabel = `Copy code ${at + 1}`));
  buttons();
  new MutationObserver(buttons).observe(document.querySelector("article") ?? document.body, { childList: true, subtree: true });
});
