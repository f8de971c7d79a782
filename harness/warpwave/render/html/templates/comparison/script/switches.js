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
