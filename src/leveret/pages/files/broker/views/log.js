// The broker's log as it is written, scrolled to its end unless the reader scrolls back.

import { html, useEffect, useRef, useState } from "../../vendor/htm-preact.js";
import { coded, moment, NOTHING } from "../../common/format.js";
import { get } from "../api.js";
import { Empty, Heading } from "../parts.js";
import { silentSince } from "../store.js";

const ADDRESS = "api/log/stream";
const KEPT = 2000;
const DRAWN_EVERY = 100;

/** The delay (ms) before a refused stream is requested again. */
const AGAIN = 5000;

/** Return the content of an event of the stream: a JSON object, or a line of text. */
function lineOf(data) {
  try {
    const found = JSON.parse(data);
    return typeof found === "object" && found ? found : { text: String(found) };
  } catch {
    return { text: data };
  }
}

function useTail() {
  const [state, setState] = useState({ lines: [], open: undefined });
  useEffect(() => {
    let waiting = [];
    let number = 0;
    let again = 0;
    let source;
    const follow = () => {
      source = new EventSource(ADDRESS);
      source.onopen = () => {
        silentSince.set(0);
        setState((old) => ({ ...old, open: true }));
      };
      source.onerror = () => {
        const isRefused = source.readyState === EventSource.CLOSED;
        setState((old) => ({ ...old, open: isRefused ? null : false }));
        // A stream of events gives no reason.  If the session is over or the broker away, this request does.
        get("overview?columns=node").catch(() => {});
        if (isRefused) {
          again = setTimeout(() => {
            // A new stream begins with all kept lines.
            setState((old) => ({ ...old, lines: [] }));
            follow();
          }, AGAIN);
        }
      };
      source.onmessage = (event) => {
        waiting.push({ ...lineOf(event.data), number: (number += 1) });
        waiting.splice(0, Math.max(0, waiting.length - KEPT));
      };
    };
    follow();
    const timer = setInterval(() => {
      if (waiting.length > 0) {
        const added = waiting;
        waiting = [];
        setState((old) => ({ ...old, lines: [...old.lines, ...added].slice(-KEPT) }));
      }
    }, DRAWN_EVERY);
    return () => {
      source.close();
      clearInterval(timer);
      clearTimeout(again);
    };
  }, []);
  return state;
}

function textOf(line) {
  return line.text ?? line.line ?? line.message ?? "";
}

/** The time of a line, in the reader's zone. */
function timeOf(line) {
  const shown = moment(line.time);
  return shown === NOTHING ? coded(line.time ?? "") : shown;
}

/** A line, drawn once, since thousands of them are compared whenever a new one arrives. */
function drawn(line) {
  line.drawn ??= html`<div key=${line.number} class=${`log-line ${String(line.level ?? "").toLowerCase()}`}><span class="log-time">${timeOf(line)}</span> <span class="log-level">${coded(line.level ?? "")}</span> ${coded(textOf(line))}</div>`;
  return line.drawn;
}

/** The distance (pixels) from its end within which a log counts as scrolled to the end. */
const NEAR = 40;

export function View() {
  const { lines, open } = useTail();
  const [wanted, setWanted] = useState("");
  const [held, setHeld] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    if (!held && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [lines, held]);
  // Scrolling back stops following; scrolling to the end resumes it.
  const scrolled = ({ currentTarget: at }) => setHeld(at.scrollHeight - at.scrollTop - at.clientHeight > NEAR);
  const shown = wanted ? lines.filter((line) => textOf(line).toLowerCase().includes(wanted.toLowerCase())) : lines;
  return html`<${Heading} title="Log">
      <input type="search" aria-label="Filter the log" placeholder="Filter" value=${wanted}
        onInput=${(event) => setWanted(event.currentTarget.value)} />
      <label class="check"><input type="checkbox" checked=${held} onChange=${(event) => setHeld(event.currentTarget.checked)} />
        <span>Pause</span></label>
    <//>
    ${open === null && html`<${Empty} title="The log cannot be followed"><p>This broker may not offer it, or too many follow it
      already. Where it runs: <code>journalctl -u leveret -f</code>.</p><//>`}
    ${open === false && html`<p class="hint">The log was interrupted; the page tries again.</p>`}
    <div class="log" ref=${box} tabindex="0" role="log" aria-label="Log of the broker" onScroll=${scrolled}>
      ${shown.map(drawn)}
      ${shown.length === 0 && open !== null && open !== undefined && html`<p class="note">${wanted ? "No line has this." : "Nothing was written yet; lines appear as the broker writes them."}</p>`}
    </div>`;
}
