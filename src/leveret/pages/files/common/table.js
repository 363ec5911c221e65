// A table: sorts and filters its rows itself unless the caller does, and draws only the visible rows of long ones.

import { html, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";
import { counted, legible, number } from "./format.js";
import { PAPER_WIDTH, usePrinting } from "./print.js";

/** From this many rows on, only visible rows are drawn. */
const DRAWN_WHOLE = 150;

/** The height of a row of a long table in pixels; `style.css` sets it. */
const ROW_HEIGHT = 30;

/** Rows drawn above and below the visible ones. */
const SPARE_ROWS = 12;

/** From this many rows on, a table that sorts itself has a filter. */
const FILTERED_FROM = 10;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key]);
const textOf = (column, row) => String((column.text ? column.text(row) : valueOf(column, row)) ?? "");

function compared(one, other) {
  if (one === other) {
    return 0;
  }
  // Rows without a value are last.
  if (one === null || one === undefined) {
    return -1;
  }
  if (other === null || other === undefined) {
    return 1;
  }
  const numbers = typeof one === "number" && typeof other === "number";
  return numbers ? one - other : collator.compare(String(one), String(other));
}

function sortedRows(rows, columns, order) {
  const column = order && columns.find((one) => one.key === order.key);
  if (!column) {
    return rows;
  }
  const sign = order.reverse ? -1 : 1;
  return [...rows].sort((one, other) => sign * compared(valueOf(column, one), valueOf(column, other)));
}

function filteredRows(rows, columns, wanted) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    return rows;
  }
  const hit = (row, word) => columns.some((column) => textOf(column, row).toLowerCase().includes(word));
  return rows.filter((row) => words.every((word) => hit(row, word)));
}

