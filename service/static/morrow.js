// Fetches a locked page with the key, renews a page after changes, and sends its forms to the API.

import "./ask.js";
import { drawAll } from "./charts.js";
import { askForKey, forgetKey, hasKey, headers, post, sayProblem } from "./key.js";

const seen = new Map();
let opened = [];

document.addEventListener("htmx:configRequest", (event) => Object.assign(event.detail.headers, headers()));

document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status !== 401) return;
  forgetKey();
  askForKey("This key is not valid.");
});

// If a page cannot be renewed, it says so, and shows its age.
document.addEventListener("htmx:afterRequest", (event) => {
  const lost = document.getElementById("lost");
  if (event.detail.successful) lost.hidden = true;
  else if (lost.hidden) {
    lost.textContent = `Morrow does not answer. The page shows the state of ${new Date().toISOString().slice(11, 16)}Z.`;
    lost.hidden = event.detail.xhr.status === 401;
  }
});

// Unchanged parts stay, so that no screen reader reads them again.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, serverResponse } = event.detail;
  if (target.id === "state" && seen.get("state") === serverResponse) event.detail.shouldSwap = false;
  seen.set(target.id, serverResponse);
  opened = [...document.querySelectorAll("details[open]")].map((one) => one.id);
});

// A form that is being filled in stays until it is sent.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if ([...event.detail.target.querySelectorAll("input")].some((field) => field.value)) event.detail.shouldSwap = false;
});

document.addEventListener("htmx:afterSettle", (event) => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  const [mark, board] = ["mark", "board"].map((id) => document.getElementById(id));
  if (event.detail.target.id === "state" && board && mark?.dataset.mark !== board.dataset.mark) htmx.trigger(board, "renew");
});

htmx.onLoad((element) => {
  drawAll(element.parentElement ?? element);
  markWide();
});

// Marks a table that is wider than its container as scrollable.
function markWide() {
  for (const one of document.querySelectorAll(".wide")) one.classList.toggle("more", one.scrollWidth > one.clientWidth + 1);
}

window.addEventListener("resize", markWide);
document.addEventListener("toggle", markWide, true);

function readBody(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.value === "") continue;
    if (field.type === "datetime-local") body[field.name] = `${field.value}Z`;
    else body[field.name] = "number" in field.dataset ? Number(field.value) : field.value;
  }
  return body;
}

const say = (done) =>
  done.action
    ? `Done: ${done.action} of version ${done.version}, valid until ${done.valid_until}.`
    : `Cycle ${done.id} of ${done.cutoff} is ${done.state}.`;

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.post) return;
  event.preventDefault();
  const { ok, document: found } = await post(form.dataset.post, readBody(form));
  const output = form.querySelector("output");
  output.className = ok ? "good" : "bad";
  output.textContent = ok ? say(found) : sayProblem(found);
  if (!ok) return;
  form.reset();
  htmx.trigger("#state", "renew");
});

if (document.querySelector("[data-locked]")) {
  if (hasKey()) htmx.ajax("GET", location.href, { target: "#page", select: "#page", swap: "outerHTML" });
  else askForKey();
}
