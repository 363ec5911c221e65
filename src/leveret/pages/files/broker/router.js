// Every view has an address in the page's fragment: `#/queues/%2F/orders?tab=messages`.
//
// The vhost that lists are limited to is a part of it (`?vhost=`): links carry it on, and a reload,
// a bookmark and the way back have it.

import { useEffect, useState } from "../vendor/htm-preact.js";
import { query, segment } from "./api.js";
import { chosenVhost } from "./store.js";

/** Return the address of a view: its name, what it shows, and how; `vhost` is that of now unless given. */
export function link(view, parts = [], options = {}) {
  const shown = { ...options, vhost: Object.hasOwn(options, "vhost") ? options.vhost : chosenVhost.value };
  return `#/${[view, ...parts].map((part) => segment(String(part))).join("/")}${query(shown)}`;
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

/** Views whose addresses name the vhost of what they show. */
const OF_VHOSTS = ["queues", "streams", "exchanges", "policies"];

/** Limit lists to a vhost, or to none by ""; what is shown of another vhost is left for its list. */
export function chooseVhost(vhost) {
  const { view, parts, options } = parse(location.hash);
  const leaves = vhost !== "" && OF_VHOSTS.includes(view) && parts.length > 0 && parts[0] !== vhost;
  go(view, leaves ? [] : parts, leaves ? { vhost } : { ...options, page: undefined, vhost });
}

function follow() {
  chosenVhost.set(parse(location.hash).options.vhost ?? "");
}

// Before any view hears of the address, so that what it draws is of one vhost.
follow();
addEventListener("hashchange", follow);

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
