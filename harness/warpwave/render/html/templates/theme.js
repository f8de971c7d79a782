  // The button overrides the colours of the reader’s system.
  const themes = ["system", "light", "dark"];
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % 3];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    theme.textContent = `Theme: ${next}`;
  });
