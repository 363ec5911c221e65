// Exchanges: the list, and one exchange with the topology behind it.

import { html, useMemo } from "../../vendor/htm-preact.js";
import { bytes, legible, moment, number, rate } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { deleteExchange, unbind } from "../acts/bindings.js";
import { bind, declareExchange } from "../acts/declare.js";
import { cancelAllDelayed, cancelDelayed } from "../acts/delayed.js";
import { get, path, query } from "../api.js";
import { Features } from "../features.js";
import { cutNote, Filter, ListTable, useList } from "../list.js";
import { useLive, useRates } from "../live.js";
import { Arguments, Empty, ExchangeLink, exchangePart, Facts, Heading, Loaded, Name, Panel, QueueLink, Tabs } from "../parts.js";
import { link } from "../router.js";
import { Topology } from "../topology.js";
import { Publish } from "./messages.js";

export function View({ parts, options }) {
  return parts.length >= 2
    ? html`<${Exchange} vhost=${parts[0]} part=${parts[1]} options=${options} key=${parts.join("\n")} />`
    : html`<${Exchanges} options=${options} />`;
}

const columns = [
  { key: "name", title: "Exchange", sort: true, render: (row) => html`<${ExchangeLink} vhost=${row.vhost} name=${row.name} />` },
  { key: "vhost", title: "Vhost", sort: true, render: (row) => html`<${Name} text=${row.vhost} />` },
  { key: "type", title: "Type", sort: true },
  { key: "features", title: "Features", sort: false, render: (row) => html`<${Features} row=${row} />` },
  { key: "rate", title: "Message rate in", align: "right", sort: false, render: (row) => rate(row.rates.published) },
  { key: "message_stats.publish_in", title: "Published", align: "right", sort: true, render: (row) => number(publishedIn(row)) },
];

const publishedIn = (row) => row.message_stats?.publish_in ?? 0;
const COUNTERS = { published: publishedIn };

function Exchanges({ options }) {
  const live = useList("exchanges", options);
  const rows = useRates(live, live.data?.items, (row) => `${row.vhost}\n${row.name}`, COUNTERS);
  const declare = () => declareExchange(live.reload);
  const empty = html`<${Empty} title="There is no exchange here"><p>Choose another vhost, or declare one.</p><//>`;
  return html`<${Heading} title="Exchanges">
      <${Filter} options=${options} label="Filter by name" />
      <button type="button" onClick=${declare}>Declare an exchange</button>
    <//>
    <${ListTable} live=${live} rows=${rows} columns=${columns} options=${options} caption="Exchanges" empty=${empty} />`;
}

function Exchange({ vhost, part, options }) {
  const live = useLive((signal) => get(path`exchanges/${vhost}/${part}`, signal), `exchange ${vhost}\n${part}`, { every: 5000 });
  const name = part === "amq.default" ? "" : part;
  const [row] = useRates(live, useMemo(() => live.data && [live.data], [live.data]), () => "", COUNTERS);
  const isDelayed = row?.type === "x-delayed-message";
  const tabs = [["reach", "Routing"], ["bindings", "Bindings"], ["publish", "Publish"]];
  tabs.push(...(isDelayed ? [["delayed", "Scheduled"]] : []));
  const tab = tabs.some(([key]) => key === options.tab) ? options.tab : "reach";
  const isOwn = name !== "" && !name.startsWith("amq.");
  if (live.error?.status === 404) {
    return html`<${Heading} title=${name} kind="Exchange" trail=${[{ title: "Exchanges", to: link("exchanges") }]} />
      <${Empty} title="There is no such exchange (any more)">
        <p>It was deleted, or never there. See the <a href=${link("exchanges")}>exchanges</a>.</p><//>`;
  }
  return html`<${Heading} title=${name || "(default exchange)"} kind=${row ? `Exchange of type ${row.type}` : "Exchange"}
      trail=${[{ title: "Exchanges", to: link("exchanges") }, { title: `vhost ${legible(vhost)}`, to: link("exchanges", [], { vhost }) }]}>
      ${row && name !== "" && html`<button type="button" onClick=${() => bind({ vhost, from: name, done: live.reload })}>Bind …</button>`}
      ${row && isOwn && html`<button type="button" class="danger" onClick=${() => deleteExchange(row)}>Delete …</button>`}
    <//>
    <${Tabs} view="exchanges" parts=${[vhost, part]} tabs=${tabs} shown=${tab} />
    <${Loaded} live=${live}>${() => html`<${Part} tab=${tab} row=${row} name=${name} />`}<//>`;
}

