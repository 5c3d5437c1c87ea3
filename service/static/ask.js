// The form for a prediction: one row at many moments, from the chosen one to the end of the horizon.

import { drawAll } from "./charts.js";
import { post, sayProblem } from "./key.js";

const MINUTE = 60_000;
const DAY = 1440 * MINUTE;
// Each step divides a day, or is whole days and divides a week. So the moments meet all phases of a day or always the
// same one, and no slow wave appears that is not there.
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360].map((minutes) => minutes * MINUTE).concat(DAY, 7 * DAY);
const MOST_MOMENTS = 1500;
const NUM_ROWS = 7;
// The most classes that a picture, a table or a sentence shows: those most likely at some moment.
const MAX_CLASSES = 6;

const shorten = (moment) => moment.replace(/\.\d+Z$/, "Z").replace("T", " ");
const figure = (value) => (typeof value === "number" ? Number(value.toPrecision(4)).toString() : value);

function element(name, text, className = "") {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Moments from `first` to `last` (milliseconds), both included, by the shortest step of which `most` reach; one if they
// are equal.
export function spread(first, last, most) {
  const step = STEPS.find((one) => (last - first) / one < most - 1) ?? Math.ceil((last - first) / (most - 1) / (7 * DAY)) * 7 * DAY;
  const count = Math.ceil((last - first) / step);
  const found = Array.from({ length: count }, (_, place) => first + place * step);
  return { step, at: [...found, last].map((at) => new Date(at).toISOString()) };
}

const saySpan = (step) => {
  const minutes = step / MINUTE;
  if (minutes < 60) return minutes === 1 ? "every minute" : `every ${minutes} minutes`;
  if (minutes < 1440) return minutes === 60 ? "every hour" : `every ${minutes / 60} hours`;
  return minutes === 1440 ? "once a day, at the same time" : `every ${minutes / 1440} days, at the same time`;
};

// A number with a decimal comma, unless the comma may stand between thousands. The API says what is wrong with others.
export function readNumber(text) {
  const trimmed = text.trim();
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed)) return Number(trimmed);
  const hasDecimalComma = /^[-+]?\d+,\d+$/.test(trimmed) && !/^[-+]?[1-9]\d{0,2},\d{3}$/.test(trimmed);
  return hasDecimalComma ? Number(trimmed.replace(",", ".")) : trimmed;
}

function readValue({ value, dataset: { kind } }) {
  if (kind === "boolean") return value === "true";
  return kind === "category" ? value : readNumber(value);
}

function readFeatures(form) {
  const features = {};
  for (const input of form.querySelectorAll("[data-feature]")) {
    if (input.value.trim() === "") continue;
    features[input.dataset.feature] = readValue(input);
  }
  return features;
}

async function predict(form) {
  const first = new Date(form.elements.at.value + "Z").getTime();
  const until = Math.floor(new Date(form.dataset.validUntil).getTime() / 1000) * 1000;
  const most = Math.max(2, Math.min(MOST_MOMENTS, Number(form.dataset.mostRows)));
  const { step, at } = spread(first, Math.max(first, until), most);
  const body = { features: readFeatures(form), at };
  const path = `predict?task=${encodeURIComponent(form.dataset.task)}`;
  const coverage = form.elements.coverage.value;
  if (coverage) {
    const answer = await post(`${path}&coverage=${coverage}`, body);
    if (answer.document.type !== "/problems/coverage-unsupported") return { ...answer, step, note: "" };
    return { ...(await post(path, body)), step, note: `No interval or set: ${answer.document.detail}` };
  }
  return { ...(await post(path, body)), step, note: "" };
}

// The classes to show, in the task's order.
function likeliest(answers) {
  const most = (name) => Math.max(...answers.map((answer) => answer.probabilities[name]));
  const names = Object.keys(answers[0].probabilities ?? {});
  if (names.length <= MAX_CLASSES) return names;
  const peaks = new Map(names.map((name) => [name, most(name)]));
  const kept = new Set([...names].sort((one, other) => peaks.get(other) - peaks.get(one)).slice(0, MAX_CLASSES));
  return names.filter((name) => kept.has(name));
}

