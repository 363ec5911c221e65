// Channels: their users, prefetch, and unacked messages; and one channel with its consumers.

import { html } from "../../vendor/htm-preact.js";
import { counted, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { get, path } from "../api.js";
import { Filter, ListTable, useList } from "../list.js";
import { useLive } from "../live.js";
import { Arguments, Empty, endOf, Facts, Figure, Heading, Loaded, Name, NameLink, Panel, QueueLink, State, Tag } from "../parts.js";
import { link } from "../router.js";

/** The name of a channel with the name that the client gave its connection, or the client's address. */
const shortName = ({ connection_details: at, number: count }) => `${at.user_provided_name ?? endOf(at)} (${count})`;

/** The columns of channels; `sorted` says whether the broker sorts them. */
export function channelColumns(sorted) {
  return [
    { key: "name", title: "Channel", sort: sorted || undefined,
      render: (row) => html`<${NameLink} text=${shortName(row)} to=${link("channels", [row.name])} />` },
    { key: "user", title: "User", sort: sorted || undefined, render: (row) => html`<${Name} text=${row.user} />` },
    ...(sorted ? [{ key: "vhost", title: "Vhost", sort: true, render: (row) => html`<${Name} text=${row.vhost} />` }] : []),
    { key: "state", title: "State", sort: sorted || undefined, render: (row) => html`<${State} text=${row.state} />` },
    { key: "mode", title: "Mode", sort: false, render: (row) => html`<span class="marks">
        ${row.confirm && html`<${Tag} text="confirms" title="The broker confirms publishes" />`}
        ${row.transactional && html`<${Tag} text="transactions" />`}</span>` },
    { key: "consumer_count", title: "Consumers", align: "right", sort: sorted || undefined, render: (row) => number(row.consumer_count) },
    { key: "prefetch_count", title: "Prefetch", align: "right", sort: sorted || undefined,
      render: (row) => (row.prefetch_count ? number(row.prefetch_count) : "no limit") },
    { key: "messages_unacknowledged", title: "Unacked", align: "right", sort: sorted || undefined,
      render: (row) => number(row.messages_unacknowledged) },
    { key: "messages_unconfirmed", title: "Unconfirmed", align: "right", sort: sorted || undefined,
      render: (row) => number(row.messages_unconfirmed) },
  ];
}

export function View({ parts, options }) {
  return parts.length > 0 ? html`<${Channel} name=${parts[0]} key=${parts[0]} />` : html`<${Channels} options=${options} />`;
}

const UNACKED_FIRST = { key: "messages_unacknowledged", reverse: true };

function Channels({ options }) {
  const live = useList("channels", options, { isVhosts: true, sort: UNACKED_FIRST });
  const empty = html`<${Empty} title="No channel is open">
    <p>A client opens channels on its <a href=${link("connections")}>connection</a>; the <a href=${link("overview")}>overview</a>
      shows where clients connect to.</p><//>`;
  return html`<${Heading} title="Channels"><${Filter} options=${options} label="Filter by name" /><//>
    <${ListTable} live=${live} columns=${channelColumns(true)} options=${options} caption="Channels" empty=${empty} sort=${UNACKED_FIRST} />`;
}

function Channel({ name }) {
  const live = useLive((signal) => get(path`channels/${name}`, signal), `channel ${name}`);
  return html`<${Heading} title=${live.data ? shortName(live.data) : name} kind="Channel" trail=${[{ title: "Channels", to: link("channels") }]} />
    ${live.error?.status === 404
      ? html`<${Empty} title="This channel is closed"><p>See those that are <a href=${link("channels")}>open</a>.</p><//>`
      : html`<${Loaded} live=${live}>${(row) => html`<${Details} row=${row} />`}<//>`}`;
}

const consumerColumns = [
  { key: "consumer_tag", title: "Consumer", render: (row) => html`<${Name} text=${row.consumer_tag} />` },
  { key: "queue", title: "Queue", sort: false, render: (row) => html`<${QueueLink} vhost=${row.queue.vhost} name=${row.queue.name} />` },
  { key: "activity_status", title: "State" },
  { key: "prefetch_count", title: "Prefetch", align: "right" },
  { key: "messages_unacknowledged", title: "Unacked", align: "right" },
  { key: "arguments", title: "Arguments", sort: false, render: (row) => html`<${Arguments} of=${row.arguments} />` },
];

function Details({ row }) {
  const consumers = row.consumer_details ?? [];
  return html`<div class="figures few">
      <${Figure} name="Unacked" value=${number(row.messages_unacknowledged)} note="delivered, not acked yet" />
      <${Figure} name="Unconfirmed" value=${number(row.messages_unconfirmed)} note="published, not confirmed yet" />
      <${Figure} name="Consumers" value=${number(row.consumer_count)} />
    </div>
    <${Panel} title="Channel"><${Facts} of=${[
      ["Connection", html`<${NameLink} text=${row.connection_details.user_provided_name ?? row.connection_details.name} to=${link("connections", [row.connection_details.name])} />`],
      ["User", html`<${Name} text=${row.user} />`],
      ["Vhost", html`<${Name} text=${row.vhost} />`],
      ["State", row.state],
      ["Prefetch per consumer", row.prefetch_count ? number(row.prefetch_count) : "no limit: a slow consumer may get a whole queue"],
      ["Prefetch per channel", row.global_prefetch_count ? number(row.global_prefetch_count) : "no limit"],
      ["Confirms", row.confirm ? "yes" : "no: the client does not notice lost messages"],
      ["In a transaction", row.transactional ? `${counted(row.messages_uncommitted, "message")}, ${number(row.acks_uncommitted)} acks` : undefined],
    ]} /><//>
    ${consumers.length > 0 && html`<${Panel} title="Consumers" wide>
      ${row.consumer_count > consumers.length && html`<p>The first ${number(consumers.length)} of
        ${number(row.consumer_count)} consumers; <code>leveret ctl list_consumers</code> lists all.</p>`}
      <${DataTable} caption="Consumers" columns=${consumerColumns} rows=${consumers} empty="None" /><//>`}`;
}
