// Queues: the list, and (with a vhost and a name in the address) one queue.

import { html } from "../../vendor/htm-preact.js";
import { bytes, number, rate, rateKnown } from "../../common/format.js";
import { Sparkline } from "../../common/plot.js";
import { declareQueue } from "../acts/declare.js";
import { Filter, ListTable, useList } from "../list.js";
import { Empty, Heading, Name, QueueLink, Tag } from "../parts.js";
import { link } from "../router.js";
import { chosenVhost, useStore } from "../store.js";
import { QueueView } from "./queue.js";

export function View({ parts, options }) {
  return parts.length >= 2
    ? html`<${QueueView} vhost=${parts[0]} name=${parts[1]} options=${options} key=${parts.join("\n")} />`
    : html`<${Queues} options=${options} />`;
}

const COLUMNS = [
  "vhost", "name", "type", "durable", "auto_delete", "exclusive", "policy", "arguments", "consumers",
  "messages", "messages_ready", "messages_unacknowledged", "message_bytes", "messages_details",
  "message_stats.publish_details.rate", "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate", "rates_known",
].join(",");

const rateOf = (row, name) => rateKnown(row, row.message_stats?.[`${name}_details`]);

function depths(row) {
  return [...(row.messages_details?.samples ?? [])].reverse().map((one) => one.sample);
}

/** The marks of a queue: durability and lifetime, and the policy in effect. */
export function Marks({ row }) {
  return html`<span class="marks">
    ${!row.durable && html`<${Tag} text="transient" title="Does not survive a restart of the broker" />`}
    ${row.auto_delete && html`<${Tag} text="auto-delete" title="Deleted with its last consumer" />`}
    ${row.exclusive && html`<${Tag} text="exclusive" title="Belongs to one connection and ends with it" />`}
    ${row.policy && html`<a class="tag" href=${link("policies", [row.vhost, row.policy])}
      title="The policy that is in effect"><${Name} text=${row.policy} /></a>`}
  </span>`;
}

const figure = (key, title, shown = number) => ({ key, title, align: "right", sort: true, render: (row) => shown(row[key]) });
const speed = (key, title, stat) => ({ key, title, align: "right", sort: false, render: (row) => rate(rateOf(row, stat)) });

const columns = [
  { key: "name", title: "Queue", sort: true,
    render: (row) => html`<${QueueLink} vhost=${row.vhost} name=${row.name} />` },
  { key: "vhost", title: "Vhost", sort: true, render: (row) => html`<${Name} text=${row.vhost} />` },
  { key: "type", title: "Type", sort: true, minor: true },
  figure("messages_ready", "Ready"),
  figure("messages_unacknowledged", "Unacked"),
  { key: "depth", title: "5 minutes", sort: false,
    render: (row) => html`<${Sparkline} values=${depths(row)} width=${72} label="Messages in the last five minutes" />` },
  speed("in", "In", "publish"),
  speed("out", "Out", "deliver_get"),
  speed("acked", "Acked", "ack"),
  { key: "consumers", title: "Consumers", align: "right", sort: true,
    render: (row) => row.consumers === 0 && row.messages > 0 && row.type !== "stream"
      ? html`<span class="warn-text" title="Messages wait without a consumer">0</span>`
      : number(row.consumers) },
  figure("message_bytes", "Size", bytes),
  { key: "marks", title: "Marks", sort: false, render: (row) => html`<${Marks} row=${row} />` },
];

function Queues({ options }) {
  const vhost = useStore(chosenVhost);
  const shown = columns.filter((one) => !(vhost && one.key === "vhost"));
  const extra = { columns: COLUMNS, lengths_age: 300, lengths_incr: 10, msg_rates_age: 60, msg_rates_incr: 10 };
  const live = useList("queues", options, { extra });
  const empty = html`<${Empty} title=${vhost ? "There is no queue here" : "There is no queue yet"}>
    <p>Clients declare queues; so can you.${vhost && " Other vhosts may have some."}</p>
    <p><button type="button" onClick=${() => declareQueue(live.reload)}>Declare a queue</button></p>
  <//>`;
  return html`<${Heading} title="Queues">
      <${Filter} options=${options} label="Filter by name" />
      <button type="button" onClick=${() => declareQueue(live.reload)}>Declare a queue</button>
    <//>
    <${ListTable} live=${live} columns=${shown} options=${options} caption="Queues" empty=${empty} />`;
}
