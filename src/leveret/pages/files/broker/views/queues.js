// Queues: the list, and (with a vhost and a name in the address) one queue.

import { html } from "../../vendor/htm-preact.js";
import { declareQueue } from "../acts/declare.js";
import { Filter, ListTable, useList } from "../list.js";
import { Empty, Heading } from "../parts.js";
import { QUEUE_COLUMNS, QUEUE_FIELDS } from "../queue_columns.js";
import { chosenVhost, useStore } from "../store.js";
import { QueueView } from "./queue.js";

export function View({ parts, options }) {
  return parts.length >= 2
    ? html`<${QueueView} vhost=${parts[0]} name=${parts[1]} options=${options} key=${parts.join("\n")} />`
    : html`<${Queues} options=${options} />`;
}

const LONGEST_FIRST = { key: "messages_ready", reverse: true };

function Queues({ options }) {
  const vhost = useStore(chosenVhost);
  const extra = { columns: QUEUE_FIELDS, lengths_age: 300, lengths_incr: 10, msg_rates_age: 60, msg_rates_incr: 10 };
  const live = useList("queues", options, { extra, sort: LONGEST_FIRST });
  const empty = html`<${Empty} title=${vhost ? "There is no queue here" : "There is no queue yet"}>
    <p>Clients declare queues; so can you.${vhost && " Other vhosts may have some."}</p>
    <p><button type="button" onClick=${() => declareQueue(live.reload)}>Declare a queue</button></p>
  <//>`;
  return html`<${Heading} title="Queues">
      <${Filter} options=${options} label="Filter by name" />
      <button type="button" onClick=${() => declareQueue(live.reload)}>Declare a queue</button>
    <//>
    <${ListTable} live=${live} columns=${QUEUE_COLUMNS} options=${options} caption="Queues" empty=${empty} sort=${LONGEST_FIRST} />`;
}
