// Long lists: the broker filters, sorts and divides them into pages; the address selects the page.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { number } from "../common/format.js";
import { DataTable } from "../common/table.js";
import { get, path, query } from "./api.js";
import { useLive } from "./live.js";
import { Failure } from "./parts.js";
import { change } from "./router.js";
import { chosenVhost, useStore, vhostNames } from "./store.js";

export const PAGE_SIZES = [25, 50, 100, 250, 500];

/** The order of a list unless another is given: by vhost and name. */
const NAMES = { key: "", reverse: false };

/** Return the columns without that of the vhost if there is only one, or one is chosen. */
export function useShown(columns) {
  const chosen = useStore(chosenVhost);
  const several = useStore(vhostNames).length > 1;
  return columns.filter((one) => one.key !== "vhost" || (several && !chosen));
}

/** The path of a list, for all vhosts or for one. */
export function listPath(list, vhost, isVhosts) {
  if (!vhost) {
    return list;
  }
  return isVhosts ? `${path`vhosts/${vhost}`}/${list}` : `${list}${path`/${vhost}`}`;
}

/**
 * Load one page of a list, limited to the selected vhost; with `isVhosts` the path begins with that
 * of the vhost.  `options` are those of the address: name, use_regex, sort, reverse, page, size;
 * `sort` is the order without one.
 */
export function useList(list, options, { isVhosts = false, extra = {}, every = 5000, sort = NAMES } = {}) {
  const vhost = useStore(chosenVhost);
  const asked = {
    page: options.page ?? 1,
    page_size: options.size ?? 50,
    name: options.name,
    use_regex: options.name && options.use_regex,
    sort: options.sort ?? sort.key,
    sort_reverse: options.sort ? options.reverse : sort.reverse || undefined,
    ...extra,
  };
  const load = (signal) => get(listPath(list, vhost, isVhosts) + query(asked), signal);
  const live = useLive(load, JSON.stringify([list, vhost, asked]), { every, keep: true });
  useEffect(() => {
    // The list has become too short for the requested page.
    if (live.error?.status === 400 && Number(asked.page) > 1) {
      change({ page: undefined });
    }
  }, [live.error]);
  return live;
}

/** The filter above a list. */
export function Filter({ options, label }) {
  const [text, setText] = useState(options.name ?? "");
  const sent = useRef(options.name ?? "");
  useEffect(() => {
    // Text typed since the last change of the address stays.
    if ((options.name ?? "") !== sent.current) {
      sent.current = options.name ?? "";
      setText(sent.current);
    }
  }, [options.name]);
  useEffect(() => {
    if (text === sent.current) {
      return undefined;
    }
    const timer = setTimeout(() => {
      sent.current = text;
      change({ name: text, page: undefined });
    }, 200);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<span class="filter">
    <input type="search" aria-label=${label} placeholder="Filter" value=${text} spellcheck=${false}
      onInput=${(event) => setText(event.currentTarget.value)} />
    <label class="check"><input type="checkbox" checked=${options.use_regex === "true"}
      onChange=${(event) => change({ use_regex: event.currentTarget.checked ? "true" : undefined, page: undefined })} />
      <span>Regex</span></label>
  </span>`;
}

/** Return the note on a list with only its first page. */
export function cutNote(page) {
  return page.total_count > page.items.length ? `the first ${number(page.items.length)} of ${number(page.total_count)}` : undefined;
}

/** The shown part of the list, and links to the others. */
function Pager({ data }) {
  const { page, page_count: pages, filtered_count: filtered, total_count: total } = data;
  const from = filtered === 0 ? 0 : (page - 1) * data.page_size + 1;
  const to = Math.min(filtered, page * data.page_size);
  const step = (next, title, sign) => html`<button type="button" aria-label=${title} disabled=${next < 1 || next > pages || next === page}
    onClick=${() => change({ page: next > 1 ? next : undefined })}>${sign}</button>`;
  return html`<div class="pager">
    <span>${number(from)}–${number(to)} of ${number(filtered)}${filtered !== total && ` (${number(total)} without the filter)`}</span>
    ${filtered > Math.min(...PAGE_SIZES) && html`<span class="actions">
      ${step(1, "First page", "«")}${step(page - 1, "Page before", "‹")}
      <span>page ${number(page)} of ${number(Math.max(1, pages))}</span>
      ${step(page + 1, "Next page", "›")}${step(pages, "Last page", "»")}
      <select aria-label="Rows of a page" value=${String(data.page_size)}
        onChange=${(event) => change({ size: event.currentTarget.value, page: undefined })}>
        ${PAGE_SIZES.map((size) => html`<option value=${String(size)} selected=${size === data.page_size}>${number(size)} rows</option>`)}
      </select>
    </span>`}
  </div>`;
}

/** One page of a list; `rows` are its items unless given, and `empty` is the text for an empty list. */
export function ListTable({ live, rows, columns, options, caption, empty, sort = NAMES }) {
  const visible = useShown(columns);
  if (live.data === undefined) {
    return live.error
      ? html`<${Failure} error=${live.error} retry=${live.reload} />`
      : html`<p class="note loading">Loading …</p>`;
  }
  const data = live.data;
  if (data.total_count === 0) {
    return empty;
  }
  const shown = options.sort ? { key: options.sort, reverse: options.reverse === "true" } : sort;
  const nothing = `Nothing has “${options.name ?? ""}” in its name.`;
  return html`${live.error && live.error.status !== 0 && html`<${Failure} error=${live.error} />`}
    <${DataTable} columns=${visible} whole rows=${rows ?? data.items} caption=${caption} empty=${nothing}
      sort=${shown} onSort=${(next) => change({ sort: next.key, reverse: next.reverse ? "true" : undefined, page: undefined })} />
    <${Pager} data=${data} />`;
}
