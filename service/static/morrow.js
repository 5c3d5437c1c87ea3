// Fetches a locked page with the key, renews a page after changes, opens its dialogs and sends their forms to the API.

import "./ask.js";
import { drawAll } from "./charts.js";
import { askForKey, forgetKey, hasKey, headers, post, sayProblem, send } from "./key.js";

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
  const place = element.parentElement ?? element;
  drawAll(place);
  markWide();
  for (const one of place.querySelectorAll(".at-end")) one.scrollLeft = one.scrollWidth;
});

// Buttons that open a dialog, close one, or copy a text.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.open) {
    const dialog = document.getElementById(button.dataset.open);
    dialog.querySelector("output").textContent = "";
    dialog.showModal();
  } else if ("close" in button.dataset) button.closest("dialog").close();
  else if ("copy" in button.dataset) {
    await navigator.clipboard?.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }
});

// One note or menu is open at a time. A click elsewhere, an action and Escape close it; Escape returns to its button.
const POPS = ".notes details, .menu";
const closePops = (except) => {
  for (const one of document.querySelectorAll(POPS)) if (one.open && one !== except) one.open = false;
};
document.addEventListener("click", (event) => {
  closePops(event.target.closest("[data-open]") ? null : event.target.closest(POPS));
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  document.activeElement?.closest(POPS)?.querySelector("summary").focus();
  closePops();
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
  done.effect
    ? `Done: ${done.action}. ${done.effect}`
    : done.action
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
  // Other actions are possible now.
  if (found.new_name) location.href = found.new_name;
  else if (found.effect) location.reload();
  else htmx.trigger("#state", "renew");
});

// Deletes a task once the person has read what it holds.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  const { delete: path, name } = form.dataset;
  if (!path) return;
  event.preventDefault();
  const output = form.querySelector("output");
  const held = await send("GET", `${path}/contents`);
  const query = new URLSearchParams({ confirm: name, ...readBody(form) });
  if (held.ok && !confirm(`Delete ${name} for ever? It holds ${sayContents(held.document)}.`)) return;
  const { ok, document: found } = held.ok ? await send("DELETE", `${path}?${query}`) : held;
  if (ok) location.href = document.documentElement.dataset.root;
  output.className = ok ? "good" : "bad";
  output.textContent = ok ? say(found) : sayProblem(found);
});

const many = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const sayContents = (held) =>
  `${many(held.num_events, "event")}, ${many(held.num_rejected, "refused row")}, ${many(held.num_cycles, "cycle")} and ${many(held.num_versions, "version")}`;

if (document.querySelector("[data-locked]")) {
  if (hasKey()) htmx.ajax("GET", location.href, { target: "#page", select: "#page", swap: "outerHTML" });
  else askForKey();
}
