// Dialogs: each change is confirmed in a dialog that names its effect and then reports the result.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { coded } from "../common/format.js";
import { Failure } from "./parts.js";
import { parse } from "./router.js";
import { Store, useStore } from "./store.js";

const asked = new Store(null);
const said = new Store(null);

/**
 * Ask before an action.
 *
 * `says` names the effect, `action` the button; `danger` marks an irreversible action.
 * `fields` are `{name, title, value, kind, options, hint, required}`.  `run(values)` performs it and
 * returns a text to show; if it throws, the dialog stays open with the reason.
 */
export function ask(question) {
  asked.set({ fields: [], action: "OK", ...question });
}

/** Ask a question that first needs data of the broker; show the error if that fails. */
export async function prepared(asking) {
  try {
    await asking();
  } catch (error) {
    say(error.message);
  }
}

/** Close the dialog without an answer. */
export function dismiss() {
  asked.set(null);
}

/** Show the result of an action. */
export function say(text) {
  said.set({ text });
}

/** The place of dialogs and results; once on the page. */
export function Asking() {
  const question = useStore(asked);
  return html`${question && html`<${Dialog} key=${question} question=${question} />`}<${Said} />`;
}

export const isAsking = () => asked.value !== null;

function Said() {
  const news = useStore(said);
  useEffect(() => {
    if (news) {
      const timer = setTimeout(() => said.set(null), 6000);
      return () => clearTimeout(timer);
    }
    return undefined;
  }, [news]);
  return html`<div class="said" role="status" aria-live="polite">
    ${news && html`<p>${coded(news.text)}</p>`}
  </div>`;
}

function starting(fields) {
  return Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
}

/** Return the current view and its parts, without its options. */
function place() {
  const { view, parts } = parse(location.hash);
  return JSON.stringify([view, parts]);
}

function Dialog({ question }) {
  const box = useRef(null);
  const [values, setValues] = useState(() => starting(question.fields));
  const [state, setState] = useState({ busy: false, error: null });
  useEffect(() => {
    box.current.showModal();
    box.current.querySelector("input, select, textarea, button.main")?.focus();
  }, []);
  useEffect(() => {
    // The browser's back button leads to another view, without this dialog.
    const shown = place();
    const moved = () => place() !== shown && dismiss();
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: null });
    try {
      const news = await question.run(values);
      // Another dialog may have been opened since this one was closed.
      if (asked.value === question) {
        dismiss();
      }
      if (news) {
        say(news);
      }
    } catch (error) {
      setState({ busy: false, error });
      if (asked.value !== question) {
        say(`${question.title}: ${error.message}`);
      }
    }
  };
  const set = (name, value) => setValues((old) => ({ ...old, [name]: value }));
  return html`<dialog ref=${box} class="asking" onClose=${dismiss} aria-labelledby="asking-title">
    <form onSubmit=${submit}>
      <h2 id="asking-title">${coded(question.title)}</h2>
      ${question.says && html`<p class="asking-says">${coded(question.says)}</p>`}
      ${question.fields
        .filter((field) => !field.when || field.when(values))
        .map((field) => html`<${Field} field=${field} value=${values[field.name]} set=${set} />`)}
      ${state.error && html`<${Failure} error=${state.error} />`}
      <div class="asking-buttons">
        <button type="button" onClick=${dismiss}>Cancel</button>
        <button class=${question.danger ? "main danger" : "main"} disabled=${state.busy}>
          ${state.busy ? "…" : question.action}
        </button>
      </div>
    </form>
  </dialog>`;
}

/** One field of a form with its label. */
export function Field({ field, value, set }) {
  const id = `field-${field.name}`;
  const common = {
    id,
    name: field.name,
    required: field.required,
    placeholder: field.placeholder,
    "aria-describedby": field.hint ? `${id}-hint` : undefined,
    autocomplete: field.autocomplete ?? "off",
    spellcheck: false,
  };
  const changed = (event) => set(field.name, event.currentTarget.value);
  if (field.kind === "check") {
    return html`<label class="field check">
      <input ...${common} type="checkbox" checked=${value}
        onChange=${(event) => set(field.name, event.currentTarget.checked)} />
      <span>${field.title}</span>
    </label>`;
  }
  let control = html`<input ...${common} type=${field.kind ?? "text"} value=${value} list=${field.list}
    min=${field.min} max=${field.max} onInput=${changed} />`;
  if (field.kind === "choice") {
    control = html`<select ...${common} value=${value} onChange=${changed}>
      ${field.options.map(([key, title]) => html`<option value=${key} selected=${key === value}>${title}</option>`)}
    </select>`;
  } else if (field.kind === "long") {
    control = html`<textarea ...${common} rows=${field.rows ?? 4} value=${value} onInput=${changed}></textarea>`;
  }
  return html`<div class="field">
    <label for=${id}>${field.title}</label>
    ${control}
    ${field.hint && html`<span id=${`${id}-hint`} class="note">${field.hint}</span>`}
  </div>`;
}

/** Return the object in a JSON field; {} if it is empty.  Throws an Error in words. */
export function objectOf(text, title) {
  if (!text.trim()) {
    return {};
  }
  let found;
  try {
    found = JSON.parse(text);
  } catch (error) {
    throw new Error(`${title} are not JSON: ${error.message}`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) {
    throw new Error(`${title} must be a JSON object, such as {"x-max-length": 1000}`);
  }
  return found;
}
