// Connections: the list, one connection with its channels, and closing it.

import { html } from "../../vendor/htm-preact.js";
import { bytes, duration, moment, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { closeConnection, closeUser } from "../acts/connections.js";
import { get, path } from "../api.js";
import { Filter, ListTable, useList } from "../list.js";
import { useLive } from "../live.js";
import { Empty, Facts, Heading, Loaded, Name, NameLink, Panel, Source, Tag } from "../parts.js";
import { link } from "../router.js";
import { channelColumns } from "./channels.js";

export function View({ parts, options }) {
  return parts.length > 0
    ? html`<${Connection} name=${parts[0]} key=${parts[0]} />`
    : html`<${Connections} options=${options} />`;
}

const STATES = { running: "", blocked: "warn", blocking: "warn", flow: "warn" };

const columns = [
  { key: "name", title: "Connection", sort: true, render: (row) => html`<${NameLink}
      text=${row.user_provided_name ?? row.name} to=${link("connections", [row.name])} />` },
  { key: "user", title: "User", sort: true, render: (row) => html`<${Name} text=${row.user} />` },
  { key: "vhost", title: "Vhost", sort: true, render: (row) => html`<${Name} text=${row.vhost} />` },
  { key: "state", title: "State", sort: true, render: (row) => html`<${Tag} text=${row.state} kind=${STATES[row.state] ?? "warn"} />` },
  { key: "protocol", title: "Protocol", sort: true, minor: true },
  { key: "ssl", title: "TLS", sort: true, minor: true, render: (row) => (row.ssl ? row.ssl_protocol : "Not encrypted") },
  { key: "channels", title: "Channels", align: "right", sort: true, render: (row) => number(row.channels) },
  { key: "recv_oct", title: "Received", align: "right", sort: true, render: (row) => bytes(row.recv_oct) },
  { key: "send_oct", title: "Sent", align: "right", sort: true, render: (row) => bytes(row.send_oct) },
  { key: "memory", title: "Memory", align: "right", sort: true, render: (row) => bytes(row.memory ?? 0) },
  { key: "connected_at", title: "Since", sort: true, render: (row) => moment(row.connected_at) },
];

function Connections({ options }) {
  const live = useList("connections", options, { isVhosts: true });
  const empty = html`<${Empty} title="No client is connected">
    <p>Clients connect with AMQP 0-9-1; the <a href=${link("overview")}>overview</a> shows where the broker listens.</p>
  <//>`;
  return html`<${Heading} title="Connections"><${Filter} options=${options} label="Filter by name" /><//>
    <${ListTable} live=${live} columns=${columns} options=${options} caption="Connections" empty=${empty} />`;
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
