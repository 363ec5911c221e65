// One queue: its length, its rates, its consumers, and its messages.

import { html } from "../../vendor/htm-preact.js";
import { bytes, counted, legible, moment, number, rate, rateKnown } from "../../common/format.js";
import { LinePlot } from "../../common/plot.js";
import { DataTable } from "../../common/table.js";
import { deleteQueue, moveMessages, purgeQueue, rewindQueue } from "../acts/queues.js";
import { get, path, query } from "../api.js";
import { lengthLines, RANGES, rateLines } from "../history.js";
import { useLive } from "../live.js";
import { Arguments, Empty, endOf, Facts, Figure, Heading, Loaded, Name, NameLink, Panel, Tabs } from "../parts.js";
import { link } from "../router.js";
import { DeadLetters } from "./dead_letters.js";
import { Messages } from "./messages.js";
import { QueueBindings } from "./queue_bindings.js";
import { StreamPart } from "./stream.js";

const TABS = ["state", "consumers", "bindings", "messages", "dead", "stream"];

/** A queue or a stream; `view` is the list above it, which also determines the first tab. */
export function QueueView({ view = "queues", vhost, name, options }) {
  const { age, step } = RANGES["10m"];
  const samples = { msg_rates_age: age, msg_rates_incr: step, lengths_age: age, lengths_incr: step };
  const load = (signal) => get(path`queues/${vhost}/${name}` + query(samples), signal);
  const live = useLive(load, `queue ${vhost}\n${name}`);
  const row = live.data;
  const isStream = row ? row.type === "stream" : view === "streams";
  const tabs = [["state", "State"], ["consumers", "Consumers", row?.consumers], ["bindings", "Bindings"]];
  if (isStream) {
    tabs.splice(view === "streams" ? 0 : tabs.length, 0, ["stream", "Readers and offsets"]);
  } else {
    tabs.push(["messages", "Messages"], ["dead", "Dead letters"]);
  }
  const tab = TABS.includes(options.tab) ? options.tab : tabs[0][0];
  const list = { title: isStream ? "Streams" : "Queues", view: isStream ? "streams" : "queues" };
  if (live.error?.status === 404) {
    return html`<${Heading} title=${name} kind=${isStream ? "Stream" : "Queue"} trail=${[{ title: list.title, to: link(list.view) }]} />
      <${Empty} title=${`There is no such ${isStream ? "stream" : "queue"} (any more)`}>
        <p>It was deleted, expired, or never there. See the <a href=${link(list.view)}>${list.view}</a>.</p><//>`;
  }
  return html`<${Heading} title=${name} kind=${isStream ? "Stream" : "Queue"}
      trail=${[{ title: list.title, to: link(list.view) }, { title: `vhost ${legible(vhost)}`, to: link(list.view, [], { vhost }) }]}>
      ${row && html`<${Acts} row=${row} reload=${live.reload} />`}
    <//>
    <${Tabs} view=${view} parts=${[vhost, name]} tabs=${tabs} shown=${tab} />
    <${Loaded} live=${live}>${(data) => html`<${Part} tab=${tab} row=${data} live=${live} options=${options} />`}<//>`;
}

function Acts({ row, reload }) {
  const isStream = row.type === "stream";
  const act = (title, does, danger) => html`<button type="button" class=${danger ? "danger" : ""} onClick=${does}>${title}</button>`;
  return html`${!isStream && act("Move …", () => moveMessages(row, reload))}
    ${row.messages_retained > 0 && act("Rewind …", () => rewindQueue(row, reload))}
    ${!isStream && act("Purge …", () => purgeQueue(row, reload), true)}
    ${act("Delete …", () => deleteQueue(row), true)}`;
}

