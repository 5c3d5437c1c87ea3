// The two pictures with a scale: error by age, and the path of a prediction. A table next to each shows the same.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = new Map();
const HEIGHT = 280;

const figure = (value) => (value == null ? "–" : Number(value.toPrecision(4)).toString());
const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + "Z";

// A tick as a date, with the time of day if ticks are closer than a day.
function shorten(at, ticks) {
  const text = moment(at);
  return ticks.length > 1 && ticks[1] - ticks[0] < 86400 ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(0, 10);
}

const axes = (x) => [
  { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, size: 32, ...x },
  { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, size: 60 },
];

const line = (label, stroke, more = {}) => ({
  label, stroke, tint: stroke, width: 2, points: { show: false }, value: (_, value) => (value == null ? "" : figure(value)), ...more,
});
const legend = { markers: { fill: (chart, place) => chart.series[place].tint ?? null } };
// The edges of a band have no line, and no place in the legend.
const edge = (label) => line(label, undefined, { width: 0, class: "edge" });

// Fills between a band's upper and lower series, given by their indices.
const band = (upper, lower, tint) => ({ series: [upper, lower], fill: tint + "33" });

// Half a window on either side. For a lone age the library proposes a hundred.
const widen = (points, least, most) =>
  points.length === 1 ? [points[0].age - 0.5, points[0].age + 0.5] : [least - 0.5, most + 0.5];

// Tints the ages that the horizon includes, behind everything else.
const shadeHorizon = (points) => (chart) => {
  const last = points.findLast((point) => point.is_valid);
  if (!last) return;
  const { ctx, bbox } = chart;
  const end = Math.min(chart.valToPos(last.age + 0.5, "x", true), bbox.left + bbox.width);
  ctx.save();
  ctx.fillStyle = colour("--good") + "1a";
  ctx.fillRect(bbox.left, bbox.top, end - bbox.left, bbox.height);
  ctx.restore();
};

function errorOptions(points, name) {
  const accent = colour("--accent");
  const isIn = points.map((point) => point.is_valid);
  // A line reaches from the last age of the horizon to the first refused one.
  const beyond = points.map((point, place) => (!isIn[place] || !isIn[place + 1] ? point.expected : null));
  const hasBeyond = isIn.includes(false);
  const keys = ["age", "expected", "high", "low", "limit", "naive", "realised"];
  const [ages, expected, ...others] = keys.map((key) => points.map((point) => point[key]));
  return {
    data: [ages, expected.map((error, place) => (isIn[place] ? error : null)), ...others, ...(hasBeyond ? [beyond] : [])],
    scales: { x: { time: false, range: (_, least, most) => widen(points, least, most) } },
    axes: axes({ label: "age in windows", labelSize: 20, incrs: [1, 2, 5, 10, 20] }),
    bands: [band(2, 3, accent)],
    hooks: { drawClear: [shadeHorizon(points)] },
    series: [
      { label: "age", value: (_, age) => (age == null ? "" : figure(age)) },
      line("expected", accent, { points: { show: true, size: 7, fill: accent } }),
      edge("band, high"),
      edge("band, low"),
      line("limit", colour("--bad"), { dash: [5, 4], width: 1, points: { show: true, size: 4 } }),
      line("naive", colour("--soft"), { dash: [8, 5], width: 1.5, points: { show: true, size: 6, fill: colour("--soft") } }),
      line(`realised ${name}`, colour("--ink"), {
        tint: colour("--warn"), paths: () => null, points: { show: true, size: 10, fill: colour("--warn"), stroke: colour("--ink") },
      }),
      line("beyond the horizon", accent, { tint: null, dash: [2, 4], width: 1.5, points: { show: true, size: 7, fill: colour("--card") } }),
    ].slice(0, hasBeyond ? undefined : -1),
  };
}

function pathOptions(path) {
  const strokes = ["--accent", "--warn", "--good", "--bad", "--ink", "--soft"].map(colour);
  const lines = path.lines.map((each, place) => line(each.label, strokes[place % strokes.length]));
  const hasBand = path.low !== null;
  return {
    data: [path.at, ...path.lines.map((each) => each.values), ...(hasBand ? [path.high, path.low] : [])],
    scales: { x: { time: true } },
    padding: [null, 36, null, null], // half of the last date
    axes: axes({ space: 90, values: (_, ticks) => ticks.map((at) => shorten(at, ticks)) }),
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    bands: hasBand ? [band(lines.length + 1, lines.length + 2, strokes[0])] : [],
    series: [
      { label: "moment", value: (_, seconds) => (seconds == null ? "" : moment(seconds)) },
      ...lines,
      ...(hasBand ? [edge("band, high"), edge("band, low")] : []),
    ],
  };
}

// Draws into an element in its current colours and width, and again after a change of either.
export function draw(element) {
  const points = JSON.parse(element.dataset.points);
  const options = element.dataset.chart === "errors" ? errorOptions(points, element.dataset.errorName) : pathOptions(points);
  const { data, ...others } = options;
  drawn.get(element)?.destroy();
  drawn.set(element, new uPlot({ width: element.clientWidth, height: HEIGHT, legend, ...others }, data, element));
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const chart = drawn.get(target);
    if (chart && target.clientWidth && chart.width !== target.clientWidth) {
      chart.setSize({ width: target.clientWidth, height: HEIGHT });
    }
  }
});

// Draws every picture below a new element of the page, and forgets pictures that have left the page.
export function drawAll(parent) {
  for (const [element, chart] of drawn) {
    if (!element.isConnected) {
      chart.destroy();
      resized.unobserve(element);
      drawn.delete(element);
    }
  }
  for (const element of parent.querySelectorAll("[data-chart]")) {
    draw(element);
    resized.observe(element);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...drawn.keys()].forEach(draw));
