// `/`: searches queues, exchanges, connections, users, vhosts and views by a part of their names.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { counted, legible } from "../common/format.js";
import { get, query } from "./api.js";
import { searching, seenViews } from "./keys.js";
import { exchangePart, Failure, Name } from "./parts.js";
import { link } from "./router.js";
import { isAdministrator, useStore } from "./store.js";

const FOUND_MAX = 8;
const PATIENCE = 120;

/** Return the results for a text, each as `{kind, name, note, to}`. */
async function find(text, signal) {
  const asked = { page: 1, page_size: FOUND_MAX, name: text };
  const ask = (where, columns) => get(`${where}${query({ ...asked, columns })}`, signal);
  const kinds = [
    ask("queues", "vhost,name,messages,type").then((page) => page.items.map(queueFound)),
    ask("exchanges", "vhost,name,type").then((page) => page.items.map(exchangeFound)),
    ask("connections", "name,user,user_provided_name").then((page) => page.items.map(connectionFound)),
  ];
  if (isAdministrator()) {
    kinds.push(ask("users", "name,tags").then((page) => page.items.map(userFound)));
    kinds.push(ask("vhosts", "name,description").then((page) => page.items.map(vhostFound)));
  }
  const found = await Promise.allSettled(kinds);
  if (found.every((one) => one.status === "rejected")) {
    // An empty result would be wrong.
    throw found[0].reason;
  }
  return found.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
}

const queueFound = (row) => ({
  kind: row.type === "stream" ? "stream" : "queue",
  name: row.name,
  note: `${row.vhost} · ${counted(row.messages ?? 0, "message")}`,
  to: link(row.type === "stream" ? "streams" : "queues", [row.vhost, row.name]),
});
const exchangeFound = (row) => ({
  kind: "exchange",
  name: row.name || "(default exchange)",
  note: `${row.vhost} · ${row.type}`,
  to: link("exchanges", [row.vhost, exchangePart(row.name)]),
});
const connectionFound = (row) => ({
  kind: "connection",
  name: row.user_provided_name ?? row.name,
  note: `of ${row.user}`,
  to: link("connections", [row.name]),
});
const userFound = (row) => ({
  kind: "user",
  name: row.name,
  note: [].concat(row.tags).join(", "),
  to: link("users", [row.name]),
});
const vhostFound = (row) => ({ kind: "vhost", name: row.name, note: legible(row.description ?? ""), to: link("vhosts", [row.name]) });

function viewsFound(text) {
  return seenViews().filter((one) => one.title.toLowerCase().includes(text.toLowerCase())).map((one) => ({
    kind: "view",
    name: one.title,
    note: `g ${one.letter}`,
    to: link(one.view),
  }));
}

/** The search, while it is open. */
export function Search() {
  return useStore(searching) ? html`<${SearchDialog} />` : null;
}

/** Return the results and their text: the previous ones stay until the next ones arrive. */
function useFound(text) {
  const [state, setState] = useState(() => ({ text: "", found: viewsFound("") }));
  useEffect(() => {
    const asking = new AbortController();
    const views = viewsFound(text);
    if (!text) {
      setState({ text, found: views });
      return undefined;
    }
    const timer = setTimeout(() => {
      const told = (outcome) => !asking.signal.aborted && setState({ text, ...outcome });
      find(text, asking.signal).then(
        (objects) => told({ found: [...views, ...objects] }),
        (error) => told({ found: views, error }),
      );
    }, PATIENCE);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  }, [text]);
  return state;
}

function SearchDialog() {
  const box = useRef(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { text: foundFor, found, error } = useFound(text);
  // Enter directly after typing is meant for the new text, not for the previous results.
  const [hasty, setHasty] = useState(false);
  useEffect(() => {
    box.current.showModal();
    box.current.querySelector("input").focus();
  }, []);
  const close = () => searching.set(false);
  const choose = (index) => {
    if (found[index]) {
      location.hash = found[index].to;
      close();
    }
  };
  useEffect(() => {
    setAt(0);
    if (hasty && foundFor === text) {
      setHasty(false);
      choose(0);
    }
  }, [found]);
  const typed = (event) => {
    setText(event.currentTarget.value);
    setHasty(false);
  };
  const pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      setAt((at + step + found.length) % found.length);
      event.preventDefault();
    } else if (event.key === "Enter") {
      if (foundFor === text) {
        choose(at);
      } else {
        setHasty(true);
      }
      event.preventDefault();
    }
  };
  return html`<dialog ref=${box} class="search" aria-label="Find anything" onClose=${close}
    onClick=${(event) => event.target === box.current && close()}>
    <input type="text" role="combobox" aria-expanded="true" aria-controls="found" spellcheck=${false}
      aria-activedescendant=${found[at] ? `found-${at}` : undefined} autocomplete="off"
      aria-label="Part of a name" placeholder="Queue, exchange, connection, user or view"
      value=${text} onInput=${typed} onKeyDown=${pressed} />
    <ul id="found" role="listbox" aria-label="Found">
      ${found.map((one, index) => html`<li id=${`found-${index}`} role="option"
        aria-selected=${index === at} onClick=${() => choose(index)} onMouseMove=${() => setAt(index)}>
        <span class="found-kind">${one.kind}</span><${Name} text=${one.name} />
        <span class="note">${legible(one.note)}</span>
      </li>`)}
    </ul>
    ${error && foundFor === text && html`<${Failure} error=${error} />`}
    ${found.length === 0 && foundFor === text && !error && html`<p class="note nothing">Nothing has “${text}” in its name.</p>`}
  </dialog>`;
}