function Part({ tab, row, live, options }) {
  if (tab === "consumers") {
    return html`<${Consumers} row=${row} />`;
  }
  if (tab === "bindings") {
    return html`<${QueueBindings} vhost=${row.vhost} name=${row.name} />`;
  }
  if (tab === "messages") {
    return html`<${Messages} row=${row} reload=${live.reload} options=${options} />`;
  }
  if (tab === "dead") {
    return html`<${DeadLetters} row=${row} reload=${live.reload} />`;
  }
  return tab === "stream" ? html`<${StreamPart} vhost=${row.vhost} name=${row.name} />` : html`<${State} row=${row} />`;
}

function State({ row }) {
  const stats = row.message_stats ?? {};
  const of = (name) => stats[`${name}_details`];
  const lines = [["publish", "In"], ["deliver_get", "Out"], ["ack", "Acked"], ["redeliver", "Redelivered"]];
  return html`<${Diagnosis} row=${row} />
    <div class="figures">
      <${Figure} name="Ready" value=${number(row.messages_ready)} note=${bytes(row.message_bytes_ready ?? 0)} />
      <${Figure} name="Unacked" value=${number(row.messages_unacknowledged)} note=${bytes(row.message_bytes_unacknowledged ?? 0)} />
      <${Figure} name="In" value=${rate(rateKnown(row, of("publish")))} note=${`${number(stats.publish ?? 0)} in all`} />
      <${Figure} name="Out" value=${rate(rateKnown(row, of("deliver_get")))} note=${`${number(stats.deliver_get ?? 0)} in all`} />
      <${Figure} name="Acked" value=${rate(rateKnown(row, of("ack")))} note=${`${number(stats.ack ?? 0)} in all`} />
      <${Figure} name="Consumers" value=${number(row.consumers)} to=${link("queues", [row.vhost, row.name], { tab: "consumers" })} />
    </div>
    <div class="plots">
      <${LinePlot} title="Messages" height=${190} format=${number} quiet nothing="The queue was empty in this time."
        series=${[{ label: "Ready", unit: "" }, { label: "Unacked", unit: "" }]}
        data=${lengthLines(row.messages_ready_details, row.messages_unacknowledged_details)} />
      <${LinePlot} title="Message rates" height=${190} format=${rate} quiet nothing="No message was published or delivered in this time."
        series=${lines.map(([name, label]) => ({ label, unit: "/s", dashed: name === "ack" }))} data=${rateLines(...lines.map(([name]) => of(name)))} />
    </div>
    <${Details} row=${row} />`;
}

/** The reason for the growth of a queue, as far as its figures show it. */
function diagnose(row) {
  // The first samples have no rates yet.
  const sampled = (row.messages_ready_details?.samples ?? []).length > 3;
  const stats = row.message_stats ?? {};
  const [into, out] = [stats.publish_details?.rate ?? 0, stats.ack_details?.rate ?? 0];
  if (row.type === "stream") {
    // A stream keeps messages after they are read; each reader decides on its own offset.
    return "";
  }
  if (row.messages_ready > 0 && row.consumers === 0) {
    return "Messages wait, but this queue has no consumers.";
  }
  const acksNone = (stats.ack ?? 0) === 0 || (sampled && out === 0);
  if (acksNone && row.messages_unacknowledged > 0 && row.messages_ready > 0) {
    return "The consumers have unacked messages and ack none: one of them may be stuck. See the unacked messages of each consumer.";
  }
  if (row.messages_ready > 1000 && into > out * 1.1) {
    return `More is published (${rate(into)}) than acked (${rate(out)}): the queue grows. More or faster consumers would help.`;
  }
  return "";
}

function Diagnosis({ row }) {
  const words = diagnose(row);
  return words && html`<p class="hint">${words}</p>`;
}

/** A longer name is truncated in the heading. */
const SHORT_NAME = 40;