const listSome = (names, joiner) =>
  names.length <= MAX_CLASSES + 1
    ? names.join(joiner)
    : `${names.slice(0, MAX_CLASSES).join(joiner)} and ${names.length - MAX_CLASSES} more`;

function readPath(answers) {
  const at = answers.map((answer) => new Date(answer.at).getTime() / 1000);
  const [first] = answers;
  if (first.probabilities) {
    const classes = likeliest(answers);
    const lines = classes.map((name) => ({ label: name, values: answers.map((answer) => answer.probabilities[name]) }));
    return { at, lines, low: null, high: null };
  }
  const [low, high] = [0, 1].map((side) => answers.map((answer) => answer.interval?.[side] ?? null));
  const lines = [{ label: "mean", values: answers.map((answer) => answer.mean) }];
  return { at, lines, low: first.interval ? low : null, high: first.interval ? high : null };
}

function sayBand(answer) {
  if (answer.interval) return answer.interval.map(figure).join(" … ");
  return answer.prediction_set ? listSome(answer.prediction_set, ", ") : "–";
}

function tabulate(answers) {
  const wide = element("div", undefined, "wide");
  wide.tabIndex = 0;
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", "The prediction at some of the moments");
  const table = wide.appendChild(element("table"));
  const classes = likeliest(answers);
  const head = table.createTHead().insertRow();
  for (const name of ["moment", "prediction", ...classes.map((name) => `P(${name})`), answers[0].probabilities ? "set" : "interval", "expected error"]) {
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

// The answer in a few characters: the likeliest class with its probability, or the mean.
function sayShort(answer) {
  if (!answer.probabilities) return figure(answer.prediction);
  return `${answer.prediction} · ${Math.round(100 * answer.probabilities[answer.prediction])} %`;
}

function sayRest(answer) {
  const said = [`At ${shorten(answer.at)}, valid until ${shorten(answer.valid_until)}, by version ${answer.version}.`];
  if (answer.interval || answer.prediction_set) {
    const band = answer.interval ? answer.interval.map(figure).join(" to ") : listSome(answer.prediction_set, " or ");
    said.push(`${Math.round(100 * answer.coverage)} % ${answer.interval ? "prediction interval" : "prediction set"}: ${band}.`);
  }
  if (answer.unseen) said.push(`New in ${answer.unseen.join(", ")}: a category that training never saw.`);
  if (answer.expected_error !== null) said.push(`Expected ${answer.error_name.replaceAll("_", " ")}: ${figure(answer.expected_error)}.`);
  return said.join(" ");
}

function show(target, { ok, document: found, step, note }) {
  target.replaceChildren();
  if (!ok) {
    // The person typed one moment; the others follow from it.
    target.append(element("p", sayProblem(found).replaceAll(/\bat\[\d+\]/g, "Moment").replaceAll(/\bfeatures\./g, ""), "bad"));
    return;
  }
  const [first] = found.answers;
  target.append(element("p", sayShort(first), "answer"), element("p", sayRest(first), "soft"));
  const others = Object.keys(first.probabilities ?? {}).length - likeliest(found.answers).length;
  if (others > 0) target.append(element("p", `The picture and the table leave out ${others} less likely ${others === 1 ? "class" : "classes"}.`, "soft"));
  if (first.interval && first.expected_error !== null) {
    const share = Math.round(100 * first.coverage);
    target.append(element("p", `The interval is about this one label: it should hold ${share} of 100 such labels. The expected error is a mean over many.`, "soft"));
  }
  if (note) target.append(element("p", note, "soft"));
  if (found.answers.length > 1) {
    const chart = element("div", undefined, "chart");
    chart.dataset.chart = "path";
    chart.dataset.points = JSON.stringify(readPath(found.answers));
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", "Path of the prediction up to the end of the horizon; the table below shows the same.");
    target.append(element("p", `The same row until the end of the horizon, ${saySpan(step)}:`, "soft"), chart);
  }
  target.append(tabulate(found.answers));
  drawAll(target);
}

let numAsked = 0;
document.addEventListener("submit", async (event) => {
  if (event.target.id !== "ask") return;
  event.preventDefault();
  numAsked += 1;
  const place = numAsked;
  const found = await predict(event.target);
  // A late answer never replaces that of a newer question.
  if (place === numAsked) show(document.getElementById("answer"), found);
});
