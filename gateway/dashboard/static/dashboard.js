// Draws the charts and keeps partial updates polite. Everything else on the pages works without it.
"use strict";

const charts = new Map(); // plot element -> uPlot

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= unit) return (value / unit).toFixed(1) + sign;
  return value.toFixed(0);
}

function percent(value) {
  return value === null || value === undefined ? "–" : (value * 100).toFixed(1) + " %";
}

function clock(second, step) {
  const text = new Date(second * 1000).toISOString();
  return step >= 86400 ? text.slice(5, 10) : text.slice(11, 16);
}

function options(kind, found, width) {
  const say = kind === "ratio" ? percent : short;
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui" };
  return {
    width,
    height: 230,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: kind === "ratio" ? [0, 1] : (u, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
    axes: [{ ...axis, values: (u, ticks, at, space, step) => ticks.map((each) => clock(each, step)) }, { ...axis, size: 58, values: (u, ticks) => ticks.map((at) => (kind === "ratio" ? Math.round(at * 100) + " %" : short(at))) }],
    series: [
      { label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
      ...found.lines.map((line, at) => ({
        label: line.name,
        stroke: colour("--l" + Math.min(at, 6)),
        width: 2,
        dash: [[], [8, 4], [2, 3], [8, 3, 2, 3]][at % 4], // told apart without colour too
        spanGaps: kind === "ratio",
        points: { show: found.starts.length < 40, size: 5 },
        value: (u, value) => say(value),
      })),
    ],
  };
}

function draw() {
  for (const [element, chart] of charts) if (!element.isConnected) { chart.destroy(); charts.delete(element); }
  for (const holder of document.querySelectorAll("[data-chart]")) {
    const found = JSON.parse(holder.dataset.chart);
    for (const element of holder.querySelectorAll("[data-plot]")) {
      charts.get(element)?.destroy();
      const data = [found.starts, ...found.lines.map((line) => line[element.dataset.plot])];
      charts.set(element, new uPlot(options(element.dataset.plot, found, element.clientWidth), data, element));
      const canvas = element.querySelector("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", element.parentElement.querySelector("figcaption").textContent + "; the same figures stand in the table below");
    }
  }
}

// What is open stays open, and the reader decides when the page may change under their eyes.
let open = [];
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.responseURL.includes("/dashboard/login")) { event.detail.shouldSwap = false; location.reload(); return; }
  open = [...event.detail.target.querySelectorAll("details[open][id]")].map((each) => each.id);
});
document.addEventListener("htmx:afterSettle", () => {
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  open = [];
  if ([...document.querySelectorAll("[data-plot]")].some((each) => !charts.has(each))) draw();
});
document.addEventListener("htmx:beforeRequest", (event) => {
  const paused = document.getElementById("pause")?.checked || document.hidden;
  if (paused && event.detail.elt.classList.contains("live")) event.preventDefault();
});
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } });
window.addEventListener("popstate", () => location.reload());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
