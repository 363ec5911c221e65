// The keyboard: `/` searches, `g` and a letter opens a view, `?` shows all keys.

import { html, useEffect, useRef } from "../vendor/htm-preact.js";
import { isAsking } from "./ask.js";
import { go } from "./router.js";
import { hasTag, Store, useStore } from "./store.js";

/** The views, in the order of the navigation, each with its letter. */
export const VIEWS = [
  { view: "overview", title: "Overview", letter: "o" },
  { view: "queues", title: "Queues", letter: "q" },
  { view: "streams", title: "Streams", letter: "s" },
  { view: "exchanges", title: "Exchanges", letter: "e" },
  { view: "connections", title: "Connections", letter: "c" },
  { view: "channels", title: "Channels", letter: "h" },
  { view: "policies", title: "Policies", letter: "p", tags: ["policymaker", "administrator"] },
  { view: "vhosts", title: "Vhosts", letter: "v", tags: ["administrator"] },
  { view: "users", title: "Users", letter: "u", tags: ["administrator"] },
  { view: "definitions", title: "Definitions", letter: "d", tags: ["administrator"] },
  { view: "log", title: "Log", letter: "l", tags: ["monitoring", "administrator"] },
];

/** Return the views that the user may see. */
export const seenViews = () => VIEWS.filter((one) => !one.tags || hasTag(...one.tags));

/** Whether the search, and the list of keys, are open. */
export const searching = new Store(false);
export const helping = new Store(false);

const GOING = 1500;

/** Handle the keyboard while the page is open. */
export function useKeys() {
  const going = useRef(0);
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isAsking() || isTyping(event.target)) {
        return;
      }
      const wasGoing = Date.now() - going.current < GOING;
      going.current = 0;
      const view = wasGoing && seenViews().find((one) => one.letter === event.key);
      if (view) {
        go(view.view);
      } else if (event.key === "g") {
        going.current = Date.now();
      } else if (event.key === "/") {
        searching.set(true);
      } else if (event.key === "?") {
        helping.set(true);
      } else {
        return;
      }
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function isTyping(element) {
  return Boolean(element.closest?.("input, textarea, select, dialog, [contenteditable]"));
}

/** The list of keys, as a dialog. */
export function KeysHelp() {
  return useStore(helping) ? html`<${KeysDialog} />` : null;
}

function KeysDialog() {
  const box = useRef(null);
  useEffect(() => box.current.showModal(), []);
  const keys = [
    [["/"], "Find anything"],
    ...seenViews().map((one) => [["g", one.letter], one.title]),
    [["?"], "This list"],
    [["Esc"], "Close what is open"],
  ];
  return html`<dialog ref=${box} class="asking" aria-labelledby="keys-title"
    onClose=${() => helping.set(false)}>
    <h2 id="keys-title">Keys</h2>
    <dl class="keys">
      ${keys.map(([pressed, does]) => html`<div>
        <dt>${pressed.map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${does}</dd>
      </div>`)}
    </dl>
    <form method="dialog" class="asking-buttons"><button class="main">Close</button></form>
  </dialog>`;
}
