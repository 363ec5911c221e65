// Every view has an address in the page's fragment: `#/queues/%2F/orders?tab=messages`.
//
// The vhost that limits lists is a part of it (`?vhost=`): links keep it, and it survives a reload,
// a bookmark and the back button.

import { useEffect, useState } from "../vendor/htm-preact.js";
import { query, segment } from "./api.js";
import { chosenVhost } from "./store.js";

/** Return the address of a view: its name, its parts, and its options; `vhost` is the current one unless given. */
export function link(view, parts = [], options = {}) {
  const shown = { ...options, vhost: Object.hasOwn(options, "vhost") ? options.vhost : chosenVhost.value };
  return `#/${[view, ...parts].map((part) => segment(String(part))).join("/")}${query(shown)}`;
}

/** Return the contents of an address: `{view, parts, options}`. */
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

/** Open a view. */
export function go(view, parts = [], options = {}) {
  location.hash = link(view, parts, options);
}

/** Views with the vhost of their object in their addresses. */
const OF_VHOSTS = ["queues", "streams", "exchanges", "policies"];

/** Limit lists to a vhost, or to none with ""; an object of another vhost is replaced by its list. */
export function chooseVhost(vhost) {
  const { view, parts, options } = parse(location.hash);
  const leaves = vhost !== "" && OF_VHOSTS.includes(view) && parts.length > 0 && parts[0] !== vhost;
  go(view, leaves ? [] : parts, leaves ? { vhost } : { ...options, page: undefined, vhost });
}

function follow() {
  chosenVhost.set(parse(location.hash).options.vhost ?? "");
}

// Before any view handles the address, so that everything it draws is for one vhost.
follow();
addEventListener("hashchange", follow);

/** Change the options of the view, without an entry in the browser's history. */
export function change(options) {
  const now = parse(location.hash);
  const merged = { ...now.options, ...options };
  history.replaceState(null, "", link(now.view, now.parts, merged));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The current address, updated when it changes. */
export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
