// Values shared by several parts of the page, and the hook that follows one.

import { useEffect, useState } from "../vendor/htm-preact.js";

/** A value with change notifications. */
export class Store {
  constructor(value) {
    this.value = value;
    this.heard = new Set();
  }

  set(value) {
    if (value !== this.value) {
      this.value = value;
      this.heard.forEach((changed) => changed(value));
    }
  }
}

/** The value of a store, drawn again when it changes. */
export function useStore(store) {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(store.value);
    store.heard.add(setValue);
    return () => store.heard.delete(setValue);
  }, [store]);
  return value;
}

/** The signed-in user (`{name, tags}`), null for nobody, undefined if not known yet. */
export const user = new Store(undefined);

/** Whether a session ended without a sign-out. */
export const sessionEnded = new Store(false);

/** The vhost that limits lists, from the address; empty for all. */
export const chosenVhost = new Store("");

/** The visible vhosts, by name. */
export const vhostNames = new Store([]);

/** The broker (`{cluster_name, product_name, product_version}`), null if not known yet. */
export const broker = new Store(null);

/** The node as last seen by a user that may see it, else null. */
export const node = new Store(null);

/** The time (ms) since which the broker has not answered; 0 while it does. */
export const silentSince = new Store(0);

/** Return whether the user has one of some tags. */
export function hasTag(...tags) {
  const known = user.value?.tags ?? [];
  return tags.some((tag) => known.includes(tag));
}

export const isAdministrator = () => hasTag("administrator");
export const monitors = () => hasTag("monitoring", "administrator");
