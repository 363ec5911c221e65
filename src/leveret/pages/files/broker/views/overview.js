// Overview: the broker's activity, its contents, and its problems.

import { html } from "../../vendor/htm-preact.js";
import { bytes, duration, number, rate, rateKnown } from "../../common/format.js";
import { LinePlot } from "../../common/plot.js";
import { DataTable } from "../../common/table.js";
import { get, query } from "../api.js";
import { alarmsOf } from "../alarms.js";
import { latencyLine, lengthLines, nodeSamplesOf, RANGES, rateLines, samplesOf } from "../history.js";
import { listPath, useShown } from "../list.js";
import { useLive } from "../live.js";
import { Empty, Facts, Figure, Heading, Loaded, Panel } from "../parts.js";
import { listColumns, QUEUE_FIELDS } from "../queue_columns.js";
import { change, link } from "../router.js";
import { chosenVhost, monitors, node as nodeSeen, useStore } from "../store.js";

/** The interval of the broker's samples. */
const SAMPLED_EVERY = 5000;

async function loadNode(range, signal) {
  const [row] = await get(`nodes${query(nodeSamplesOf(range))}`, signal);
  nodeSeen.set(row);
  return row;
}

export function View({ options }) {
  const range = Object.hasOwn(RANGES, options.range ?? "") ? options.range : "10m";
  const live = useLive((signal) => get(`overview${query(samplesOf(range))}`, signal), `overview ${range}`, { keep: true });
  const node = useLive((signal) => (monitors() ? loadNode(range, signal) : null), `node ${range}`, { every: SAMPLED_EVERY, keep: true });
  return html`<${Heading} title="Overview">
      <select aria-label="How far back" value=${range}
        onChange=${(event) => change({ range: event.currentTarget.value })}>
        ${Object.entries(RANGES).map(([key, one]) => html`<option value=${key} selected=${key === range}>${one.title}</option>`)}
      </select>
    <//>
    <${Loaded} live=${live}>${(overview) => html`<${Body} overview=${overview} node=${node.data ?? null} />`}<//>`;
}

function Body({ overview, node }) {
  return html`<${Alarms} node=${node} />
    <${Counts} overview=${overview} />
    <div class="plots">
      <${Rates} stats=${overview.message_stats ?? {}} />
      <${Lengths} totals=${overview.queue_totals ?? {}} />
    </div>
    ${overview.queue_totals?.messages > 0 && html`<${Longest} queues=${overview.object_totals?.queues ?? 0} />`}
    ${node && html`<${NodePlots} node=${node} />`}
    <div class="plots">
      ${node && html`<${NodeFacts} node=${node} />`}
      <${Product} overview=${overview} node=${node} />
    </div>`;
}

/** From this many queues on, the longest are requested less often, since the broker compares all of them. */
const MANY_QUEUES = 10_000;

/** The streams among the longest queues are no backlog, so a few more are requested. */
const ASKED_FOR = 20;
const LONGEST = 5;

function Longest({ queues }) {
  const vhost = useStore(chosenVhost);
  const asked = { page: 1, page_size: ASKED_FOR, sort: "messages_ready", sort_reverse: true, columns: QUEUE_FIELDS, lengths_age: 300, lengths_incr: 10 };
  const live = useLive((signal) => get(listPath("queues", vhost) + query(asked), signal), `longest ${vhost}`,
    { every: queues < MANY_QUEUES ? SAMPLED_EVERY : 30000, keep: true });
  const columns = useShown(listColumns(["name", "vhost", "messages_ready", "messages_unacknowledged", "depth", "in", "out", "consumers"]));
  const rows = (live.data?.items ?? []).filter((row) => row.type !== "stream" && row.messages_ready > 0).slice(0, LONGEST);
  return rows.length > 0 && html`<${Panel} title="Longest queues" wide
    actions=${html`<a href=${link("queues")}>All queues</a>`}>
    <${DataTable} caption="Longest queues" columns=${columns.map((one) => ({ ...one, sort: false }))} rows=${rows} /><//>`;
}

function Alarms({ node }) {
  const alarms = node ? alarmsOf(node) : [];
  return alarms.map((alarm) => html`<section class="alarm" role="alert">
    <h2>${alarm.title}</h2>
    <p>${alarm.says}</p>
    <p><strong>What to do:</strong> ${alarm.todo}${alarm.to && html` <a href=${alarm.to.to}>${alarm.to.title}</a>`}</p>
  </section>`);
}

function Counts({ overview }) {
  const objects = overview.object_totals ?? {};
  const totals = overview.queue_totals ?? {};
  const stats = overview.message_stats ?? {};
  const amqp = (overview.listeners ?? []).find((one) => one.protocol.startsWith("amqp"));
  const rateOf = (name) => rate(rateKnown(overview, stats[`${name}_details`]));
  return html`<div class="figures">
    <${Figure} name="Ready" value=${number(totals.messages_ready ?? 0)}
      to=${link("queues", [], { sort: "messages_ready", reverse: "true" })} note=${totals.messages_ready === 1 ? "message" : "messages"} />
    <${Figure} name="Unacked" value=${number(totals.messages_unacknowledged ?? 0)}
      to=${link("queues", [], { sort: "messages_unacknowledged", reverse: "true" })} note=${totals.messages_unacknowledged === 1 ? "message" : "messages"} />
    <${Figure} name="Published" value=${rateOf("publish")} note=${`${number(stats.publish ?? 0)} in all`} />
    <${Figure} name="Delivered" value=${rateOf("deliver_get")} note=${`${number(stats.deliver_get ?? 0)} in all`} />
    <${Figure} name="Queues" value=${number(objects.queues ?? 0)} to=${link("queues")} />
    <${Figure} name="Exchanges" value=${number(objects.exchanges ?? 0)} to=${link("exchanges")} />
    <${Figure} name="Connections" value=${number(objects.connections ?? 0)} to=${link("connections")} />
    <${Figure} name="Channels" value=${number(objects.channels ?? 0)} to=${link("channels")} />
    <${Figure} name="Consumers" value=${number(objects.consumers ?? 0)} />
  </div>
  ${objects.connections === 0 && objects.queues === 0 && html`<${Empty} title="Nobody uses this broker yet">
    <p>Connect a client of AMQP 0-9-1${amqp && html` to port <code>${String(amqp.port)}</code>`}, <a href=${link("queues")}>declare a queue</a> here, or run <code>leveret demo</code> for a broker with traffic to look at.</p>
  <//>`}`;
}

