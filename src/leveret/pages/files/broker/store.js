// Values that several parts of the page share, and the hook that follows one.

import { useEffect, useState } from "../vendor/htm-preact.js";

/** A value whose changes can be followed. */
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

/** The value of a store, drawn again as it changes. */
export function useStore(store) {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(store.value);
    store.heard.add(setValue);
    return () => store.heard.delete(setValue);
  }, [store]);
  return value;
}

/** Who is signed in (`{name, tags}`), null where nobody is, undefined where it is not known yet. */
export const user = new Store(undefined);

/** Whether a session ended that nobody signed out of. */
export const sessionEnded = new Store(false);

/** The vhost that lists are limited to, as the address says; empty for all. */
export const chosenVhost = new Store("");

/** Since when (ms) the broker has not answered; 0 while it does. */
export const silentSince = new Store(0);

/** Tell whether the user has one of some tags. */
export function hasTag(...tags) {
  const known = user.value?.tags ?? [];
  return tags.some((tag) => known.includes(tag));
}

export const isAdministrator = () => hasTag("administrator");
export const monitors = () => hasTag("monitoring", "administrator");
