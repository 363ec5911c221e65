// One stream: its offsets and retention, and its named consumers and Spark queries with their lag.

import { html } from "../../vendor/htm-preact.js";
import { bytes, moment, NOTHING, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { forgetReader, moveReader } from "../acts/readers.js";
import { get, path } from "../api.js";
import { useLive } from "../live.js";
import { Empty, Facts, Figure, Loaded, Name, NameLink, Panel } from "../parts.js";
import { link } from "../router.js";

async function load(vhost, name, signal) {
  const where = path`streams/${vhost}/${name}`;
  const [stream, readers, queries, sinks, publishers] = await Promise.all([
    get(where, signal),
    get(`${where}/consumers`, signal),
    get(`${where}/queries`, signal),
    get(path`sinks/${vhost}`, signal),
    get(path`publishers/${vhost}/${name}`, signal),
  ]);
  const lags = [...readers, ...queries].map((one) => one.lag ?? 0);
  return { stream, readers, queries, sinks: sinks.filter((one) => one.destination === `stream:${name}`), publishers, lags };
}

export function StreamPart({ vhost, name }) {
  const live = useLive((signal) => load(vhost, name, signal), `stream ${vhost}\n${name}`);
  return html`<${Loaded} live=${live}>${({ stream, readers, queries, sinks, publishers, lags }) => html`
    <div class="figures">
      <${Figure} name="Messages" value=${number(stream.messages)} note=${bytes(stream.bytes)} />
      <${Figure} name="First offset" value=${number(stream.first_offset)} />
      <${Figure} name="Next offset" value=${number(stream.next_offset)} />
      <${Figure} name="Max lag" value=${lags.length > 0 ? number(Math.max(...lags)) : NOTHING} note=${lags.length > 0 ? undefined : "no named reader"} />
    </div>
    ${(readers.length > 0 || queries.length === 0) && html`<${Readers} stream=${stream} readers=${readers} reload=${live.reload} />`}
    ${queries.length > 0 && html`<${Queries} stream=${stream} queries=${queries} />`}
    ${sinks.length > 0 && html`<${Sinks} sinks=${sinks} />`}
    ${publishers.length > 0 && html`<${Publishers} publishers=${publishers} />`}`}<//>`;
}

function Readers({ stream, readers, reload }) {
  if (readers.length === 0) {
    return html`<${Empty} title="Nobody has stored an offset">
      <p>A consumer with the argument <code>x-stream-consumer</code> appears here under its name, with
      how far behind it is.</p>
    <//>`;
  }
  const columns = [
    { key: "name", title: "Reader", render: (row) => html`<${Name} text=${row.name} />` },
    { key: "owner", title: "Owner", render: (row) => html`<${Name} text=${row.owner ?? ""} empty="–" />` },
    { key: "offset", title: "Offset", align: "right", render: (row) => (row.offset === null ? "–" : number(row.offset)) },
    { key: "lag", title: "Lag", align: "right", render: (row) => html`<${Lag} row=${row} stream=${stream} />` },
    { key: "consumers", title: "Consumers", align: "right", render: (row) => number(row.consumers) },
    { key: "active", title: "Active", sort: false, render: (row) => row.active
      ? html`<${NameLink} text=${row.active.connection} to=${link("connections", [row.active.connection])} />`
      : html`<span class="note">nobody reads now</span>` },
    { key: "act", title: "", sort: false, align: "right", render: (row) => html`<span class="actions">
        <button type="button" class="quiet" onClick=${() => moveReader(stream, row, reload)}>Rewind …</button>
        <button type="button" class="quiet" onClick=${() => forgetReader(stream, row, reload)}>Forget …</button></span>` },
  ];
  return html`<${Panel} title="Readers" note="the number of messages that each has yet to ack" wide>
    <${DataTable} caption="Readers" columns=${columns} rows=${readers} empty="None" /><//>`;
}

function Queries({ stream, queries }) {
  const rows = queries.map((one) => ({ ...one, query: one.name ?? one.query_id ?? "" }));
  const columns = [
    { key: "query", title: "Query", render: (row) => html`<${Name} text=${row.query} empty="not known yet" />` },
    { key: "owner", title: "User", render: (row) => html`<${Name} text=${row.owner ?? ""} empty="–" />` },
    { key: "position", title: "Position", align: "right", render: (row) => (row.position === null ? "–" : number(row.position)) },
    { key: "lag", title: "Lag", align: "right", render: (row) => html`<${Lag} row=${row} stream=${stream} />` },
    { key: "bytes_behind", title: "Bytes behind", align: "right", render: (row) => (row.bytes_behind === null ? "–" : bytes(row.bytes_behind)) },
    { key: "heard", title: "Last heard", render: (row) => moment(row.heard) },
  ];
  return html`<${Panel} title="Spark queries" note="the position after the last batch that each has committed" wide>
    <${DataTable} caption="Spark queries" columns=${columns} rows=${rows} empty="None" /><//>`;
}

function Lag({ row, stream }) {
  const lag = row.lag ?? 0;
  return html`<span class="lag"><meter min="0" max=${Math.max(1, stream.messages)} high=${stream.messages / 2} optimum="0" value=${lag}
    aria-label="Lag"></meter> ${number(lag)}</span>`;
}

function Sinks({ sinks }) {
  const columns = [
    { key: "sink", title: "Sink", render: (row) => html`<${Name} text=${row.sink} />` },
    { key: "batch", title: "Batch", align: "right", render: (row) => number(row.batch) },
    { key: "last", title: "Last commit", render: (row) => (row.last ? moment(row.last) : "–") },
    { key: "messages", title: "Not released", align: "right", render: (row) => number(row.messages) },
  ];
  return html`<${Panel} title="Sinks" note="queries of Spark that commit batches to it" wide>
    <${DataTable} caption="Sinks" columns=${columns} rows=${sinks} empty="None" /><//>`;
}

function Publishers({ publishers }) {
  const columns = [
    { key: "publisher", title: "Publisher", render: (row) => html`<${Name} text=${row.publisher} />` },
    { key: "publishing_id", title: "Highest number", align: "right", render: (row) => number(row.publishing_id) },
    { key: "last", title: "Last", render: (row) => (row.last ? moment(row.last) : "–") },
    { key: "owner", title: "Owner", render: (row) => html`<${Name} text=${row.owner ?? ""} empty="–" />` },
  ];
  return html`<${Panel} title="Publishers with deduplication" wide>
    <${DataTable} caption="Publishers" columns=${columns} rows=${publishers} empty="None" /><//>`;
}

/** The retention of a stream, from its arguments and policy. */
export function Retention({ row }) {
  const of = { ...row.arguments, ...row.effective_policy_definition };
  return html`<${Facts} of=${[
    ["Kept for", of["x-max-age"] ?? of["max-age"] ?? "no limit"],
    ["Kept up to", of["x-max-length-bytes"] ?? of["max-length-bytes"]],
  ]} />`;
}
