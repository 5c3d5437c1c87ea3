// The key that was typed into this tab. Only the session storage keeps it, and only an Authorization header to the
// page's own origin sends it. It is never part of an address, a cookie or the page.

const NAME = "morrow.key";
const root = document.documentElement.dataset.root;
const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key");
const opener = document.getElementById("open-key");

export const headers = () => {
  const key = sessionStorage.getItem(NAME);
  return key ? { Authorization: `Bearer ${key}` } : {};
};

export const hasKey = () => sessionStorage.getItem(NAME) !== null;

// Opens the dialog; `problem` says why a key is needed.
export function askForKey(problem = "") {
  document.getElementById("key-problem").textContent = problem;
  if (!dialog.open) dialog.showModal();
  field.focus();
}

export function forgetKey() {
  sessionStorage.removeItem(NAME);
  opener.textContent = "Use a key";
}

// Sends a JSON body to a path of the API; returns whether it succeeded, and the answer or the problem document.
export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body) });

// Asks for a path without a body.
export const send = (method, path) => ask(path, { method, headers: headers() });

async function ask(path, options) {
  let response;
  try {
    response = await fetch(root + path, options);
  } catch {
    return { ok: false, status: 0, document: { title: "Morrow does not answer", detail: "Is it running?" } };
  }
  const document = await response.json();
  if (response.status === 401) askForKey(hasKey() ? "This key is not valid." : "This request needs a key.");
  return { ok: response.ok, status: response.status, document };
}

export const sayProblem = (problem) => `${problem.title}. ${problem.detail ?? ""}`.trim();

opener.hidden = false;
opener.textContent = hasKey() ? "Key in use" : "Use a key";
opener.addEventListener("click", () => askForKey());
document.getElementById("close-key").addEventListener("click", () => dialog.close());
document.getElementById("forget-key").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(NAME, field.value);
  field.value = "";
  location.reload();
});