/** A line that often equals another is drawn over it, so that both are visible. */
const OFTEN_EQUAL = ["confirm", "ack"];

function Rates({ stats }) {
  const of = (name) => stats[`${name}_details`];
  const lines = [
    ["publish", "Published"], ["confirm", "Confirmed"], ["deliver_get", "Delivered"],
    ["ack", "Acked"], ["redeliver", "Redelivered"], ["return_unroutable", "Returned"],
  ];
  return html`<${LinePlot} title="Message rates" height=${190} format=${rate} quiet nothing="No message was published or delivered in this time."
    series=${lines.map(([name, label]) => ({ label, unit: "/s", dashed: OFTEN_EQUAL.includes(name) }))}
    data=${rateLines(...lines.map(([name]) => of(name)))} />`;
}

function Lengths({ totals }) {
  return html`<${LinePlot} title="Messages in queues" height=${190} format=${number} quiet nothing="The queues were empty in this time."
    series=${[{ label: "Ready", unit: "" }, { label: "Unacked", unit: "" }]}
    data=${lengthLines(totals.messages_ready_details, totals.messages_unacknowledged_details)} />`;
}

const ms = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(2)} ms`);

function NodePlots({ node }) {
  const latencies = latencyLine(node.io_sync_count_details, node.io_sync_us_details);
  const last = latencies[1].findLast((value) => value !== null);
  const plot = (title, label, now, format, data, nothing) => html`<${LinePlot} title=${title} now=${now} height=${150} format=${format} quiet nothing=${nothing}
    series=${[{ label, unit: "" }]} data=${data} />`;
  return html`<div class="plots small">
    ${plot("Sync latency", "Mean", last === undefined ? html`${ms(node.io_sync_avg_time)} <span class="note">mean since the start</span>` : ms(last), ms, latencies, "Too little was synced in this time for a chart.")}
    ${plot("Client memory", "Memory", bytes(node.mem_used), bytes, lengthLines(node.mem_used_details), "No history yet.")}
    ${plot("Free disk", "Free", bytes(node.disk_free), bytes, lengthLines(node.disk_free_details), "No history yet.")}
  </div>`;
}

function Share({ used, of, label }) {
  return html`<meter min="0" max=${of} high=${of * 0.8} optimum="0" value=${used} aria-label=${label}></meter>`;
}

/** How often objects come and go, such as `0.2/s opened, 0/s closed`. */
function churn(node, kind, ...acts) {
  return acts.map((act) => `${rate(node[`${kind}_${act}_details`]?.rate)} ${act === "created" && kind !== "queue" ? "opened" : act}`).join(", ");
}

function NodeFacts({ node }) {
  const limited = node.mem_limit > 0;
  return html`<${Panel} title="Node">
    <${Facts} of=${[
      ["Memory alarm above", limited && html`${bytes(node.mem_limit)} <${Share} used=${node.mem_used} of=${node.mem_limit} label="Memory used" />`],
      ["Memory of messages", bytes(node.mem_messages)],
      ["Memory of definitions", bytes(node.mem_definitions)],
      ["Memory of connections", bytes(node.mem_connections)],
      ["Disk alarm below", bytes(node.disk_free_limit)],
      ["Records per sync", number(node.records_per_sync)],
      ["Descriptors", node.fd_total ? `${number(node.fd_used)} of ${number(node.fd_total)}` : undefined],
      ["Connection churn", churn(node, "connection", "created", "closed")],
      ["Channel churn", churn(node, "channel", "created", "closed")],
      ["Queue churn", churn(node, "queue", "created", "deleted")],
      ["Running for", duration(node.uptime)],
    ]} />
  <//>`;
}

function Product({ overview, node }) {
  const listeners = overview.listeners ?? [];
  return html`<${Panel} title="Broker">
    <${Facts} of=${[
      ["Version", `${overview.product_name} ${overview.product_version}`],
      ["Build", overview.build === "pure" ? "plain Python, which is slower" : overview.build],
      ["Answers as", `RabbitMQ ${overview.rabbitmq_version}`],
      ["Runs on", overview.erlang_full_version],
      ["Cluster name", overview.cluster_name],
      ["Node", overview.node],
      ["Process", node?.os_pid],
      ["Listens", listeners.length > 0 && html`<ul class="plain">${listeners.map((one) => html`<li>
        ${one.protocol} <span class="note">${one.ip_address}:${String(one.port)}</span></li>`)}</ul>`],
    ]} />
  <//>`;
}
