// The sign-in form; the session is a cookie that no script can read.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { get, signIn } from "./api.js";
import { Failure } from "./parts.js";
import { sessionEnded, user, useStore } from "./store.js";

/** Return the signed-in user; null if nobody is signed in. */
export async function identify() {
  const found = await get("whoami");
  return { ...found, tags: [].concat(found.tags ?? []) };
}

/** The form. */
export function Login() {
  const [state, setState] = useState({ busy: false, error: null });
  const hasEnded = useStore(sessionEnded);
  const name = useRef(null);
  useEffect(() => name.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    setState({ busy: true, error: null });
    try {
      await signIn(given.get("username"), given.get("password"));
      const known = await identify();
      sessionEnded.set(false);
      user.set(known);
    } catch (error) {
      const refused = error.status === 401 || error.status === 403;
      const words = "The name or the password is wrong, or this user has no tag for this page.";
      setState({ busy: false, error: refused ? { message: words } : error });
    }
  };
  return html`<main class="login">
    <form onSubmit=${submit} aria-labelledby="login-title">
      <h1 id="login-title">Leveret</h1>
      ${hasEnded && html`<p class="hint" role="status">Your session has ended. Sign in again to continue where you were.</p>`}
      <p class="note">Sign in with a user of the broker that has the tag management, policymaker,
        monitoring or administrator.</p>
      <div class="field"><label for="username">Name</label>
        <input id="username" name="username" ref=${name} autocomplete="username" required /></div>
      <div class="field"><label for="password">Password</label>
        <input id="password" name="password" type="password" autocomplete="current-password" /></div>
      ${state.error && html`<${Failure} error=${state.error} />`}
      <button class="main" disabled=${state.busy}>${state.busy ? "Signing in …" : "Sign in"}</button>
    </form>
  </main>`;
}
