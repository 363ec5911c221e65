// The broker's page: a signed-in user sees the view in the address.

import { html, render, useEffect, useState } from "../vendor/htm-preact.js";
import { legible } from "../common/format.js";
import { on } from "./api.js";
import { dismiss } from "./ask.js";
import { helping, searching } from "./keys.js";
import { identify, Login } from "./login.js";
import { Empty, Failure, Heading } from "./parts.js";
import { change, link, parse, useRoute } from "./router.js";
import { Shell } from "./shell.js";
import { broker, node, sessionEnded, silentSince, user, useStore } from "./store.js";

/** Each view is loaded on first use; its module exports `View({parts, options})`. */
const LOADERS = {
  overview: () => import("./views/overview.js"),
  queues: () => import("./views/queues.js"),
  streams: () => import("./views/streams.js"),
  exchanges: () => import("./views/exchanges.js"),
  connections: () => import("./views/connections.js"),
  channels: () => import("./views/channels.js"),
  policies: () => import("./views/policies.js"),
  vhosts: () => import("./views/vhosts.js"),
  users: () => import("./views/users.js"),
  definitions: () => import("./views/definitions.js"),
  log: () => import("./views/log.js"),
};

const RETRY = 2000;

const NOT_LOADED = { message: "This part of the page could not be loaded: the broker may be down, and then it is loaded when it is back; or it may have another version than the page." };

/** Reload the page as soon as a broker that did not answer does so again; otherwise do nothing. */
function reloadWhenBack() {
  const heard = (since) => since === 0 && location.reload();
  silentSince.heard.add(heard);
  // Only an answer shows whether the broker is back; the frame keeps sending requests.
  identify().catch(() => {});
  return () => silentSince.heard.delete(heard);
}

/** The views that are loaded, by name. */
const views = new Map();

async function loadView(name) {
  const load = Object.hasOwn(LOADERS, name) ? LOADERS[name] : () => ({ View: Unknown });
  views.set(name, (await load()).View);
}

/** Return the view, once it is loaded, or the error. */
function useView(name) {
  const [failed, setFailed] = useState(null);
  const [, setLoaded] = useState(name);
  useEffect(() => {
    let wanted = true;
    loadView(name).then(
      () => wanted && setLoaded(name),
      () => wanted && setFailed(name),
    );
    return () => {
      wanted = false;
    };
  }, [name]);
  // A browser remembers a failed module load: only a new page loads it again.
  const error = failed === name ? NOT_LOADED : undefined;
  useEffect(() => (error ? reloadWhenBack() : undefined), [error]);
  return { View: views.get(name), error };
}

function Unknown() {
  return html`<${Heading} title="Nothing here" />
    <${Empty} title="There is no such view">
    <p>The address may be mistyped. Begin at the <a href=${link("overview")}>overview</a>.</p>
  <//>`;
}

/** Find out who is signed in.  Throws ApiError if the broker does not tell. */
async function findUser() {
  try {
    user.set(await identify());
  } catch (problem) {
    if (problem.status !== 401 && problem.status !== 403) {
      throw problem;
    }
    user.set(null);
  }
}

function Page() {
  const known = useStore(user);
  const [failed, setFailed] = useState(null);
  const route = useRoute();
  const { View, error } = useView(route.view);
  useEffect(() => {
    if (known !== undefined) {
      return undefined;
    }
    let timer = 0;
    const look = () =>
      findUser().catch((problem) => {
        setFailed(problem);
        timer = setTimeout(look, RETRY);
      });
    look();
    return () => clearTimeout(timer);
  }, [known]);
  const about = useStore(broker);
  useEffect(() => {
    const shown = route.parts[route.parts.length - 1] ?? route.view;
    document.title = `${legible(shown)} · ${about ? legible(about.cluster_name) : "Leveret"}`;
  }, [route, about]);
  if (known === undefined) {
    return failed
      ? html`<main class="login"><${Failure} error=${failed} /></main>`
      : html`<p class="starting">Asking the broker …</p>`;
  }
  if (known === null) {
    return html`<${Login} />`;
  }
  return html`<${Shell} shown=${route.view}>
    ${error && html`<${Failure} error=${error} retry=${() => location.reload()} />`}
    ${View && html`<${View} parts=${route.parts} options=${route.options} />`}
  <//>`;
}

// A refusal may mean a missing permission, or the end of the session: check which.
on("refused", () => {
  if (user.value) {
    identify().catch((problem) => {
      if (problem.status === 401) {
        sessionEnded.set(true);
        user.set(null);
      }
    });
  }
});

let lastName = "";

// The next user must not see the open views and choices of the previous one.
user.heard.add((known) => {
  if (known === null) {
    dismiss();
    searching.set(false);
    helping.set(false);
    broker.set(null);
    node.set(null);
  } else {
    if (lastName !== "" && known.name !== lastName) {
      change({ vhost: undefined });
    }
    lastName = known.name;
  }
});

// The page is drawn once, with its first view; `Page` repeats what failed.
await Promise.allSettled([findUser(), loadView(parse(location.hash).view)]);
const place = document.getElementById("app");
place.replaceChildren();
render(html`<${Page} />`, place);
