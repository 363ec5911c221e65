// Overview: the broker's activity, its contents, and its problems.

import { html } from "../../vendor/htm-preact.js";
import { bytes, duration, number, rate, rateKnown } from "../../common/format.js";
import { LinePlot } from "../../common/plot.js";
import { get, query } from "../api.js";
import { alarmsOf } from "../alarms.js";
import { Gathered, lengthLines, RANGES, rateLines, samplesOf } from "../history.js";
import { useLive } from "../live.js";
import { Empty, Facts, Figure, Heading, Loaded, Panel } from "../parts.js";
import { change, link } from "../router.js";
import { monitors } from "../store.js";

const EVERY = 2000;

/** The node's figures since the page was opened; the broker keeps no history of them. */
const gathered = new Gathered();

async function load(range, signal) {
  const [overview, nodes] = await Promise.all([
    get(`overview${query(samplesOf(range))}`, signal),
    monitors() ? get("nodes", signal) : null,
  ]);
  const node = nodes?.[0] ?? null;
  if (node) {
    gathered.add(Date.now() / 1000, [node.io_sync_avg_time, node.mem_used, node.disk_free]);
  }
  return { overview, node };
}

export function View({ options }) {
  const range = Object.hasOwn(RANGES, options.range ?? "") ? options.range : "10m";
  const live = useLive((signal) => load(range, signal), `overview ${range}`, { every: EVERY, keep: true });
  return html`<${Heading} title="Overview">
      <select aria-label="How far back" value=${range}
        onChange=${(event) => change({ range: event.currentTarget.value })}>
        ${Object.entries(RANGES).map(([key, one]) => html`<option value=${key} selected=${key === range}>${one.title}</option>`)}
      </select>
    <//>
    <${Loaded} live=${live}>${(data) => html`<${Body} ...${data} />`}<//>`;
}

function Body({ overview, node }) {
  return html`<${Alarms} node=${node} />
    <${Counts} overview=${overview} />
    <div class="plots">
      <${Rates} stats=${overview.message_stats ?? {}} />
      <${Lengths} totals=${overview.queue_totals ?? {}} />
    </div>
    ${node && html`<${NodePlots} />`}
    <div class="plots">
      ${node && html`<${NodeFacts} node=${node} />`}
      <${Product} overview=${overview} node=${node} />
    </div>`;
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
    <p>Connect a client of AMQP 0-9-1${amqp && html` to port <code>${String(amqp.port)}</code>`}, <a href=${link("queues")}>declare a queue</a>
      here, or run <code>leveret demo</code> for a broker with traffic to look at.</p>
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
  return html`<${LinePlot} title="Message rates" height=${220} format=${rate}
    series=${lines.map(([name, label]) => ({ label, unit: "/s", dashed: OFTEN_EQUAL.includes(name) }))}
    data=${rateLines(...lines.map(([name]) => of(name)))} />`;
}

function Lengths({ totals }) {
  return html`<${LinePlot} title="Messages in queues" height=${220} format=${number}
    series=${[{ label: "Ready", unit: "" }, { label: "Unacked", unit: "" }]}
    data=${lengthLines(totals.messages_ready_details, totals.messages_unacknowledged_details)} />`;
}

const SINCE = "since the page was opened";

function NodePlots() {
  const [times, syncs, memory, disk] = gathered.lines(3);
  const ms = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(2)} ms`);
  return html`<div class="plots small"><${LinePlot} title="Sync latency" note=${SINCE} height=${160} format=${ms}
      series=${[{ label: "Sync", unit: "ms" }]} data=${[times, syncs]} />
    <${LinePlot} title="Client memory" note=${SINCE} height=${160} format=${bytes}
      series=${[{ label: "Memory", unit: "B" }]} data=${[times, memory]} />
    <${LinePlot} title="Free disk" note=${SINCE} height=${160} format=${bytes}
      series=${[{ label: "Free", unit: "B" }]} data=${[times, disk]} /></div>`;
}

function Share({ used, of, label }) {
  return html`<meter min="0" max=${of} high=${of * 0.8} optimum="0" value=${used} aria-label=${label}></meter>`;
}

function NodeFacts({ node }) {
  const limited = node.mem_limit > 0;
  return html`<${Panel} title="Node">
    <${Facts} of=${[
      ["Client memory", html`${bytes(node.mem_used)}${limited && ` of ${bytes(node.mem_limit)} `}
        ${limited && html`<${Share} used=${node.mem_used} of=${node.mem_limit} label="Memory used" />`}`],
      ["… of messages", bytes(node.mem_messages)],
      ["… of definitions", bytes(node.mem_definitions)],
      ["… of connections", bytes(node.mem_connections)],
      ["Free disk", `${bytes(node.disk_free)} (alarm below ${bytes(node.disk_free_limit)})`],
      ["Sync latency", `${node.io_sync_avg_time.toFixed(2)} ms`],
      ["Records in a sync", number(node.records_per_sync)],
      ["Descriptors", node.fd_total ? `${number(node.fd_used)} of ${number(node.fd_total)}` : undefined],
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
