// The frame of each job's page: its header with the sources, the theme, figures, and notes on omitted rows.

import { html, render, useEffect, useState } from "../vendor/htm-preact.js";
import { legible, moment, NOTHING, number, zone } from "../common/format.js";

/** Return the rows of a table of the page's data as objects. */
export function recordsOf(table) {
  return table.rows.map((values, key) => {
    const row = { key };
    table.fields.forEach((field, place) => {
      row[field] = values[place];
    });
    return row;
  });
}

/** Return a note on how much of a table is on the page. */
export function CutNote({ table, what }) {
  const [shown, total] = [table.rows.length, table.total];
  return html`<p class=${`note cut${shown === total ? " whole" : ""}`}>${shown === total
    ? `All ${number(total)}.`
    : `The ${number(shown)} ${what}; ${number(total - shown)} of ${number(total)} are left out.`}</p>`;
}

/** A large figure with its name. */
export function JobFigure({ name, value, note, warn }) {
  return html`<div class=${`figure${warn ? " warn" : ""}`}>
    <span class="figure-name">${name}</span><span class="figure-value">${value}</span>
    ${note && html`<span class="note">${note}</span>`}
  </div>`;
}

/** A part of a page with a heading. */
export function JobPart({ title, note, children }) {
  return html`<section class="job-part"><h2>${title}${note && html` <span class="note">${note}</span>`}</h2>${children}</section>`;
}

/** A text of a message, which may be long, in one line. */
export function Short({ text, empty = "" }) {
  const shown = text === "" || text === null || text === undefined ? empty : legible(text);
  return html`<bdi class=${`cell-text${text === "" ? " note" : ""}`} title=${shown}>${shown}</bdi>`;
}

/** Return a span as in "messages per minute" and "messages per 5 minutes". */
export const perSpan = (span) => `per ${span.replace(/^1 /, "")}`;

export const exchangeName = (name) => (name === "" ? "(default exchange)" : name);
export const keyName = (key) => (key === "" ? "(empty key)" : key);

const THEME_KEY = "leveret-theme";

function keptTheme() {
  try {
    return localStorage.getItem(THEME_KEY) ?? "";
  } catch {
    // A page opened as a file may have no storage.
    return "";
  }
}

function ThemeChoice() {
  const [theme, setTheme] = useState(keptTheme);
  useEffect(() => {
    if (theme) {
      document.documentElement.dataset.theme = theme;
    } else {
      delete document.documentElement.dataset.theme;
    }
    try {
      localStorage.setItem(THEME_KEY, theme);
    } catch {
      // Then the choice holds for this visit.
    }
  }, [theme]);
  return html`<label class="theme-choice"><span class="unseen">Colours</span>
    <select value=${theme} onChange=${(event) => setTheme(event.currentTarget.value)}>
      ${[["", "System colours"], ["light", "Light"], ["dark", "Dark"]].map(([key, title]) => html`<option value=${key} selected=${key === theme}>${title}</option>`)}
    </select></label>`;
}

/** Words of a command longer than this may be broken if they do not fit on paper. */
const WORD_LETTERS = 60;

/** A command: in one line on a screen, and on paper in lines that end between words. */
function Command({ text }) {
  const words = legible(text).split(" ");
  return html`<code class="command" tabindex="0">${words.map((word, place) => html`${place > 0 && " "}<span class=${word.length < WORD_LETTERS ? "word" : ""}>${word}</span>`)}</code>`;
}

function Read({ origin }) {
  const times = origin.first === null ? "not known" : `${moment(origin.first)} to ${moment(origin.last)}`;
  return html`<dl class="origin">
    <div><dt>Read</dt><dd><${Short} text=${origin.source} empty=${NOTHING} /></dd></div>
    <div><dt>${origin.times}</dt><dd class="times">${times}</dd></div>
    <div><dt>Made</dt><dd>${moment(origin.made)}</dd></div>
    <div><dt>Time zone</dt><dd>${zone()}</dd></div>
    ${origin.command && html`<div class="wide"><dt>Command</dt><dd><${Command} text=${origin.command} /></dd></div>`}
  </dl>`;
}

function JobFrame({ data, kind, body }) {
  return html`<header class="job-head">
      <div class="job-title"><p class="job-kind">Leveret · ${kind}</p><${ThemeChoice} /></div>
      <h1 title=${legible(data.title)}><bdi>${legible(data.title)}</bdi></h1>
      <${Read} origin=${data.origin} />
    </header>
    <main>${html`<${body} data=${data} />`}</main>`;
}

/** Draw the page from its data, which `body` gets. */
export function showJob(kind, body) {
  const data = JSON.parse(document.getElementById("data").textContent);
  render(html`<${JobFrame} data=${data} kind=${kind} body=${body} />`, document.getElementById("page"));
}
