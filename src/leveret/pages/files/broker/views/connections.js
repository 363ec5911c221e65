// Connections: the list, one connection with its channels, and closing it.

import { html } from "../../vendor/htm-preact.js";
import { bytes, duration, legible, moment, NOTHING, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { closeConnection, closeUser } from "../acts/connections.js";
import { get, path } from "../api.js";
import { Filter, ListTable, useList } from "../list.js";
import { useLive, useRates } from "../live.js";
import { Empty, endOf, Facts, Heading, Loaded, Name, NameLink, Panel, Source, State, Tag } from "../parts.js";
import { link } from "../router.js";
import { channelColumns } from "./channels.js";

export function View({ parts, options }) {
  return parts.length > 0
    ? html`<${Connection} name=${parts[0]} key=${parts[0]} />`
    : html`<${Connections} options=${options} />`;
}

/** The client library, in its own words. */
function libraryOf({ client_properties: known = {} }) {
  return [known.product, known.version].filter((one) => typeof one === "string" && one !== "").join(" ");
}

const COUNTERS = { received: (row) => row.recv_oct, sent: (row) => row.send_oct };

const flow = (key, title, total) => ({ key: total, title, align: "right", sort: true, render: (row) => html`<span
    title=${`${bytes(row[total])} in all`}>${row.rates[key] === null ? NOTHING : `${bytes(Math.round(row.rates[key]))}/s`}</span>` });

const columns = [
  { key: "name", title: "Connection", sort: true, render: (row) => html`<${NameLink}
      text=${row.user_provided_name ?? row.name} to=${link("connections", [row.name])} />` },
  { key: "peer_host", title: "Peer address", sort: true,
    render: (row) => html`<${Name} text=${endOf(row)} />${row.ssl && html` <${Tag} text="TLS" title=${row.ssl_protocol} />`}` },
  { key: "client", title: "Client", sort: false, render: (row) => html`<${Name} text=${libraryOf(row)} empty=${NOTHING} />` },
  { key: "user", title: "User", sort: true, render: (row) => html`<${Name} text=${row.user} />` },
  { key: "vhost", title: "Vhost", sort: true, render: (row) => html`<${Name} text=${row.vhost} />` },
  { key: "state", title: "State", sort: true, render: (row) => html`<${State} text=${row.state} />` },
  { key: "channels", title: "Channels", align: "right", sort: true, render: (row) => number(row.channels) },
  flow("received", "From client", "recv_oct"),
  flow("sent", "To client", "send_oct"),
  { key: "memory", title: "Memory", align: "right", sort: true, render: (row) => bytes(row.memory ?? 0) },
  { key: "connected_at", title: "Connected for", align: "right", sort: true,
    render: (row) => html`<span title=${moment(row.connected_at)}>${duration(Date.now() - row.connected_at)}</span>` },
];

function Connections({ options }) {
  const live = useList("connections", options, { isVhosts: true });
  const rows = useRates(live, live.data?.items, (row) => row.name, COUNTERS);
  const empty = html`<${Empty} title="No client is connected">
    <p>Clients connect with AMQP 0-9-1; the <a href=${link("overview")}>overview</a> shows where the broker listens.</p>
  <//>`;
  return html`<${Heading} title="Connections"><${Filter} options=${options} label="Filter by name" /><//>
    <${ListTable} live=${live} rows=${rows} columns=${columns} options=${options} caption="Connections" empty=${empty} />`;
}

async function load(name, signal) {
  const where = path`connections/${name}`;
  const [connection, channels] = await Promise.all([get(where, signal), get(`${where}/channels`, signal)]);
  return { connection, channels };
}

function Connection({ name }) {
  const live = useLive((signal) => load(name, signal), `connection ${name}`);
  const row = live.data?.connection;
  if (live.error?.status === 404) {
    return html`<${Heading} title=${name} kind="Connection" trail=${[{ title: "Connections", to: link("connections") }]} />
      <${Empty} title="This connection is closed"><p>See those that are <a href=${link("connections")}>open</a>.</p><//>`;
  }
  return html`<${Heading} title=${row?.user_provided_name ?? name} kind="Connection"
      trail=${[{ title: "Connections", to: link("connections") }]}>
      ${row && html`<button type="button" class="danger" onClick=${() => closeConnection(row)}>Close …</button>
        <button type="button" class="danger" onClick=${() => closeUser(row.user)}>Close all of this user …</button>`}
    <//>
    <${Loaded} live=${live}>${(data) => html`<${Details} ...${data} />`}<//>`;
}

function Details({ connection, channels }) {
  const table = channels.length === 0
    ? html`<p class="note">It has no channel open.</p>`
    : html`<${DataTable} caption="Channels" columns=${channelColumns(false)} rows=${channels} empty="None" />`;
  return html`<div class="plots">
      <${Panel} title="Client"><${Facts} of=${[
        ["Name", html`<${Name} text=${connection.name} />`],
        ["Peer address", endOf(connection)],
        ["Client", legible(libraryOf(connection))],
        ["User", html`<${NameLink} text=${connection.user} to=${link("users", [connection.user])} />`],
        ["Vhost", html`<${Name} text=${connection.vhost} />`],
        ["State", connection.state],
        ["Protocol", connection.protocol],
        ["Auth mechanism", connection.auth_mechanism],
        ["TLS", connection.ssl ? `${connection.ssl_protocol} ${connection.ssl_cipher}` : "Not encrypted"],
        ["Certificate", connection.peer_cert_subject],
        ["Connected", `${moment(connection.connected_at)} (for ${duration(Date.now() - connection.connected_at)})`],
      ]} /><//>
      <${Panel} title="Traffic and limits"><${Facts} of=${[
        ["Received", `${bytes(connection.recv_oct)} in ${number(connection.recv_cnt)} reads`],
        ["Sent", `${bytes(connection.send_oct)} in ${number(connection.send_cnt)} writes`],
        ["Send backlog", bytes(connection.send_pend ?? 0)],
        ["Memory", bytes(connection.memory ?? 0)],
        ["Heartbeat", connection.timeout ? `${number(connection.timeout)} s` : "none: a dead client is noticed late"],
        ["Max frame size", bytes(connection.frame_max)],
        ["Channels", `${number(connection.channels)} of ${number(connection.channel_max)}`],
      ]} /><//>
    </div>
    <${Panel} title="Channels" wide>${table}<//>
    <${Panel} title="Client properties" wide>
      <${Source} value=${connection.client_properties ?? {}} label="Client properties" /><//>`;
}
