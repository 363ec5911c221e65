// The messages of a queue: browsed without taking them, published to it, or taken out.

import { html, useState } from "../../vendor/htm-preact.js";
import { counted, number } from "../../common/format.js";
import { path, post } from "../api.js";
import { ask, Field, objectOf, say } from "../ask.js";
import { Message } from "../message.js";
import { Empty, Failure, Panel } from "../parts.js";

const PAGE = 20;

export function Messages({ row, reload }) {
  return html`<${Browse} row=${row} />
    <div class="plots">
      <${Publish} vhost=${row.vhost} exchange="amq.default" routingKey=${row.name} done=${reload}
        title="Publish to this queue" note="by the default exchange" />
      <${Take} row=${row} done=${reload} />
    </div>`;
}

function useBrowse(row) {
  const [state, setState] = useState({ items: null, after: null, error: null, busy: false, asked: {} });
  const look = async (asked, after) => {
    setState((old) => ({ ...old, busy: true, error: null }));
    const body = { count: PAGE };
    if (asked.key) {
      body["routing-key"] = asked.key;
    }
    if (after !== null) {
      body.after = after;
    }
    try {
      const page = await post(path`queues/${row.vhost}/${row.name}/browse`, body);
      setState((old) => ({
        items: after === null ? page.items : [...old.items, ...page.items],
        after: page.after, error: null, busy: false, asked,
      }));
    } catch (error) {
      setState((old) => ({ ...old, error, busy: false }));
    }
  };
  return [state, look];
}

function Browse({ row }) {
  const [state, look] = useBrowse(row);
  const [key, setKey] = useState("");
  const submit = (event) => {
    event.preventDefault();
    look({ key }, null);
  };
  return html`<${Panel} title="Browse" note="shows waiting messages; none is taken, and their order stays">
    <form class="line" onSubmit=${submit}>
      <label class="inline">Key
        <input type="text" value=${key} placeholder="any; * and # as in topics" spellcheck=${false}
          onInput=${(event) => setKey(event.currentTarget.value)} /></label>
      <button class="main" disabled=${state.busy}>${state.items ? "Refresh" : "Show messages"}</button>
    </form>
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${state.items && state.items.length === 0 && html`<${Empty} title="No message waits">
      <p>${state.asked.key ? "No message has such a key. " : ""}${row.messages_unacknowledged > 0
        ? `${number(row.messages_unacknowledged)} are unacked, and are not shown.`
        : "Publish one below."}</p>
    <//>`}
    ${(state.items ?? []).map((one) => html`<${Message} key=${one.sequence} message=${one} />`)}
    ${state.after !== null && html`<p><button type="button" disabled=${state.busy}
      onClick=${() => look(state.asked, state.after)}>Show more</button></p>`}
  <//>`;
}

const MODES = [["2", "persistent"], ["1", "transient"]];

/** A form that publishes to an exchange; `routingKey` is the initial key. */
export function Publish({ vhost, exchange, routingKey = "", done, title, note }) {
  const [values, setValues] = useState({ key: routingKey, payload: "", headers: "", mode: "2", type: "" });
  const [state, setState] = useState({ busy: false, error: null });
  const set = (name, value) => setValues((old) => ({ ...old, [name]: value }));
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: null });
    try {
      say(await publish(vhost, exchange, values));
      setState({ busy: false, error: null });
      done?.();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  const fields = [
    { name: "key", title: "Key" },
    { name: "payload", title: "Body", kind: "long", rows: 5 },
    { name: "headers", title: "Headers", kind: "long", rows: 2, placeholder: '{"tenant": "a"}', hint: "a JSON object, or empty" },
    { name: "type", title: "Content type", placeholder: "application/json" },
    { name: "mode", title: "Delivery", kind: "choice", options: MODES },
  ];
  return html`<${Panel} title=${title} note=${note}>
    <form onSubmit=${submit} aria-label=${title}>
      ${fields.map((field) => html`<${Field} field=${field} value=${values[field.name]} set=${set} />`)}
      ${state.error && html`<${Failure} error=${state.error} />`}
      <button class="main" disabled=${state.busy}>Publish</button>
    </form>
  <//>`;
}

async function publish(vhost, exchange, { key, payload, headers, mode, type }) {
  const properties = { delivery_mode: Number(mode) };
  const given = objectOf(headers, "The headers");
  if (Object.keys(given).length > 0) {
    properties.headers = given;
  }
  if (type) {
    properties.content_type = type;
  }
  const answer = await post(path`exchanges/${vhost}/${exchange}/publish`, {
    routing_key: key, payload, payload_encoding: "string", properties,
  });
  return answer.routed
    ? "The message is confirmed: a queue has it."
    : "The message is confirmed, but no queue took it: no binding matches this key.";
}

const ACKS = [
  ["ack_requeue_true", "put them back (marked as redelivered)"],
  ["ack_requeue_false", "remove them for good"],
  ["reject_requeue_false", "reject them: they become dead letters, or are dropped"],
];

function Take({ row, done }) {
  const [taken, setTaken] = useState(null);
  const get = async ({ count, ackmode }) => {
    const body = { count: Number(count), ackmode, encoding: "auto" };
    const found = await post(path`queues/${row.vhost}/${row.name}/get`, body);
    setTaken(found);
    done();
    return found.length === 0 ? "No message waits." : `${counted(found.length, "message")} got.`;
  };
  const open = () =>
    ask({
      title: `Get messages of queue '${row.name}'`,
      says: "This takes messages like a consumer. To only look at them, browse.",
      action: "Get",
      fields: [
        { name: "count", title: "How many", kind: "number", min: 1, max: 1000, value: "1", required: true },
        { name: "ackmode", title: "Then", kind: "choice", value: "ack_requeue_true", options: ACKS },
      ],
      run: get,
    });
  return html`<${Panel} title="Get" note="as a consumer: with an ack">
    <p><button type="button" onClick=${open}>Get messages …</button></p>
    ${taken && taken.length === 0 && html`<p class="note">No message waited.</p>`}
    ${(taken ?? []).map((one, index) => html`<${Message} key=${index} message=${one} />`)}
  <//>`;
}
