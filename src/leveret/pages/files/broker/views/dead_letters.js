// The dead letters in a queue, by reason and original queue, with a way to move them back.

import { html, useEffect, useState } from "../../vendor/htm-preact.js";
import { moment, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { returnLetters } from "../acts/queues.js";
import { call, path } from "../api.js";
import { Empty, Failure, Name, Panel, QueueLink } from "../parts.js";

/** How many messages are browsed per request, and in all. */
const LOOKED_AT = 1000;
const LOOKED_AT_MOST = 5000;

const REASONS = new Map([
  ["rejected", "a consumer rejected it"],
  ["expired", "its time to live ended"],
  ["maxlen", "the queue was full"],
  ["delivery_limit", "it was delivered too often"],
]);

/** Return rows by reason and queue, from browsed messages. */
export function byReason(messages) {
  const found = new Map();
  for (const message of messages) {
    const death = message.properties?.headers?.["x-death"]?.[0];
    if (!death || typeof death !== "object") {
      continue;
    }
    // A client may have written the header, with any content.
    const [reason, queue, exchange] = [death.reason, death.queue, death.exchange].map((text) => String(text ?? ""));
    const key = JSON.stringify([reason, queue]);
    const row = found.get(key) ?? { reason, queue, exchange, messages: 0, oldest: message.timestamp };
    row.messages += 1;
    row.oldest = Math.min(row.oldest, message.timestamp);
    found.set(key, row);
  }
  return [...found.values()].sort((one, other) => other.messages - one.messages);
}

/** Browse and count the waiting messages; `whole` says whether that was all of them. */
async function load(row, signal) {
  const messages = [];
  let after = null;
  do {
    const body = { count: LOOKED_AT, truncate: 0, ...(after === null ? {} : { after }) };
    const page = await call("POST", path`queues/${row.vhost}/${row.name}/browse`, { body, signal });
    messages.push(...page.items.map(({ properties, timestamp }) => ({ properties, timestamp })));
    after = page.after;
  } while (after !== null && messages.length < LOOKED_AT_MOST);
  return { rows: byReason(messages), whole: after === null, looked: messages.length };
}

export function DeadLetters({ row, reload }) {
  const [state, setState] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const asking = new AbortController();
    const told = (outcome) => !asking.signal.aborted && setState(outcome);
    load(row, asking.signal).then((found) => told({ found }), (error) => told({ error }));
    return () => asking.abort();
  }, [row.vhost, row.name, turn]);
  const again = () => setTurn(turn + 1);
  if (state.error) {
    return html`<${Failure} error=${state.error} retry=${again} />`;
  }
  if (!state.found) {
    return html`<p class="note loading">Loading …</p>`;
  }
  return html`<${Reasons} row=${row} found=${state.found} again=${() => { reload(); again(); }} />`;
}

function Reasons({ row, found, again }) {
  if (found.rows.length === 0) {
    return html`<${Empty} title="There are no dead letters here">
      <p>Messages come here when this queue is bound to the dead letter exchange of another
      (<code>x-dead-letter-exchange</code>) and one is rejected, expires, or finds its queue full.</p>
      ${!found.whole && html`<p>Only the first ${number(found.looked)} waiting messages were examined.</p>`}
    <//>`;
  }
  const columns = [
    { key: "reason", title: "Why", render: (one) => html`<${Name} text=${one.reason} empty="(not told)" />${" "}
        <span class="note">${REASONS.get(one.reason) ?? ""}</span>` },
    { key: "queue", title: "Died in", render: (one) => html`<${QueueLink} vhost=${row.vhost} name=${one.queue} />` },
    { key: "exchange", title: "Published to", render: (one) => html`<${Name} text=${one.exchange ?? ""} empty="(default exchange)" />` },
    { key: "messages", title: "Messages", align: "right", render: (one) => number(one.messages) },
    { key: "oldest", title: "Oldest", render: (one) => (one.oldest ? moment(one.oldest) : "") },
    { key: "act", title: "", sort: false, align: "right", render: (one) => html`<button type="button"
        onClick=${() => returnLetters(row, one, again)}>Put back …</button>` },
  ];
  const note = found.whole ? undefined : `of the first ${number(found.looked)} waiting messages`;
  return html`<${Panel} title="Dead letters by reason" note=${note}>
    <${DataTable} caption="Dead letters by reason" columns=${columns} rows=${found.rows} empty="None" />
  <//>`;
}
