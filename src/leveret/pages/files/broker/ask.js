// Dialogs: what changes something is asked for, names what it will do, and tells what came of it.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { coded } from "../common/format.js";
import { Failure } from "./parts.js";
import { parse } from "./router.js";
import { Store, useStore } from "./store.js";

const asked = new Store(null);
const said = new Store(null);

/**
 * Ask before something is done.
 *
 * `says` names what will happen, `action` the button; `danger` marks what cannot be undone.
 * `fields` are `{name, title, value, kind, options, hint, required}`.  `run(values)` does it and
 * returns what to say; while it throws, the dialog stays with the reason.
 */
export function ask(question) {
  asked.set({ fields: [], action: "OK", ...question });
}

/** Ask what needs answers of the broker first; tell where there are none. */
export async function prepared(asking) {
  try {
    await asking();
  } catch (error) {
    say(error.message);
  }
}

/** Close what is asked, without an answer. */
export function dismiss() {
  asked.set(null);
}

/** Tell what was done. */
export function say(text) {
  said.set({ text });
}

/** Where questions and what was done appear; once on the page. */
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

/** Return which view is shown, however it is. */
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
    // The browser's way back leads to another view, of which nothing is asked.
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
      // Another question may have been asked since this one was closed.
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

/** Return the object that a field of JSON holds; {} where it is empty.  Throws an Error in words. */
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
