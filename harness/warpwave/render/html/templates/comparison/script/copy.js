  // Beside each command stands a button that copies it, without the prompt.
  for (const command of document.querySelectorAll("pre.again, pre.paste")) {
    const button = make("button", "Copy", "copy");
    button.type = "button";
    const text = [...command.childNodes].filter((part) => part.className !== "prompt").map((part) => part.textContent).join("").trim();
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(command); // the browser refuses: Ctrl-C copies it
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    const both = make("div", undefined, "copyable");
    command.replaceWith(both);
    both.append(command, button);
  }
