// One message on the page: its origin, its properties, and its body.

import { html, useState } from "../vendor/htm-preact.js";
import { bytes, coded, legible, moment, number } from "../common/format.js";
import { Facts, Name, Source, Tag } from "./parts.js";

const SHOWN_CHARACTERS = 20000;

/** Return the body as text: JSON is indented, and binary data is shown in hexadecimal. */
export function bodyText(message) {
  if (message.payload_encoding === "base64") {
    return hexadecimal(atob(message.payload));
  }
  const text = message.payload;
  if (/^\s*[[{]/.test(text) && text.length < SHOWN_CHARACTERS) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }
  return text;
}

function hexadecimal(binary) {
  const lines = [];
  for (let at = 0; at < Math.min(binary.length, 4096); at += 16) {
    const part = binary.slice(at, at + 16);
    const codes = [...part].map((char) => char.charCodeAt(0).toString(16).padStart(2, "0"));
    const letters = [...part].map((char) => (char >= " " && char <= "~" ? char : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${codes.join(" ").padEnd(48)} ${letters}`);
  }
  return lines.join("\n");
}

/** How much of a body is shown before it is opened. */
const BEGIN_CHARACTERS = 100;

/** Return the first characters of a body, in one line. */
function beginOf(message) {
  const isText = message.payload_encoding !== "base64";
  const text = isText ? message.payload.slice(0, BEGIN_CHARACTERS + 1) : hexadecimal(atob(message.payload.slice(0, 64))).slice(8, 55);
  const shown = coded(text.replace(/\s+/g, " ").slice(0, BEGIN_CHARACTERS));
  return message.payload.length > (isText ? BEGIN_CHARACTERS : 20) ? `${shown}…` : shown;
}

/** A message that can be expanded. */
export function Message({ message, actions }) {
  const [open, setOpen] = useState(false);
  const { exchange, routing_key: key, payload_bytes: size } = message;
  return html`<details class="message" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>
      ${message.sequence !== undefined && html`<span class="sequence">${number(message.sequence)}</span>`}
      <${Name} text=${key} empty="(no key)" />
      <span class="note">${message.timestamp ? moment(message.timestamp) : ""}</span>
      <span class="note">${bytes(size)}</span>
      ${message.redelivered && html`<${Tag} text="redelivered" />`}
      ${!open && html`<bdi class="body-begin">${beginOf(message)}</bdi>`}
    </summary>
    ${open && html`<${Facts} of=${[
      ["Exchange", html`<${Name} text=${exchange} empty="(default exchange)" />`],
      ["Key", html`<${Name} text=${key} empty="(none)" />`],
      ...Object.entries(message.properties ?? {})
        .filter(([name]) => name !== "headers")
        .map(([name, value]) => [name, legible(value)]),
    ]} />
    ${message.properties?.headers && html`<h3>Headers</h3><${Source} value=${message.properties.headers} label="Headers" />`}
    <h3>Body</h3>
    <${Body} message=${message} />
    ${actions}`}
  </details>`;
}

function Body({ message }) {
  const text = bodyText(message);
  const cut = text.length > SHOWN_CHARACTERS;
  return html`<${Source} value=${cut ? text.slice(0, SHOWN_CHARACTERS) : text} label="Body" />
    ${cut && html`<p class="note">Cut after ${number(SHOWN_CHARACTERS)} characters; the message has ${bytes(message.payload_bytes)}.</p>`}
    ${message.payload_bytes === 0 && html`<p class="note">The body is empty.</p>`}`;
}
