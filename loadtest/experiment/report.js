"use strict";
// Draws every figure of the page, and again when light turns dark.  Colours in the figures are names of CSS
// variables, so the style sheet is the only place that knows them.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 760px)");
  const touch = matchMedia("(pointer: coarse)");

  function resolve(value, style) {
    if (typeof value === "string") return value.startsWith("--") ? style.getPropertyValue(value).trim() : value;
    if (Array.isArray(value)) return value.map((item) => resolve(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, style)]));
  }

  function themed(layout, style) {
    const [ink, muted, rule, panel] = ["--ink", "--muted", "--rule", "--panel"].map((name) => style.getPropertyValue(name).trim());
    const size = narrow.matches ? 12 : 13;
    const base = {
      font: { family: getComputedStyle(document.body).fontFamily, size, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: layout.margin_left_px ?? (narrow.matches ? 52 : 64), r: 12, t: 34, b: 46 },
      legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", font: { size } },
      hoverlabel: { bgcolor: panel, bordercolor: rule, font: { color: ink, size } },
      hovermode: "closest",
      dragmode: touch.matches ? false : "zoom",
    };
    const styled = { ...base, ...layout };
    for (const name of Object.keys(styled)) {
      if (/^[xy]axis\d*$/.test(name)) {
        const axis = { gridcolor: rule, zeroline: false, zerolinecolor: muted, linecolor: rule, automargin: true, ...styled[name] };
        axis.title = { standoff: 8, ...axis.title, font: { size, color: muted } };
        axis.tickfont = { size: size - 1, color: muted };
        styled[name] = axis;
      }
    }
    delete styled.margin_left_px;
    if (styled.showlegend === false) styled.margin = { ...styled.margin, t: 14 };
    return styled;
  }

  async function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const place of document.querySelectorAll(".plot")) {
      const { data, layout } = resolve(figures[place.id], style);
      await Plotly.react(place, data, themed(layout, style), { displayModeBar: false, responsive: true });
    }
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
  }

  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  draw();
})();
