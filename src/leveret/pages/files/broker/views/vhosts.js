// Vhosts: their messages, limits and permissions; creating, changing and deleting them.

import { html } from "../../vendor/htm-preact.js";
import { legible, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { changePermission } from "../acts/users.js";
import { changeLimits, deleteVhost, editVhost, limitsInWords } from "../acts/vhosts.js";
import { get, path } from "../api.js";
import { useLive } from "../live.js";
import { Arguments, Empty, Facts, Figure, Heading, Loaded, Name, NameLink, Panel, Tag } from "../parts.js";
import { link } from "../router.js";

async function load(signal) {
  const [vhosts, limits, permissions] = await Promise.all([get("vhosts", signal), get("vhost-limits", signal), get("permissions", signal)]);
  const limitsOf = new Map(limits.map((one) => [one.vhost, one.value]));
  const users = new Map();
  permissions.forEach(({ vhost }) => users.set(vhost, (users.get(vhost) ?? 0) + 1));
  return vhosts.map((row) => ({ ...row, limits: limitsOf.get(row.name) ?? {}, users: users.get(row.name) ?? 0 }));
}

export function View({ parts }) {
  return parts.length > 0
    ? html`<${Single} kind="vhost" name=${parts[0]} key=${parts[0]} find=${loadOne} Buttons=${Acts} Body=${Details} />`
    : html`<${Vhosts} />`;
}

function Tags({ of }) {
  return html`<span class="marks">${of.map((tag) => html`<${Tag} text=${tag} />`)}</span>`;
}

/** Limits as chips. */
export function Limits({ kind, of }) {
  return html`<${Arguments} of=${limitsInWords(kind, of)} />`;
}

const columns = [
  { key: "name", title: "Vhost", render: (row) => html`<${NameLink} text=${row.name} to=${link("vhosts", [row.name])} />` },
  { key: "description", title: "Description", minor: true },
  { key: "tags", title: "Tags", sort: false, minor: true, render: (row) => html`<${Tags} of=${row.tags} />` },
  { key: "messages_ready", title: "Ready", align: "right" },
  { key: "messages_unacknowledged", title: "Unacked", align: "right" },
  { key: "users", title: "Users", align: "right" },
  { key: "limits", title: "Limits", sort: false, render: (row) => html`<${Limits} kind="vhost" of=${row.limits} />` },
  { key: "protected_from_deletion", title: "Protected", minor: true, render: (row) => (row.protected_from_deletion ? html`<${Tag} text="protected" kind="good" />` : "no") },
];

function Vhosts() {
  const live = useLive(load, "vhosts", { every: 5000 });
  const acts = { key: "act", title: "", sort: false, align: "right", render: (row) => html`<span class="actions"><${Acts} row=${row} reload=${live.reload} kind="quiet" /></span>` };
  return html`<${Heading} title="Vhosts"><button type="button" onClick=${() => editVhost({}, live.reload)}>Add a vhost</button><//>
    <${Loaded} live=${live}>${(rows) => html`<${DataTable} caption="Vhosts" columns=${[...columns, acts]} rows=${rows} empty="None" />`}<//>`;
}

function Acts({ row, reload, kind = "", gone = reload }) {
  return html`<button type="button" class=${kind} onClick=${() => editVhost(row, reload)}>Change …</button>
    <button type="button" class=${kind} onClick=${() => changeLimits("vhost", row.name, row.limits, reload)}>Limits …</button>
    ${!row.protected_from_deletion && html`<button type="button" class=${kind || "danger"} onClick=${() => deleteVhost(row, gone)}>Delete …</button>`}`;
}

async function loadOne(name, signal) {
  const [row, limits, permissions, users] = await Promise.all([
    get(path`vhosts/${name}`, signal), get(path`vhost-limits/${name}`, signal), get(path`vhosts/${name}/permissions`, signal), get("users?columns=name", signal),
  ]);
  const rights = new Map(permissions.map((one) => [one.user, one]));
  return { row: { ...row, limits: limits[0]?.value ?? {} }, users: users.map((one) => ({ name: one.name, right: rights.get(one.name) })) };
}

/** One vhost or user (`kind`); `find(name, signal)` returns the properties of `Body`, with the `row` of the `Buttons`. */
export function Single({ kind, name, find, Buttons, Body }) {
  const live = useLive((signal) => find(name, signal), `${kind} ${name}`, { every: 5000 });
  const all = `${kind}s`;
  const title = `${kind[0].toUpperCase()}${kind.slice(1)}`;
  const trail = [{ title: `${title}s`, to: link(all) }];
  if (live.error?.status === 404) {
    return html`<${Heading} title=${name} kind=${title} trail=${trail} />
      <${Empty} title=${`There is no such ${kind} (any more)`}><p>See <a href=${link(all)}>all ${all}</a>.</p><//>`;
  }
  return html`<${Heading} title=${name} kind=${title} trail=${trail}>
      ${live.data && html`<${Buttons} row=${live.data.row} reload=${live.reload} gone=${() => (location.hash = link(all))} />`}
    <//>
    <${Loaded} live=${live}>${(data) => html`<${Body} ...${data} reload=${live.reload} />`}<//>`;
}

/** Return the columns of permissions: a pattern for each kind, or a dash without permissions (`of(row)`). */
export function patternColumns(kinds, of) {
  return kinds.map((kind) => ({
    key: kind, title: `${kind[0].toUpperCase()}${kind.slice(1)}`, sort: false,
    render: (row) => (of(row) ? html`<code><${Name} text=${of(row)[kind]} empty="nothing" /></code>` : html`<span class="note">–</span>`),
  }));
}

function Details({ row, users, reload }) {
  const { name } = row;
  const permissions = [
    { key: "name", title: "User", render: (one) => html`<${NameLink} text=${one.name} to=${link("users", [one.name])} />` },
    ...patternColumns(["configure", "write", "read"], (one) => one.right),
    { key: "act", title: "", sort: false, align: "right", render: (one) => html`<button type="button" class="quiet"
        onClick=${() => changePermission({ user: one.name, vhost: name, right: one.right }, reload)}>${one.right ? "Change …" : "Allow …"}</button>` },
  ];
  return html`<div class="figures few">
      <${Figure} name="Ready" value=${number(row.messages_ready)} note="messages" to=${link("queues", [], { vhost: name })} />
      <${Figure} name="Unacked" value=${number(row.messages_unacknowledged)} note="messages" />
    </div>
    <${Panel} title="Vhost" wide><${Facts} of=${[
      ["Description", row.description && legible(row.description)],
      ["Tags", row.tags.length > 0 && html`<${Tags} of=${row.tags} />`],
      ["Default queue type", row.default_queue_type ?? "classic"],
      ["Protected from deletion", row.protected_from_deletion ? "yes" : "no"],
      ["Limits", Object.keys(row.limits).length > 0 ? html`<${Limits} kind="vhost" of=${row.limits} />` : "none"],
    ]} /><//>
    <${Panel} title="Permissions" note="patterns of names that a user may configure, write to and read from" wide>
      <${DataTable} caption="Permissions" columns=${permissions} rows=${users} empty="There is no user." /><//>`;
}
