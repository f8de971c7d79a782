"use strict";
// The keyboard scrolls wide tables, and the search and the button of each block of code have names.
document$.subscribe(() => {
  for (const search of document.querySelectorAll(".md-search[role=dialog]")) search.ariaLabel ||= "Search";
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
  const buttons = () => document.querySelectorAll("nav.md-code__nav").forEach((nav, at) => (nav.ariaLabel = `Copy code ${at + 1}`));
  buttons();
  new MutationObserver(buttons).observe(document.querySelector("article") ?? document.body, { childList: true, subtree: true });
});
