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
