// Policies: their settings, the queues and exchanges that they match, creation and deletion.

import { html, useEffect, useState } from "../../vendor/htm-preact.js";
import { counted, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { deletePolicy, editPolicy } from "../acts/policies.js";
import { get, path, query } from "../api.js";
import { useShown } from "../list.js";
import { useLive } from "../live.js";
import { Arguments, Empty, ExchangeLink, Failure, Heading, Loaded, Name, NameLink, Panel, QueueLink, Tag } from "../parts.js";
import { link } from "../router.js";
import { chosenVhost, isAdministrator, useStore } from "../store.js";

async function load(vhost, signal) {
  const of = vhost ? path`/${vhost}` : "";
  const [policies, operators] = await Promise.all([
    get(`policies${of}`, signal),
    isAdministrator() ? get(`operator-policies${of}`, signal) : [],
  ]);
  return [...policies, ...operators.map((row) => ({ ...row, operators: true }))];
}

export function View({ parts, options }) {
  const vhost = useStore(chosenVhost);
  const live = useLive((signal) => load(vhost, signal), `policies ${vhost}`, { every: 5000, keep: true });
  const add = () => editPolicy({ operators: false }, live.reload);
  const addOperators = () => editPolicy({ operators: true }, live.reload);
  return html`<${Heading} title="Policies">
      <button type="button" onClick=${add}>Add a policy</button>
      ${isAdministrator() && html`<button type="button" onClick=${addOperators}>Add an operator policy</button>`}
    <//>
    <${Loaded} live=${live}>${(rows) => rows.length === 0
      ? html`<${Empty} title="There is no policy yet">
          <p>A policy sets arguments (a limit, a dead letter exchange, a time to live) for all queues or exchanges whose names
          fit a pattern, and can be changed while they are used.</p>
          <p><button type="button" onClick=${add}>Add a policy</button></p><//>`
      : html`<${Table} rows=${rows} reload=${live.reload} />${chosen(rows, parts, options)}`}<//>`;
}

function chosen(rows, [vhost, name], options) {
  const operators = options.operators === "true";
  const row = rows.find((one) => one.vhost === vhost && one.name === name && Boolean(one.operators) === operators);
  if (name === undefined) {
    return html`<p class="note">Choose a policy to see its matches.</p>`;
  }
  return row ? html`<${Matched} row=${row} key=${JSON.stringify([row, operators])} />` : null;
}

function Table({ rows, reload }) {
  const columns = [
    { key: "name", title: "Policy", render: (row) => html`<${NameLink} text=${row.name}
        to=${link("policies", [row.vhost, row.name], { operators: row.operators })} />` },
    { key: "vhost", title: "Vhost", render: (row) => html`<${Name} text=${row.vhost} />` },
    { key: "operators", title: "Kind", render: (row) => (row.operators ? html`<${Tag} text="operator" />` : "user") },
    { key: "pattern", title: "Pattern", render: (row) => html`<code><${Name} text=${row.pattern} /></code>` },
    { key: "apply-to", title: "Applies to" },
    { key: "priority", title: "Priority", align: "right", render: (row) => number(row.priority) },
    { key: "definition", title: "Sets", sort: false, render: (row) => html`<${Arguments} of=${row.definition} />` },
    { key: "act", title: "", sort: false, align: "right", render: (row) => html`<span class="actions">
        <button type="button" class="quiet" onClick=${() => editPolicy(row, reload)}>Change …</button>
        <button type="button" class="quiet" onClick=${() => deletePolicy(row, reload)}>Delete …</button></span>` },
  ];
  return html`<${DataTable} caption="Policies" columns=${useShown(columns)} rows=${rows} empty="None" />`;
}

const LOOKED_AT = 500;

/** Return the matches of a pattern, and those that the policy is in effect for. */
async function matches(row) {
  const asked = query({ page: 1, page_size: LOOKED_AT, name: row.pattern, use_regex: true, columns: "vhost,name,type,policy,operator_policy" });
  const toQueues = row["apply-to"] !== "exchanges";
  const toExchanges = row["apply-to"] === "all" || row["apply-to"] === "exchanges";
  const [queues, exchanges] = await Promise.all([
    toQueues ? get(path`queues/${row.vhost}` + asked) : { items: [], filtered_count: 0 },
    toExchanges && !row.operators ? get(path`exchanges/${row.vhost}` + asked) : { items: [], filtered_count: 0 },
  ]);
  return { queues: queues.items.filter((one) => fitsType(row["apply-to"], one.type)), exchanges: exchanges.items, cut: queues.filtered_count > LOOKED_AT };
}

function fitsType(applies, type) {
  const types = { classic_queues: "classic", quorum_queues: "quorum", streams: "stream" };
  return types[applies] === undefined || types[applies] === type;
}

function Matched({ row }) {
  const [state, setState] = useState({});
  useEffect(() => {
    let wanted = true;
    matches(row).then((found) => wanted && setState({ found }), (error) => wanted && setState({ error }));
    return () => {
      wanted = false;
    };
  }, []);
  const title = html`What “<${Name} text=${row.name} />” matches`;
  if (state.error) {
    return html`<${Panel} title=${title} wide><${Failure} error=${state.error} /><//>`;
  }
  if (!state.found) {
    return html`<${Panel} title=${title} wide><p class="note loading">Loading …</p><//>`;
  }
  const { queues, exchanges, cut } = state.found;
  const inEffect = (one) => (row.operators ? one.operator_policy : one.policy) === row.name;
  const rows = [
    ...queues.map((one) => ({ ...one, kind: one.type === "stream" ? "stream" : "queue" })),
    ...exchanges.map((one) => ({ ...one, kind: "exchange" })),
  ];
  const columns = [
    { key: "name", title: "Name", render: (one) => one.kind === "exchange"
      ? html`<${ExchangeLink} vhost=${one.vhost} name=${one.name} />` : html`<${QueueLink} vhost=${one.vhost} name=${one.name} />` },
    { key: "kind", title: "Kind" },
    { key: "effect", title: "In effect", sort: false, render: (one) => inEffect(one)
      ? html`<${Tag} text="in effect" kind="good" />`
      : html`<span class="note">no: <${Name} text=${(row.operators ? one.operator_policy : one.policy) || "none"} /> is</span>` },
  ];
  const effective = rows.filter(inEffect).length;
  const note = `${counted(rows.length, "match", "matches")}${cut ? ` of the first ${number(LOOKED_AT)}` : ""}, in effect for ${number(effective)}`;
  return html`<${Panel} title=${title} note=${note} wide>
    <${DataTable} caption="Matched" columns=${columns} rows=${rows}
      empty="Its pattern matches nothing: check the pattern and what it applies to." /><//>`;
}
