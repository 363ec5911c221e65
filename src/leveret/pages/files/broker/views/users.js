// Users, and the matrix of their permissions in each vhost.

import { html } from "../../vendor/htm-preact.js";
import { DataTable } from "../../common/table.js";
import { addUser, changePermission, changeUser, deleteUser } from "../acts/users.js";
import { changeLimits } from "../acts/vhosts.js";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { Empty, Heading, Loaded, Name, NameLink, Panel, Tag } from "../parts.js";
import { link } from "../router.js";
import { user as signedIn } from "../store.js";
import { Limits } from "./vhosts.js";

async function load(signal) {
  const [users, vhosts, permissions] = await Promise.all([
    get("users", signal),
    get("vhosts?columns=name", signal),
    get("permissions", signal),
  ]);
  const rights = new Map(permissions.map((one) => [JSON.stringify([one.user, one.vhost]), one]));
  const rows = users.map((row) => ({ ...row, tags: tagsOf(row), vhosts: vhosts.filter((one) => rights.has(JSON.stringify([row.name, one.name]))).length }));
  return { users: rows, vhosts: vhosts.map((one) => one.name), rights };
}

function tagsOf(row) {
  const tags = Array.isArray(row.tags) ? row.tags : String(row.tags ?? "").split(",");
  return tags.map((tag) => tag.trim()).filter(Boolean);
}

const MATRIX_USERS = 100;
const MATRIX_VHOSTS = 30;

export function View({ parts }) {
  const live = useLive(load, "users", { every: 5000 });
  const only = parts[0];
  return html`<${Heading} title="Users"><button type="button" onClick=${() => addUser(live.reload)}>Add a user</button><//>
    <${Loaded} live=${live}>${(data) => {
      const users = only === undefined ? data.users : data.users.filter((one) => one.name === only);
      return users.length === 0
        ? html`<${Empty} title="There is no such user"><p>See <a href=${link("users")}>all users</a>.</p><//>`
        : html`<${Table} users=${users} reload=${live.reload} /><${Matrix} ...${data} users=${users} reload=${live.reload} />`;
    }}<//>
    ${only !== undefined && html`<p><a href=${link("users")}>All users</a></p>`}`;
}

function Table({ users, reload }) {
  const columns = [
    { key: "name", title: "User", render: (row) => html`<${Name} text=${row.name} />` },
    { key: "tags", title: "Tags", sort: false, render: (row) => row.tags.length === 0
      ? html`<span class="note">none: uses AMQP, but not this page</span>`
      : html`<span class="marks">${row.tags.map((tag) => html`<${Tag} text=${tag} kind=${tag === "administrator" ? "warn" : ""} />`)}</span>` },
    { key: "password_hash", title: "Password", sort: false, render: (row) => row.password_hash
      ? "set" : html`<span class="note">none: cannot log in by password</span>` },
    { key: "vhosts", title: "Vhosts", align: "right", render: (row) => row.vhosts === 0 ? html`<span class="warn-text" title="Has no access to any vhost">0</span>` : row.vhosts },
    { key: "limits", title: "Limits", sort: false, render: (row) => html`<${Limits} kind="user" of=${row.limits ?? {}} />` },
    { key: "act", title: "", sort: false, align: "right", render: (row) => html`<span class="actions">
        <button type="button" class="quiet" onClick=${() => changeUser(row, reload)}>Change …</button>
        <button type="button" class="quiet" onClick=${() => changeLimits("user", row.name, row.limits ?? {}, reload)}>Limits …</button>
        ${row.name !== signedIn.value?.name && html`<button type="button" class="quiet" onClick=${() => deleteUser(row, reload)}>Delete …</button>`}</span>` },
  ];
  return html`<${DataTable} caption="Users" columns=${columns} rows=${users} empty="None" />`;
}

/** A user's permissions in a vhost, in one cell: c, w and r, each of which may be limited by a pattern. */
function Cell({ right }) {
  const kinds = [["configure", "C"], ["write", "W"], ["read", "R"]];
  const word = (pattern) => (pattern === "" ? "nothing" : pattern === ".*" ? "everything" : `names that match ${pattern}`);
  return html`<span class="rights">${kinds.map(([kind, letter]) => {
    const pattern = right?.[kind] ?? "";
    const how = pattern === "" ? "none" : pattern === ".*" ? "all" : "some";
    return html`<span class=${`right ${how}`} title=${`${kind}: ${word(pattern)}`}>${letter}</span>`;
  })}</span>`;
}

function Matrix({ users, vhosts, rights, reload }) {
  const columns = [
    { key: "name", title: "User", sort: false, render: (row) => html`<${Name} text=${row.name} />` },
    ...vhosts.slice(0, MATRIX_VHOSTS).map((vhost, index) => ({
      key: `vhost-${index}`, sort: false, align: "center", title: html`<${NameLink} text=${vhost} to=${link("vhosts", [vhost])} />`,
      render: (row) => {
        const right = rights.get(JSON.stringify([row.name, vhost]));
        return html`<button type="button" class="quiet cell" title=${`Permissions of ${row.name} in ${vhost}`}
          onClick=${() => changePermission({ user: row.name, vhost, right }, reload)}>${right ? html`<${Cell} right=${right} />` : html`<span class="note">–</span>`}</button>`;
      },
    })),
  ];
  const many = users.length > MATRIX_USERS || vhosts.length > MATRIX_VHOSTS;
  return html`<${Panel} title="Permissions" wide
    note=${`configure, write, read; filled: everything, framed: some names${many ? `; the first ${MATRIX_USERS} users and ${MATRIX_VHOSTS} vhosts` : ""}`}>
    <${DataTable} caption="Permissions" columns=${columns} rows=${users.slice(0, MATRIX_USERS)} empty="None" /><//>`;
}
