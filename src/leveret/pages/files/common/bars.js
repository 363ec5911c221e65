// Horizontal bars: amounts of several items, or the parts that they consist of.

import { html, useState } from "../vendor/htm-preact.js";
import { legible, number, percent } from "./format.js";

/** Bars that are drawn before the reader asks for more, unless there are only a few more. */
const BARS_FIRST = 12;
const BARS_WHOLE = 16;

function BarRow({ row, most, whole, format }) {
  const parts = row.parts ?? [{ label: "", value: row.value, colour: 0 }];
  const name = legible(row.label);
  const says = (part) => `${name}${part.label ? `, ${part.label}` : ""}: ${format(part.value)}`;
  return html`<li class="bar-row">
    <bdi class="bar-name" title=${name}>${name}</bdi>
    <span class="bar-track">
      ${parts.map((part) => part.value > 0 && html`<span class=${`bar-part tone-${part.colour + 1}`} title=${says(part)}
        style=${{ width: `${Math.max(0.3, (100 * part.value) / most)}%` }}></span>`)}
    </span>
    <span class="bar-value">${format(row.value)}${whole ? html` <span class="note">${percent(row.value, whole)}</span>` : null}</span>
  </li>`;
}

/**
 * Draw rows `{label, value}` as bars, or `{label, value, parts: [{label, value, colour}]}` as bars of
 * parts; `whole` is the total for the shares of rows, and `legend` names the colours.
 */
export function BarList({ title, note, rows, format = number, whole = 0, legend = [], empty = "There is nothing." }) {
  const [all, setAll] = useState(false);
  const cut = rows.length > BARS_WHOLE;
  const shown = all || !cut ? rows : rows.slice(0, BARS_FIRST);
  const most = Math.max(1e-9, ...rows.map((row) => row.value));
  return html`<figure class="bars" aria-label=${title}>
    <figcaption>${title}${note && html` <span class="note">${note}</span>`}
      ${shown.length < rows.length && html` <span class="note">the first ${number(shown.length)} of ${number(rows.length)}</span>`}</figcaption>
    ${legend.length > 0 && html`<ul class="legend">
      ${legend.map((label, place) => html`<li><span class=${`patch tone-${place + 1}`} aria-hidden="true"></span>${label}</li>`)}
    </ul>`}
    ${rows.length === 0
      ? html`<p class="note nothing">${empty}</p>`
      : html`<ol class="bar-list">${shown.map((row) => html`<${BarRow} row=${row} most=${most} whole=${whole} format=${format} />`)}</ol>`}
    ${cut && html`<button type="button" class="small" onClick=${() => setAll(!all)}>
      ${all ? "Show fewer" : `Show all ${number(rows.length)}`}</button>`}
  </figure>`;
}
