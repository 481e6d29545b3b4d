"use strict";
const page = JSON.parse(document.getElementById("data").textContent);
const TIMES = new Set(["t", "t2"]);
const line = { labelColor: "currentColor", titleColor: "currentColor", domainColor: "currentColor",
  tickColor: "currentColor", gridColor: "currentColor" };
const config = {
  background: null,
  font: "system-ui, sans-serif",
  view: { stroke: null },
  axis: { ...line, gridOpacity: 0.15, domainOpacity: 0.4, tickOpacity: 0.4, titleFontWeight: "normal", labelFontSize: 11 },
  legend: { labelColor: "currentColor", titleColor: "currentColor", titleFontWeight: "normal", labelFontSize: 11 },
};

function valuesOf(chart) {
  return chart.rows.map((row) => Object.fromEntries(chart.columns.map((name, at) =>
    [name, TIMES.has(name) ? page.start + row[at] * 1000 : name in chart.names ? chart.names[name][row[at]] : row[at]])));
}

function fitted(value, narrow) {
  if (Array.isArray(value)) return value.map((each) => fitted(each, narrow));
  if (value === null || typeof value !== "object") return value;
  const found = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, fitted(each, narrow)]));
  if (narrow && found.axis && found.axis.labelLimit) found.axis.labelLimit = 100;
  return found;
}

async function draw(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "begun";
  const chart = page.charts[Number(place.dataset.chart)];
  const { encoding, ...rest } = fitted(chart.spec, window.innerWidth <= 600);
  const spec = { ...rest, encoding: { x: page.x, ...encoding }, config, data: { values: valuesOf(chart) },
    autosize: { type: "fit-x", contains: "padding" } };
  try {
    await vegaEmbed(place, spec, { mode: "vega-lite", ast: true, actions: false, tooltip: false, defaultStyle: false,
      renderer: "svg" });
    place.dataset.drawn = "yes";
  } catch (error) {
    place.dataset.drawn = "failed";
    place.textContent = "Cannot draw this chart. The table below has the same data.";
    console.error(error);
  }
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
}, { rootMargin: "600px" });
for (const place of document.querySelectorAll(".chart")) near.observe(place);
window.addEventListener("beforeprint", () => {
  for (const place of document.querySelectorAll(".chart")) if (!place.closest("details:not([open])")) draw(place);
});
