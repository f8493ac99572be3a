// Two comforts for the forms, which work without either: the code in the address's fragment, and passkeys.

const code = decodeURIComponent(location.hash.slice(1));
if (code !== "") {
  for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[data-fragment]"))) field.value = code;
  history.replaceState(null, "", location.pathname);
}

/**
 * Sends JSON and returns what comes back.
 * @param {string} path
 * @param {object} body
 * @returns {Promise<any>}
 */
async function send(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const text = await answer.json();
  if (!answer.ok) throw new Error(text.error.message);
  return text;
}

/**
 * Shows a text where the form was: an error beside it, or the recovery key in place of it.
 * @param {HTMLFormElement} form
 * @param {string} text
 */
function say(form, text) {
  let line = form.querySelector("[role=alert]");
  if (line === null) {
    line = document.createElement("p");
    line.setAttribute("role", "alert");
    form.append(line);
  }
  line.textContent = text;
}

/**
 * Goes on, after the person has seen a new recovery key if there is one.
 * @param {HTMLFormElement} form
 * @param {{recovery_key?: string}} came
 */
function goOn(form, came) {
  if (came.recovery_key === undefined) {
    location.assign("/");
    return;
  }
  const words = document.createElement("p");
  words.textContent = "This recovery key lets you back in when all else is lost. It is shown this once: write it down and keep it away from the box.";
  const key = document.createElement("p");
  key.className = "root";
  key.textContent = came.recovery_key;
  const link = document.createElement("a");
  link.href = "/";
  link.textContent = "Go on";
  form.replaceWith(words, key, link);
}

/**
 * The fields of a form that have something in them.
 * @param {HTMLFormElement} form
 * @param {string[]} names
 */
function fields(form, names) {
  /** @type {Record<string, string>} */
  const out = {};
  const data = new FormData(form);
  for (const name of names) {
    const value = data.get(name);
    if (typeof value === "string" && value !== "") out[name] = value;
  }
  return out;
}

/** @param {HTMLFormElement} form */
async function make(form) {
  const options = await send(/** @type {string} */ (form.dataset.passkey), fields(form, ["code", "name"]));
  const made = await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
  const all = fields(form, ["code", "name", "password", "box_name", "tls_mode"]);
  goOn(form, await send(form.getAttribute("action") ?? "", { ...all, passkey: /** @type {PublicKeyCredential} */ (made).toJSON() }));
}

/** @param {HTMLFormElement} form */
async function show(form) {
  const path = /** @type {string} */ (form.dataset.login);
  const options = await send(path, {});
  const shown = await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
  goOn(form, await send(path + "/answer", { passkey: /** @type {PublicKeyCredential} */ (shown).toJSON() }));
}

if (typeof PublicKeyCredential === "function" && typeof PublicKeyCredential.parseCreationOptionsFromJSON === "function") {
  for (const form of /** @type {NodeListOf<HTMLFormElement>} */ (document.querySelectorAll("form[data-passkey], form[data-login]"))) {
    const button = form.querySelector("button.passkey");
    if (!(button instanceof HTMLButtonElement)) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      const doing = form.dataset.login === undefined ? make(form) : show(form);
      doing.catch((/** @type {unknown} */ problem) => say(form, problem instanceof Error ? problem.message : String(problem)));
    });
  }
}
