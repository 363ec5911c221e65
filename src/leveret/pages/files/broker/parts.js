// Small shared parts of the views: headings, panels, facts, tabs, states without data.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.js";
import { coded, legible, number } from "../common/format.js";
import { link } from "./router.js";

/** The heading of a view; `trail` are `{title, to}` above it, `children` the actions. */
export function Heading({ title, kind, trail = [], children }) {
  return html`<header class="heading">
    ${trail.length > 0 &&
    html`<nav class="trail" aria-label="Above this view">
      ${trail.map((one) => html`<a href=${one.to}>${one.title}</a><span aria-hidden="true"> / </span>`)}
    </nav>`}
    <div class="heading-line">
      <h1>${kind && html`<span class="kind">${kind}</span> `}<${Name} text=${title} /></h1>
      <div class="actions">${children}</div>
    </div>
  </header>`;
}

/** A user-given name with its own text direction; a long one ends in an ellipsis. */
export function Name({ text, empty = "(empty name)" }) {
  const shown = text === "" ? empty : legible(text);
  return html`<bdi class="name" title=${shown}>${shown}</bdi>`;
}

/** A link whose text is a name. */
export function NameLink({ text, to, empty }) {
  return html`<a href=${to}><${Name} text=${text} empty=${empty} /></a>`;
}

/** The name of an exchange in an address. */
export const exchangePart = (name) => (name === "" ? "amq.default" : name);

export function ExchangeLink({ vhost, name }) {
  const to = link("exchanges", [vhost, exchangePart(name)]);
  return html`<${NameLink} text=${name} to=${to} empty="(default exchange)" />`;
}

export function QueueLink({ vhost, name }) {
  return html`<${NameLink} text=${name} to=${link("queues", [vhost, name])} />`;
}

/** The client's end of a connection, such as `10.0.0.7:40112`. */
export const endOf = (row) => (row.peer_host ? `${row.peer_host}:${row.peer_port}` : "local");

/** A framed part of a view. */
export function Panel({ title, note, actions, children, wide }) {
  return html`<section class=${`panel${wide ? " wide" : ""}`}>
    ${title &&
    html`<div class="panel-head">
      <h2>${title}</h2>
      ${note && html`<span class="note">${note}</span>`}
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>`}
    ${children}
  </section>`;
}

/** A name and a value; a value that is too wide scrolls, also with the keyboard. */
function Fact({ name, value }) {
  const place = useRef(null);
  const [scrolls, setScrolls] = useState(false);
  useLayoutEffect(() => {
    setScrolls(place.current.scrollWidth > place.current.clientWidth);
  });
  return html`<div><dt>${name}</dt><dd ref=${place} tabindex=${scrolls ? 0 : undefined}>${value}</dd></div>`;
}

/** Names and values, in lines or `inline` one after another; undefined and null values are omitted. */
export function Facts({ of, inline }) {
  const known = of.filter((one) => one && ![undefined, null, false, ""].includes(one[1]));
  return html`<dl class=${`facts${inline ? " inline" : ""}`}>
    ${known.map(([name, value]) => html`<${Fact} key=${name} name=${name} value=${value} />`)}
  </dl>`;
}

/** A large figure with its name. */
export function Figure({ name, value, note, to, warn }) {
  // A truncated figure would be a wrong one.
  const length = String(value).length;
  const size = length > 9 ? " longer" : length > 6 ? " long" : "";
  const body = html`<span class="figure-name">${name}</span>
    <span class=${`figure-value${size}`}>${value}</span>
    ${note && html`<span class="note">${note}</span>`}`;
  const kind = `figure${warn ? " warn" : ""}`;
  return to ? html`<a class=${kind} href=${to}>${body}</a>` : html`<div class=${kind}>${body}</div>`;
}

/** A word in a frame, such as the type of a queue. */
export function Tag({ text, title, kind = "" }) {
  return html`<span class=${`tag ${kind}`} title=${title}>${legible(text ?? "")}</span>`;
}

/** The state of a connection or a channel, which stands out unless it is running. */
export function State({ text }) {
  return text === "running" ? text : html`<${Tag} text=${text} kind="warn" />`;
}

/** Tabs of the same object, each with an address. */
export function Tabs({ view, parts, tabs, shown }) {
  const row = useRef(null);
  useEffect(() => {
    // On a phone the row is wider than the window.
    const [box, tab] = [row.current, row.current.querySelector("[aria-current]")];
    if (tab) {
      box.scrollLeft = tab.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2;
    }
  }, [shown, tabs.length]);
  return html`<nav class="tabs sideways" aria-label="Parts of this view" ref=${row}>
    ${tabs.map(
      ([key, title, count]) => html`<a
        href=${link(view, parts, key === tabs[0][0] ? {} : { tab: key })}
        aria-current=${key === shown ? "page" : undefined}
        >${title}${count !== undefined && html` <span class="count">${number(count)}</span>`}</a
      >`,
    )}
  </nav>`;
}

/** The text for an empty state, with advice. */
export function Empty({ title, children }) {
  return html`<div class="empty-state">
    <p class="empty-title">${title}</p>
    <div class="note">${children}</div>
  </div>`;
}

/** An error, in the broker's words. */
export function Failure({ error, retry }) {
  return html`<div class="failure" role="alert">
    <p>${coded(error.message)}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** The data of `useLive` once loaded; before that a loading note, or the error. */
export function Loaded({ live, children }) {
  if (live.data !== undefined) {
    return html`${live.error && live.error.status !== 0 && html`<${Failure} error=${live.error} />`}
    ${children(live.data)}`;
  }
  return live.error
    ? html`<${Failure} error=${live.error} retry=${live.reload} />`
    : html`<p class="note loading">Loading …</p>`;
}

/** Data as indented text. */
export function Source({ value, label }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<pre class="source" tabindex="0" aria-label=${label}>${text}</pre>`;
}

/** Key and value pairs in one short line, such as the arguments of a queue. */
export function Arguments({ of }) {
  const pairs = Object.entries(of ?? {});
  if (pairs.length === 0) {
    return null;
  }
  return html`<span class="arguments">
    ${pairs.map(([name, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      const shown = `${legible(name)} = ${legible(text)}`;
      return html`<code title=${shown}>${shown}</code> `;
    })}
  </span>`;
}