/** Track the visible rows of a long table; return the first one and the one after the last. */
function useSeen(box, count) {
  const [seen, setSeen] = useState([0, 40]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || count <= DRAWN_WHOLE) {
      return undefined;
    }
    const look = () => {
      const first = Math.max(0, Math.floor(element.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
      const last = Math.ceil((element.scrollTop + element.clientHeight) / ROW_HEIGHT) + SPARE_ROWS;
      setSeen((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    look();
    element.addEventListener("scroll", look, { passive: true });
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      watcher.disconnect();
    };
  }, [count]);
  return seen;
}

/** The space between two columns on paper, in pixels, normally and if words would be cut; `style.css` sets the font. */
const PAPER_GAPS = [15, 8];
const PAPER_FONT_SIZE = "10px";
/** The width that a column may need in addition to its words: a mark, a border, a fraction of a pixel. */
const PAPER_SPARE = 3;
/** The width in which a column of longer texts is readable, in pixels. */
const READABLE_WIDTH = 90;

/** Return the maximum width of a column so that all have `room` together; narrow columns leave the rest to others. */
function fairWidth(widths, room) {
  let left = room;
  const sorted = [...widths].sort((one, other) => one - other);
  for (const [place, width] of sorted.entries()) {
    const share = left / (sorted.length - place);
    if (width > share) {
      return share;
    }
    left -= width;
  }
  return Infinity;
}

/** Return the minimum width of each column on paper, and which of them are texts. */
function printedColumns(table) {
  const pen = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(table).fontFamily;
  const widest = (texts, weight) => {
    pen.font = `${weight} ${PAPER_FONT_SIZE} ${family}`;
    return [...new Set(texts)].reduce((most, text) => Math.max(most, pen.measureText(text).width), 0);
  };
  const words = (texts) => texts.flatMap((text) => text.split(/\s+/));
  const rows = [...table.tBodies[0].rows];
  return [...table.tHead.rows[0].cells].map((head, place) => {
    const cells = rows.map((row) => row.cells[place]).filter(Boolean);
    const texts = cells.map((cell) => cell.textContent);
    const isText = cells.some((cell) => cell.querySelector(".cell-text, .name"));
    const least = isText ? Math.max(widest(words(texts), 400), Math.min(READABLE_WIDTH, widest(texts, 400))) : widest(texts, 400);
    return { head, isText, least: Math.max(least, widest(head.textContent.split(/[\s-]+/), 600)) };
  });
}

/** Truncate long words on paper so that no column is dropped; the widest columns are truncated first. */
function usePaperWidth(box, printing) {
  useLayoutEffect(() => {
    const table = box.current?.querySelector("table");
    if (!printing || !table) {
      return undefined;
    }
    const columns = printedColumns(table);
    const texts = columns.filter((one) => one.isText);
    const figures = columns.reduce((sum, one) => sum + (one.isText ? 0 : one.least), 0);
    const mostWith = (gap) => fairWidth(texts.map((one) => one.least), Math.max(0, PAPER_WIDTH - columns.length * (gap + PAPER_SPARE) - figures));
    const gap = PAPER_GAPS.find((one) => mostWith(one) === Infinity) ?? Math.min(...PAPER_GAPS);
    const most = mostWith(gap);
    table.style.setProperty("--cell-gap", `${gap / 2}px`);
    table.style.setProperty("--word-width", most === Infinity ? "26rem" : `${Math.floor(most)}px`);
    texts.forEach(({ head, least }) => (head.style.minWidth = `${Math.floor(Math.min(least, most) + gap)}px`));
    return () => texts.forEach(({ head }) => (head.style.minWidth = ""));
  }, [printing]);
}

/** Keep the widths of columns while other rows are drawn, so that nothing jumps. */
function useSteadyWidths(box, columns, rows, partly) {
  const widths = useRef([]);
  useLayoutEffect(() => {
    widths.current = [];
    for (const cell of box.current?.querySelectorAll("thead th") ?? []) {
      cell.style.minWidth = "";
    }
  }, [columns.length, rows, partly]);
  useLayoutEffect(() => {
    if (!partly) {
      return;
    }
    box.current?.querySelectorAll("thead th").forEach((cell, place) => {
      widths.current[place] = Math.max(widths.current[place] ?? 0, Math.floor(cell.getBoundingClientRect().width));
      cell.style.minWidth = `${widths.current[place]}px`;
    });
  });
}

/** The class of a column's cells; `minor` columns are hidden on a phone. */
const kindOf = (column) => `${column.align === "right" ? "figure-cell" : ""}${column.minor ? " minor" : ""}`;

function HeadCell({ column, order, choose, sortable }) {
  const mine = order?.key === column.key;
  const direction = order?.reverse ? "descending" : "ascending";
  const kind = kindOf(column);
  if (column.title === "") {
    // A column of buttons has no header.
    return html`<td class=${kind}></td>`;
  }
  if (!sortable) {
    return html`<th scope="col" class=${kind}>${column.title}</th>`;
  }
  return html`<th scope="col" class=${kind} aria-sort=${mine ? direction : undefined}>
    <button type="button" class="sorter" onClick=${() => choose(column)} title=${column.note}>
      ${column.title}<span class="sort-mark" aria-hidden="true">${mine ? (order.reverse ? "▾" : "▴") : ""}</span>
    </button>
  </th>`;
}

function BodyCell({ column, row }) {
  const kind = kindOf(column);
  if (column.render) {
    return html`<td class=${kind}>${column.render(row)}</td>`;
  }
  const value = valueOf(column, row);
  if (typeof value === "number") {
    return html`<td class=${kind}>${number(value)}</td>`;
  }
  const shown = legible(value ?? "");
  return html`<td class=${kind}><bdi class="cell-text" title=${shown}>${shown}</bdi></td>`;
}

function Gap({ rows, width }) {
  return rows > 0 && html`<tr class="gap" aria-hidden="true"><td colspan=${width} style=${{ height: `${rows * ROW_HEIGHT}px` }}></td></tr>`;
}

function FilterField({ caption, wanted, setWanted, found, count }) {
  return html`<div class="table-filter">
    <input type="search" value=${wanted} placeholder="Filter" aria-label=${`Filter ${caption ?? "the table"}`}
      spellcheck=${false} onInput=${(event) => setWanted(event.currentTarget.value)} />
    <span class="note" role="status">${wanted ? `${number(found)} of ${counted(count, "row")}` : counted(count, "row")}</span>
  </div>`;
}

function TableRows({ rows, columns, from, to, partly }) {
  return html`<tbody>
    ${partly && html`<${Gap} rows=${from} width=${columns.length} />`}
    ${rows.slice(from, to).map((row, place) => html`<tr key=${row.key ?? from + place} aria-rowindex=${partly ? from + place + 2 : undefined}>
      ${columns.map((column) => html`<${BodyCell} key=${column.key} column=${column} row=${row} />`)}
    </tr>`)}
    ${partly && html`<${Gap} rows=${rows.length - to} width=${columns.length} />`}
  </tbody>`;
}

/**
 * Show rows.  A column is `{key, title, align, minor, render(row), value(row), text(row), sort, note}`: it is
 * sorted by `value` and filtered by `text`; both are `row[key]` unless given.  With `onSort` the
 * caller sorts: it is called with `{key, reverse}`, and only columns with `sort` can be chosen;
 * without it all columns can, except those with `sort: false`.  `filter` says whether rows can be filtered;
 * a `whole` table is all of a view, and takes the height of the window.  The title of a column of buttons is empty.
 */
export function DataTable({ columns, rows, sort, onSort, empty = "There is nothing.", caption, filter, whole }) {
  const box = useRef(null);
  const [own, setOwn] = useState(sort ?? null);
  const [wanted, setWanted] = useState("");
  const order = onSort ? sort : own;
  const filtered = useMemo(() => (onSort ? rows : filteredRows(rows, columns, wanted)), [rows, wanted, onSort !== undefined]);
  const shown = useMemo(() => (onSort ? rows : sortedRows(filtered, columns, own)), [filtered, own]);
  const printing = usePrinting();
  const seen = useSeen(box, shown.length);
  const partly = shown.length > DRAWN_WHOLE && !printing;
  const to = partly ? Math.min(seen[1], shown.length) : shown.length;
  const from = partly ? Math.min(seen[0], Math.max(0, to - 1)) : 0;
  useSteadyWidths(box, columns, shown, partly);
  usePaperWidth(box, printing);
  const choose = (column) => {
    const first = column.align === "right";
    const next = { key: column.key, reverse: order?.key === column.key ? !order.reverse : first };
    return onSort ? onSort(next) : setOwn(next);
  };
  const sortable = (column) => (onSort ? Boolean(column.sort) : column.sort !== false);
  const filters = filter ?? (!onSort && rows.length >= FILTERED_FROM);
  return html`<div class="table">
    ${filters && html`<${FilterField} caption=${caption} wanted=${wanted} setWanted=${setWanted} found=${shown.length} count=${rows.length} />`}
    <div class=${`table-box${partly ? " long" : ""}${whole ? " whole" : ""}`} ref=${box} tabindex="0" role="region" aria-label=${caption}>
      <table aria-rowcount=${partly ? shown.length + 1 : undefined}>
        ${caption && html`<caption>${caption}</caption>`}
        <thead><tr>${columns.map((column) => html`<${HeadCell} key=${column.key} column=${column} order=${order} choose=${choose} sortable=${sortable(column)} />`)}</tr></thead>
        <${TableRows} rows=${shown} columns=${columns} from=${from} to=${to} partly=${partly} />
      </table>
      ${shown.length === 0 && html`<p class="note nothing">${wanted ? "No row has this in it." : empty}</p>`}
    </div>
  </div>`;
}