function Part({ tab, row, name }) {
  const { vhost } = row;
  if (tab === "bindings") {
    return html`<${Bindings} vhost=${vhost} name=${name} />`;
  }
  if (tab === "publish") {
    return html`<${Publish} vhost=${vhost} exchange=${exchangePart(name)} title="Publish" note="the answer tells whether a queue took it" />`;
  }
  if (tab === "delayed") {
    return html`<${Delayed} vhost=${vhost} name=${name} />`;
  }
  const facts = [
    ["Published", html`${rate(row.rates.published)} <span class="note">${number(publishedIn(row))} in all</span>`],
    ["Durable", row.durable ? undefined : "no: it does not survive a restart"],
    ["Features", html`<${Features} row=${row} />`],
    ["Alternate exchange", row.alternate_exchange && html`<${ExchangeLink} vhost=${vhost} name=${row.alternate_exchange} />`],
    ["Arguments", Object.keys(row.arguments ?? {}).length > 0 && html`<${Arguments} of=${row.arguments} />`],
  ];
  return html`<${Facts} of=${facts} inline />${name === ""
    ? html`<${Empty} title="The default exchange leads to every queue"><p>The key of a message is the name of the queue that gets it.</p><//>`
    : html`<${Topology} vhost=${vhost} start=${name} />`}`;
}

function Bindings({ vhost, name }) {
  const where = path`exchanges/${vhost}/${exchangePart(name)}/bindings`;
  const ends = useLive(
    async (signal) => {
      const page = query({ page: 1, page_size: 500 });
      const [from, to] = await Promise.all([get(`${where}/source${page}`, signal), get(`${where}/destination${page}`, signal)]);
      return { from, to };
    },
    `exchange bindings ${vhost}\n${name}`,
    { every: 5000 },
  );
  const act = { key: "act", title: "", sort: false, align: "right", render: (row) => row.source !== "" && html`<button type="button"
    class="quiet" onClick=${() => unbind(row, ends.reload)}>Unbind …</button>` };
  const key = { key: "routing_key", title: "Key", render: (row) => html`<${Name} text=${row.routing_key} empty="(none)" />` };
  const args = { key: "arguments", title: "Arguments", sort: false, render: (row) => html`<${Arguments} of=${row.arguments} />` };
  const to = { key: "destination", title: "To", render: (row) => row.destination_type === "queue"
    ? html`<${QueueLink} vhost=${vhost} name=${row.destination} />` : html`<${ExchangeLink} vhost=${vhost} name=${row.destination} />` };
  const kind = { key: "destination_type", title: "Kind" };
  const from = { key: "source", title: "From", render: (row) => html`<${ExchangeLink} vhost=${vhost} name=${row.source} />` };
  return html`<${Loaded} live=${ends}>${(found) => html`
    <${Panel} title="From this exchange" note=${cutNote(found.from)} wide>
      <${DataTable} caption="From this exchange" columns=${[key, kind, to, args, act]} rows=${found.from.items}
        empty="Nothing is bound to it." /><//>
    ${found.to.items.length > 0 && html`<${Panel} title="To this exchange" wide>
      <${DataTable} caption="To this exchange" columns=${[from, key, args, act]} rows=${found.to.items} empty="None" /><//>`}`}<//>`;
}

function Delayed({ vhost, name }) {
  const where = path`exchanges/${vhost}/${name}/delayed` + query({ page: 1, page_size: 100, sort: "due" });
  const live = useLive((signal) => get(where, signal), `delayed ${vhost}\n${name}`);
  const columns = [
    { key: "due", title: "Due", render: (row) => moment(row.due) },
    { key: "routing_key", title: "Key", render: (row) => html`<${Name} text=${row.routing_key} empty="(none)" />` },
    { key: "timestamp", title: "Taken", render: (row) => moment(row.timestamp) },
    { key: "bytes", title: "Size", align: "right", render: (row) => bytes(row.bytes) },
    { key: "act", title: "", sort: false, align: "right", render: (row) => html`<button type="button" class="quiet"
        onClick=${() => cancelDelayed({ vhost, name, row, done: live.reload })}>Cancel …</button>` },
  ];
  return html`<${Loaded} live=${live}>${(page) => page.total_count === 0
    ? html`<${Empty} title="Nothing is scheduled"><p>Publish to this exchange with the header <code>x-delay</code> (milliseconds).</p><//>`
    : html`<${Panel} title="Scheduled messages" note=${cutNote(page)} wide
        actions=${html`<button type="button" class="danger" onClick=${() => cancelAllDelayed({ vhost, name, count: page.total_count, done: live.reload })}>Cancel all …</button>`}>
        <${DataTable} caption="Scheduled messages" columns=${columns} rows=${page.items} empty="None" /><//>`}<//>`;
}
