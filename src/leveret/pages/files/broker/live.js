// Data of a view, requested again and again while the page is visible.
//
// A hidden page sends no requests.  While the broker does not answer, the last data stays on the
// page, and requests are repeated less and less often.

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";
import { on } from "./api.js";
import { silentSince } from "./store.js";

const RETRY_FIRST = 1000;
const RETRY_LAST = 8000;

on("answered", () => silentSince.set(0));
on("silent", () => {
  if (!silentSince.value) {
    silentSince.set(Date.now());
  }
});

/** One view's request, repeated at an interval until it is closed. */
class Poll {
  constructor(load, every, told) {
    this.load = load;
    this.every = every;
    this.told = told;
    this.timer = 0;
    this.failures = 0;
    this.closed = false;
    this.asking = new AbortController();
    this.shown = () => !document.hidden && this.now();
    document.addEventListener("visibilitychange", this.shown);
    this.now();
  }

  close() {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.shown);
    clearTimeout(this.timer);
    this.asking.abort();
    this.told = () => {};
  }

  /** Send the request at once, without waiting for an answer in progress. */
  async now() {
    if (this.closed) {
      // An action of a dialog may finish after its view is gone.
      return;
    }
    clearTimeout(this.timer);
    this.asking.abort();
    const asking = new AbortController();
    this.asking = asking;
    let outcome;
    try {
      outcome = { data: await this.load(asking.signal), error: null };
      this.failures = 0;
    } catch (error) {
      outcome = { error };
      this.failures += 1;
    }
    if (asking.signal.aborted) {
      return;
    }
    this.told(outcome);
    this.wait(outcome.error);
  }

  wait(error) {
    if (document.hidden || (!this.every && !error)) {
      return;
    }
    const patience = Math.min(RETRY_LAST, RETRY_FIRST * 2 ** (this.failures - 1));
    this.timer = setTimeout(() => this.now(), error ? patience : this.every);
  }
}

/**
 * Call `load(signal)` every `every` ms (once if that is 0) and return `{data, error, reload}`.
 *
 * A change of `key` starts a new request; with `keep` the old data stays until the new data arrives.
 */
export function useLive(load, key, { every = 2000, keep = false } = {}) {
  const [state, setState] = useState({ key, data: undefined, error: null });
  const poll = useRef(null);
  // Before the browser draws, since the answer may be there already.
  useLayoutEffect(() => {
    // Data for another request must not be shown with the error of this one.
    const before = (old) => (keep || old.key === key ? old.data : undefined);
    const told = (outcome) => setState((old) => ({ data: before(old), ...outcome, key }));
    poll.current = new Poll(load, every, told);
    return () => poll.current.close();
  }, [key, every]);
  const reload = useCallback(() => poll.current?.now(), []);
  const usable = keep || state.key === key;
  return { data: usable ? state.data : undefined, error: state.key === key ? state.error : null, reload };
}

/** The time (ms) after which a counter of a first answer is requested again, so that its rate is known soon. */
const SECOND_LOOK = 1500;

/**
 * Return the rows of an answer, each with the growth per second of some counters since the answer before.
 *
 * `key(row)` identifies a row; `counters` are `{field: (row) => count}`, and the growth is in `row.rates[field]`.
 */
export function useRates(live, rows, key, counters) {
  const before = useRef({ at: 0, counts: new Map() });
  const made = useMemo(() => {
    const { at, counts } = before.current;
    const now = performance.now();
    const seconds = (now - at) / 1000;
    const seen = new Map((rows ?? []).map((row) => [key(row), Object.entries(counters).map(([field, of]) => [field, of(row)])]));
    before.current = { at: now, counts: seen };
    return (rows ?? []).map((row) => {
      const old = Object.fromEntries(counts.get(key(row)) ?? []);
      const grown = seen.get(key(row)).map(([field, count]) => [field, old[field] === undefined ? null : Math.max(0, count - old[field]) / seconds]);
      return { ...row, rates: Object.fromEntries(grown) };
    });
  }, [rows]);
  const isNew = made.some((row) => Object.values(row.rates).includes(null));
  useEffect(() => {
    const timer = isNew ? setTimeout(live.reload, SECOND_LOOK) : 0;
    return () => clearTimeout(timer);
  }, [isNew]);
  return made;
}
