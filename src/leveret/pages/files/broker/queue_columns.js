// The columns of lists of queues.

import { html } from "../vendor/htm-preact.js";
import { bytes, number, rate, rateKnown } from "../common/format.js";
import { Sparkline } from "../common/plot.js";
import { Features } from "./features.js";
import { Name, QueueLink } from "./parts.js";

/** The fields that the columns need. */
export const QUEUE_FIELDS = [
  "vhost", "name", "type", "durable", "auto_delete", "exclusive", "policy", "effective_policy_definition", "arguments", "consumers",
  "messages", "messages_ready", "messages_unacknowledged", "message_bytes", "messages_details",
  "message_stats.publish_details.rate", "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate", "rates_known",
].join(",");

const rateOf = (row, name) => rateKnown(row, row.message_stats?.[`${name}_details`]);

function depths(row) {
  return [...(row.messages_details?.samples ?? [])].reverse().map((one) => one.sample);
}

const figure = (key, title, shown = number) => ({ key, title, align: "right", sort: true, render: (row) => shown(row[key]) });
const speed = (key, title, stat) => ({ key, title, align: "right", sort: false, render: (row) => rate(rateOf(row, stat)) });

/** All columns of a list of queues. */
export const QUEUE_COLUMNS = [
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
  { key: "features", title: "Features", sort: false, render: (row) => html`<${Features} row=${row} />` },
];

/** Return the columns with some keys. */
export const listColumns = (keys) => QUEUE_COLUMNS.filter((one) => keys.includes(one.key));