function Details({ row }) {
  const effective = Object.keys(row.effective_policy_definition ?? {}).length > 0;
  return html`<div class="plots">
    <${Panel} title="Queue"><${Facts} of=${[
      ["Name", row.name.length > SHORT_NAME && html`<bdi>${legible(row.name)}</bdi>`],
      ["Vhost", html`<${Name} text=${row.vhost} />`],
      ["Type", row.type],
      ["Durable", row.durable ? "yes" : "no: it does not survive a restart"],
      ["Deleted with its last consumer", row.auto_delete ? "yes" : undefined],
      ["Belongs to", row.owner_pid_details && html`<${NameLink} text=${row.owner_pid_details.name} to=${link("connections", [row.owner_pid_details.name])} />`],
      ["Policy", row.policy && html`<${NameLink} text=${row.policy} to=${link("policies", [row.vhost, row.policy])} />`],
      ["Operator policy", row.operator_policy && html`<${NameLink} text=${row.operator_policy}
        to=${link("policies", [row.vhost, row.operator_policy], { operators: true })} />`],
      ["In effect", effective && html`<${Arguments} of=${row.effective_policy_definition} />`],
      ["Arguments", Object.keys(row.arguments ?? {}).length > 0 && html`<${Arguments} of=${row.arguments} />`],
      ["Idle since", row.idle_since ? moment(row.idle_since) : undefined],
    ]} /><//>
    <${Panel} title="Messages"><${Facts} of=${[
      ["In memory", row.messages_ram !== undefined ? number(row.messages_ram) : undefined],
      ["On disk only", row.messages_paged_out !== undefined ? number(row.messages_paged_out) : undefined],
      ["Wait for a retry", row.messages_delayed ? number(row.messages_delayed) : undefined],
      ["Retained after the ack", row.messages_retained ? `${number(row.messages_retained)} (${bytes(row.message_bytes_retained)})` : undefined],
      ["Persistent", `about ${number(row.messages_persistent ?? 0)}`],
      ["Size", bytes(row.message_bytes ?? 0)],
      ["Memory", bytes(row.memory ?? 0)],
      ["Oldest", row.head_message_timestamp ? moment(row.head_message_timestamp * 1000) : undefined],
      ["Deduplicated", row.message_stats?.deduplicated ? number(row.message_stats.deduplicated) : undefined],
    ]} /><//>
  </div>`;
}

const consumerColumns = [
  { key: "consumer_tag", title: "Consumer", render: (one) => html`<${Name} text=${one.consumer_tag} />` },
  { key: "connection", title: "Connection", sort: false, render: ({ channel_details: at }) => html`<${NameLink}
      text=${at.user_provided_name ?? endOf(at)} to=${link("connections", [at.connection_name])} />` },
  { key: "channel", title: "Channel", sort: false, align: "right",
    render: ({ channel_details: at }) => html`<a href=${link("channels", [at.name])}>${number(at.number)}</a>` },
  { key: "messages_unacknowledged", title: "Unacked", align: "right", render: (one) => number(one.messages_unacknowledged) },
  { key: "user", title: "User", sort: false, render: (one) => html`<${Name} text=${one.channel_details.user} />` },
  { key: "activity_status", title: "State" },
  { key: "ack_required", title: "Acks", render: (one) => (one.ack_required ? "yes" : "no") },
  { key: "prefetch_count", title: "Prefetch", align: "right",
    render: (one) => (one.prefetch_count ? number(one.prefetch_count) : "no limit") },
  { key: "arguments", title: "Arguments", sort: false, render: (one) => html`<${Arguments} of=${one.arguments} />` },
];

function Consumers({ row }) {
  const consumers = row.consumer_details ?? [];
  if (consumers.length === 0) {
    return html`<${Empty} title="Nobody consumes this queue">
      <p>${row.messages > 0 ? `${counted(row.messages, "message")} ${row.messages === 1 ? "waits" : "wait"}.` : "Nothing waits."} Try
      <code>leveret consume ${legible(row.name)}</code>.</p>
    <//>`;
  }
  return html`${row.consumers > consumers.length && html`<p>The first ${number(consumers.length)} of
    ${number(row.consumers)} consumers; <code>leveret ctl list_consumers</code> lists all.</p>`}
    <${DataTable} caption="Consumers" columns=${consumerColumns} rows=${consumers} empty="No consumer" />`;
}
