// Users, the matrix of their permissions in each vhost, and one user.

import { html } from "../../vendor/htm-preact.js";
import { DataTable } from "../../common/table.js";
import { addUser, changePermission, changeUser, deleteUser } from "../acts/users.js";
import { changeLimits } from "../acts/vhosts.js";
import { get, path } from "../api.js";
import { useLive } from "../live.js";
import { ExchangeLink, Facts, Heading, Loaded, Name, NameLink, Panel, Tag } from "../parts.js";
import { link } from "../router.js";
import { user as signedIn } from "../store.js";
import { Limits, patternColumns, Single } from "./vhosts.js";

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
  return parts.length > 0
    ? html`<${Single} kind="user" name=${parts[0]} key=${parts[0]} find=${loadOne} Buttons=${Acts} Body=${Details} />`
    : html`<${Users} />`;
}

function Users() {
  const live = useLive(load, "users", { every: 5000 });
  return html`<${Heading} title="Users"><button type="button" onClick=${() => addUser(live.reload)}>Add a user</button><//>
    <${Loaded} live=${live}>${(data) => html`<${Table} users=${data.users} reload=${live.reload} /><${Matrix} ...${data} reload=${live.reload} />`}<//>`;
}

function Tags({ row }) {
  return row.tags.length === 0
    ? html`<span class="note">none: uses AMQP, but not this page</span>`
    : html`<span class="marks">${row.tags.map((tag) => html`<${Tag} text=${tag} kind=${tag === "administrator" ? "warn" : ""} />`)}</span>`;
}

function Password({ row }) {
  return row.password_hash ? "set" : html`<span class="note">none: cannot log in by password</span>`;
}

function Acts({ row, reload, kind = "", gone = reload }) {
  return html`<button type="button" class=${kind} onClick=${() => changeUser(row, reload)}>Change …</button>
    <button type="button" class=${kind} onClick=${() => changeLimits("user", row.name, row.limits ?? {}, reload)}>Limits …</button>
    ${row.name !== signedIn.value?.name && html`<button type="button" class=${kind || "danger"} onClick=${() => deleteUser(row, gone)}>Delete …</button>`}`;
}

function Table({ users, reload }) {
  const columns = [
    { key: "name", title: "User", render: (row) => html`<${NameLink} text=${row.name} to=${link("users", [row.name])} />` },
    { key: "tags", title: "Tags", sort: false, render: (row) => html`<${Tags} row=${row} />` },
    { key: "password_hash", title: "Password", sort: false, render: (row) => html`<${Password} row=${row} />` },
    { key: "vhosts", title: "Vhosts", align: "right", render: (row) => row.vhosts === 0 ? html`<span class="warn-text" title="Has no access to any vhost">0</span>` : row.vhosts },
    { key: "limits", title: "Limits", sort: false, render: (row) => html`<${Limits} kind="user" of=${row.limits ?? {}} />` },
    { key: "act", title: "", sort: false, align: "right", render: (row) => html`<span class="actions"><${Acts} row=${row} reload=${reload} kind="quiet" /></span>` },
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

async function loadOne(name, signal) {
  const [row, vhosts, permissions, topics] = await Promise.all([
    get(path`users/${name}`, signal), get("vhosts?columns=name", signal), get(path`users/${name}/permissions`, signal), get(path`users/${name}/topic-permissions`, signal),
  ]);
  const rights = new Map(permissions.map((one) => [one.vhost, one]));
  return { row: { ...row, tags: tagsOf(row) }, vhosts: vhosts.map((one) => ({ name: one.name, right: rights.get(one.name) })), topics };
}

function Details({ row, vhosts, topics, reload }) {
  const { name: user } = row;
  const permissions = [
    { key: "name", title: "Vhost", render: (one) => html`<${NameLink} text=${one.name} to=${link("vhosts", [one.name])} />` },
    ...patternColumns(["configure", "write", "read"], (one) => one.right),
    { key: "act", title: "", sort: false, align: "right", render: (one) => html`<button type="button" class="quiet"
        onClick=${() => changePermission({ user, vhost: one.name, right: one.right }, reload)}>${one.right ? "Change …" : "Allow …"}</button>` },
  ];
  const ofTopics = [
    { key: "vhost", title: "Vhost", render: (one) => html`<${NameLink} text=${one.vhost} to=${link("vhosts", [one.vhost])} />` },
    { key: "exchange", title: "Exchange", render: (one) => html`<${ExchangeLink} vhost=${one.vhost} name=${one.exchange} />` },
    ...patternColumns(["write", "read"], (one) => one),
  ];
  return html`<${Panel} title="User" wide><${Facts} of=${[
      ["Tags", html`<${Tags} row=${row} />`],
      ["Password", html`<${Password} row=${row} />`],
      ["Limits", Object.keys(row.limits ?? {}).length > 0 ? html`<${Limits} kind="user" of=${row.limits} />` : "none of its own"],
    ]} /><//>
    <${Panel} title="Permissions" note="patterns of names that this user may configure, write to and read from" wide>
      <${DataTable} caption="Permissions" columns=${permissions} rows=${vhosts} empty="There is no vhost." /><//>
    ${topics.length > 0 && html`<${Panel} title="Topic permissions" note="patterns of routing keys; set them with leveret ctl set_topic_permissions" wide>
      <${DataTable} caption="Topic permissions" columns=${ofTopics} rows=${topics} empty="None" /><//>`}`;
}
