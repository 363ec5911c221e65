// The frame around each view: the broker and its health, navigation, search, vhost, theme, user, and the banner.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { legible, moment } from "../common/format.js";
import { healthOf } from "./alarms.js";
import { get, signOut } from "./api.js";
import { Asking, say } from "./ask.js";
import { KeysHelp, helping, searching, seenViews, useKeys } from "./keys.js";
import { useLive } from "./live.js";
import { change, chooseVhost, link } from "./router.js";
import { Search } from "./search.js";
import { broker, chosenVhost, monitors, node, sessionEnded, silentSince, user, useStore, vhostNames } from "./store.js";

/** The frame; `shown` is the name of the view in it. */
export function Shell({ shown, children }) {
  const [open, setOpen] = useState(false);
  const old = useStore(silentSince) ? " old" : "";
  useKeys();
  useEffect(() => setOpen(false), [shown]);
  return html`<a class="skip" href="#content" onClick=${skip}>To the content</a>
    <header class=${`bar${old}`}>
      <button type="button" class="menu" aria-expanded=${open} aria-controls="views"
        onClick=${() => setOpen(!open)} aria-label="Views">☰</button>
      <a class="brand" href=${link("overview")}>Leveret</a>
      <${Broker} />
      <button type="button" class="find" onClick=${() => searching.set(true)}>
        <span>Find<span class="more"> anything</span></span> <kbd>/</kbd>
      </button>
      <${VhostChoice} /><${Theme} /><${Account} />
    </header>
    <nav id="views" class=${`views${open ? " open" : ""}${old}`} aria-label="Views">
      ${seenViews().map((one) => html`<a
        href=${link(one.view)} aria-current=${one.view === shown ? "page" : undefined}
        title=${`g ${one.letter}`} onClick=${() => setOpen(false)}>${one.title}</a>`)}
      <button type="button" class="quiet" onClick=${() => helping.set(true)}>Keys <kbd>?</kbd></button>
    </nav>
    <${Content}>${children}<//>
    <${Search} /><${KeysHelp} /><${Asking} />`;
}

const ABOUT = "overview?columns=cluster_name,product_name,product_version";

/** The name and the version of the broker, and its health for users that may see it. */
function Broker() {
  const about = useStore(broker);
  const seen = useStore(node);
  const since = useStore(silentSince);
  useLive(async (signal) => broker.set(await get(ABOUT, signal)), "broker", { every: 60000 });
  useLive(async (signal) => node.set(monitors() ? (await get("nodes", signal))[0] : null), "health", { every: 5000 });
  const health = since ? "no answer" : seen && healthOf(seen);
  return html`<div class="broker">
    ${about && html`<bdi class="broker-name" title=${about.cluster_name}>${legible(about.cluster_name)}</bdi>${" "}<span class="note" title=${`${about.product_name} ${about.product_version}`}>${about.product_version}</span>`}
    ${health && html`<a class=${`health ${health === "all well" ? "good" : "bad"}`} href=${link("overview")}>${health}</a>`}
  </div>`;
}

/** The view, marked as old while the broker does not answer. */
function Content({ children }) {
  const since = useStore(silentSince);
  return html`<main id="content" tabindex="-1" class=${since ? "old" : ""}><${Banner} since=${since} />${children}</main>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}

/** The note that the broker does not answer, and that requests are repeated. */
function Banner({ since }) {
  if (!since) {
    return null;
  }
  return html`<div class="banner" role="alert">
    <strong>The broker does not answer</strong> since ${moment(since).slice(11)}. What is shown, in grey, is from before;
    the page tries again by itself.
  </div>`;
}

function VhostChoice() {
  const chosen = useStore(chosenVhost);
  const load = async (signal) => ({ chosen, vhosts: await get("vhosts?columns=name", signal) });
  const { data } = useLive(load, `vhosts ${chosen}`, { every: 10000, keep: true });
  const names = (data?.vhosts ?? []).map((one) => one.name);
  useEffect(() => vhostNames.set(names), [data]);
  // An answer from before the choice does not count: the vhost may be new.
  const isGone = data?.chosen === chosen && chosen !== "" && !names.includes(chosen);
  useEffect(() => {
    if (isGone) {
      change({ vhost: undefined });
      say(`There is no vhost '${chosen}' for you (any more): all vhosts are shown.`);
    }
  }, [isGone]);
  if (names.length < 2) {
    return names.length === 1 && html`<span class="vhost">vhost <bdi>${legible(names[0])}</bdi></span>`;
  }
  return html`<select class="vhost" aria-label="Vhost" value=${chosen}
    onChange=${(event) => chooseVhost(event.currentTarget.value)}>
    <option value="">all vhosts</option>
    ${names.map((name) => html`<option value=${name} selected=${name === chosen}>${legible(name)}</option>`)}
  </select>`;
}

/** The themes, each with the next one. */
const THEMES = {
  "": { title: "as the system", sign: "◐", next: "light" },
  light: { title: "light", sign: "○", next: "dark" },
  dark: { title: "dark", sign: "●", next: "" },
};

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const now = THEMES[theme] ?? THEMES[""];
  const choose = () => {
    const chosen = now.next;
    if (chosen) {
      document.documentElement.dataset.theme = chosen;
    } else {
      delete document.documentElement.dataset.theme;
    }
    setTheme(chosen);
    try {
      localStorage.setItem("leveret-theme", chosen);
    } catch {
      // A browser without storage keeps the choice for this visit.
    }
  };
  const title = `Colours: ${now.title}`;
  return html`<button type="button" class="quiet theme" aria-label=${title} title=${title} onClick=${choose}>${now.sign}</button>`;
}

function Account() {
  const known = useStore(user);
  const leave = async () => {
    try {
      await signOut();
    } catch (error) {
      if (error.status !== 401) {
        // The session continues, and the next user must not be told otherwise.
        say(`You are still signed in: ${error.message}`);
        return;
      }
    }
    sessionEnded.set(false);
    user.set(null);
  };
  return html`<span class="account" title=${`Signed in as ${legible(known.name)}`}>
    <bdi>${legible(known.name)}</bdi>
    <button type="button" class="quiet" onClick=${leave}>Sign out</button>
  </span>`;
}
