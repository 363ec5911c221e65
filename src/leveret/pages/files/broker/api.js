// Calls of the broker's HTTP API: paths, requests, and errors in words.
//
// Addresses are relative to the document, so that the page also works behind a proxy's prefix.

/** A header that a form of another site cannot send; the broker requires it with a session's cookie. */
const PAGE_HEADERS = { "X-Requested-With": "leveret", Accept: "application/json" };

/** The time (ms) after which a request counts as unanswered. */
const TIMEOUT = 30000;

/** The statuses of a proxy if the broker behind it does not answer. */
const BY_PROXIES = [502, 504];

/** A failed request; `status` is 0 if the broker did not answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const WORDS = {
  401: "You may not do this",
  403: "You may not do this",
  404: "There is no such object (any more)",
  405: "The broker does not know this request; it may be older than this page",
  413: "This is more than the broker accepts at once",
  429: "Too many requests; try again in a moment",
  503: "The broker cannot do this now",
};

/**
 * Return a path of the API; each value becomes one segment of it.
 *
 * A segment `.` or `..` is refused: a browser would resolve it and request another object.
 */
export function path(strings, ...values) {
  let found = strings[0];
  values.forEach((value, index) => {
    const text = String(value);
    if (text === "." || text === "..") {
      throw new ApiError(0, `A browser cannot name '${text}' in an address: use the command leveret`);
    }
    found += segment(text) + strings[index + 1];
  });
  return found;
}

/** Return text as one path segment. */
export function segment(text) {
  return encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text);
}

/** Return the query `?a=b&…` of an object; undefined, null and empty values are omitted. */
export function query(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") {
      found.set(name, String(value));
    }
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}

/** The listeners for refused logins, and for an answering or a silent broker. */
const listeners = { refused: [], answered: [], silent: [] };

/** Call `heard` on each `event` (refused, answered, silent). */
export function on(event, heard) {
  listeners[event].push(heard);
}

function tell(event) {
  listeners[event].forEach((heard) => heard());
}

/**
 * Send a request; return the answer's JSON, or null without any.
 *
 * Throws ApiError with the broker's reason.  An aborted request throws AbortError.
 */
export async function call(method, where, { body, headers, signal } = {}) {
  const { status, ok, text } = await send(method, where, { body, headers, signal });
  if (BY_PROXIES.includes(status)) {
    tell("silent");
    throw new ApiError(0, `The broker does not answer, according to the proxy before it (status ${status})`);
  }
  tell("answered");
  if (!ok) {
    if (status === 401 && where !== "whoami") {
      tell("refused");
    }
    throw refusal(status, text);
  }
  return parsed(text);
}

async function send(method, where, { body, headers, signal }) {
  const limit = AbortSignal.timeout(TIMEOUT);
  const options = {
    method,
    credentials: "same-origin",
    cache: "no-store",
    headers: { ...PAGE_HEADERS, ...headers },
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  };
  if (body !== undefined) {
    const isForm = body instanceof URLSearchParams;
    options.body = isForm ? body : JSON.stringify(body);
    if (!isForm) {
      options.headers["Content-Type"] = "application/json";
    }
  }
  // A request that `begin.js` has sent is not sent again.
  const begun = method === "GET" ? leveretBegun.get(where) : undefined;
  leveretBegun.delete(where);
  try {
    const answer = await (begun ?? fetch(`api/${where}`, options));
    // The broker may stop in the middle of its answer.
    return { status: answer.status, ok: answer.ok, text: await answer.text() };
  } catch (error) {
    if (signal?.aborted) {
      throw error;
    }
    tell("silent");
    throw new ApiError(0, "The broker does not answer");
  }
}

function parsed(text) {
  if (!text) {
    return null;
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError(502, "The answer is not JSON: a proxy may have replaced it");
  }
}

function refusal(status, text) {
  let reason = "";
  try {
    const found = JSON.parse(text);
    reason = typeof found.reason === "string" ? found.reason : "";
  } catch {
    reason = "";
  }
  const words = WORDS[status] ?? `The broker refused with status ${status}`;
  return new ApiError(status, reason && reason !== "Not Found" ? reason : `${words}.`);
}

export const get = (where, signal) => call("GET", where, { signal });
export const put = (where, body) => call("PUT", where, { body: body ?? {} });
export const post = (where, body) => call("POST", where, { body: body ?? {} });
export const remove = (where, headers) => call("DELETE", where, { headers });

/** Begin a session, which the browser keeps as a cookie that no script can read. */
export function signIn(username, password) {
  return call("POST", "login", { body: new URLSearchParams({ username, password }) });
}

/** End the session. */
export function signOut() {
  return call("POST", "logout", { body: {} });
}
