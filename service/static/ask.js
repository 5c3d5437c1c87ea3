// The form for a prediction: one row at many moments, from the chosen one to the end of the horizon.

import { drawAll } from "./charts.js";
import { post, sayProblem } from "./key.js";

const NUM_MOMENTS = 61;
const NUM_ROWS = 7;

const shorten = (moment) => moment.replace(/\.\d+Z$/, "Z").replace("T", " ");
const figure = (value) => (typeof value === "number" ? Number(value.toPrecision(4)).toString() : value);

function element(name, text, className = "") {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Moments in whole seconds, evenly spaced from `first` to `last` (milliseconds), both included; one if they are equal.
export function spread(first, last) {
  const step = (last - first) / (NUM_MOMENTS - 1);
  const found = step > 0 ? Array.from({ length: NUM_MOMENTS }, (_, place) => first + place * step) : [first];
  const whole = found.map((at) => Math.floor(at / 1000) * 1000);
  return [...new Set([first, ...whole.slice(1)])].map((at) => new Date(at).toISOString());
}

function readValue({ value, dataset: { kind } }) {
  if (kind === "boolean") return value === "true";
  return kind === "category" ? value : Number(value);
}

function readFeatures(form) {
  const features = {};
  for (const input of form.querySelectorAll("[data-feature]")) {
    if (input.value === "") continue;
    features[input.dataset.feature] = readValue(input);
  }
  return features;
}

async function predict(form) {
  const at = new Date(form.elements.at.value + "Z").getTime();
  const until = Math.floor(new Date(form.dataset.validUntil).getTime() / 1000) * 1000;
  const body = { features: readFeatures(form), at: spread(at, Math.max(at, until)) };
  const path = `predict?task=${encodeURIComponent(form.dataset.task)}`;
  const coverage = form.elements.coverage.value;
  if (coverage) {
    const answer = await post(`${path}&coverage=${coverage}`, body);
    if (answer.document.type !== "/problems/coverage-unsupported") return { ...answer, note: "" };
    return { ...(await post(path, body)), note: `Without a band: ${answer.document.detail}` };
  }
  return { ...(await post(path, body)), note: "" };
}

function readPath(answers) {
  const at = answers.map((answer) => new Date(answer.at).getTime() / 1000);
  const [first] = answers;
  if (first.probabilities) {
    const classes = Object.keys(first.probabilities);
    const lines = classes.map((name) => ({ label: name, values: answers.map((answer) => answer.probabilities[name]) }));
    return { at, lines, low: null, high: null };
  }
  const [low, high] = [0, 1].map((side) => answers.map((answer) => answer.interval?.[side] ?? null));
  const lines = [{ label: "mean", values: answers.map((answer) => answer.mean) }];
  return { at, lines, low: first.interval ? low : null, high: first.interval ? high : null };
}

function sayBand(answer) {
  if (answer.interval) return answer.interval.map(figure).join(" … ");
  return answer.prediction_set ? answer.prediction_set.join(", ") : "–";
}

function tabulate(answers) {
  const wide = element("div", undefined, "wide");
  wide.tabIndex = 0;
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", "The prediction at some of the moments");
  const table = wide.appendChild(element("table"));
  const classes = Object.keys(answers[0].probabilities ?? {});
  const head = table.createTHead().insertRow();
  for (const name of ["moment", "prediction", ...classes.map((name) => `P(${name})`), "band", "expected error"]) {
    head.appendChild(element("th", name)).scope = "col";
  }
  const rows = table.createTBody();
  const step = Math.max(1, (answers.length - 1) / (NUM_ROWS - 1));
  const places = new Set(Array.from({ length: NUM_ROWS }, (_, place) => Math.round(place * step)));
  for (const answer of [...places].filter((place) => place < answers.length).map((place) => answers[place])) {
    const row = rows.insertRow();
    row.appendChild(element("th", shorten(answer.at))).scope = "row";
    const shares = classes.map((name) => figure(answer.probabilities[name]));
    for (const value of [figure(answer.prediction), ...shares, sayBand(answer), figure(answer.expected_error ?? "–")]) {
      row.insertCell().textContent = value;
    }
  }
  return wide;
}

function show(target, { ok, document: found, note }) {
  target.replaceChildren();
  if (!ok) {
    target.append(element("p", sayProblem(found), "bad"));
    return;
  }
  const [first] = found.answers;
  const expected = first.expected_error === null ? "" : `, expected ${first.error_name.replaceAll("_", " ")} ${figure(first.expected_error)}`;
  target.append(element("p", `${figure(first.prediction)} at ${shorten(first.at)}, by version ${first.version}${expected}.`));
  if (note) target.append(element("p", note, "soft"));
  if (found.answers.length > 1) {
    const chart = element("div", undefined, "chart");
    chart.dataset.chart = "path";
    chart.dataset.points = JSON.stringify(readPath(found.answers));
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", "Path of the prediction up to the end of the horizon; the table below shows the same.");
    target.append(chart);
  }
  target.append(tabulate(found.answers));
  drawAll(target);
}

document.addEventListener("submit", async (event) => {
  if (event.target.id !== "ask") return;
  event.preventDefault();
  show(document.getElementById("answer"), await predict(event.target));
});
