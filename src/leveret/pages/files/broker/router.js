// Every view has an address in the page's fragment: `#/queues/%2F/orders?tab=messages`.

import { useEffect, useState } from "../vendor/htm-preact.js";
import { query, segment } from "./api.js";

/** Return the address of a view: its name, what it shows, and how. */
export function link(view, parts = [], options = {}) {
  return `#/${[view, ...parts].map((part) => segment(String(part))).join("/")}${query(options)}`;
}

/** Return what an address shows: `{view, parts, options}`. */
export function parse(hash) {
  const [where, asked] = split(hash.replace(/^#\/?/, ""));
  const [view, ...parts] = where.split("/").map(decoded);
  return { view: view || "overview", parts, options: Object.fromEntries(new URLSearchParams(asked)) };
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Go to a view. */
export function go(view, parts = [], options = {}) {
  location.hash = link(view, parts, options);
}

/** Change how the view is shown, without a step of the browser's history. */
export function change(options) {
  const now = parse(location.hash);
  const merged = { ...now.options, ...options };
  history.replaceState(null, "", link(now.view, now.parts, merged));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The address that is shown now, followed as it changes. */
export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
