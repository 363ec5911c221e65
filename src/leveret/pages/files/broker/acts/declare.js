// Declaring queues, exchanges, streams and bindings: the forms, and their requests.

import { ask, objectOf, prepared } from "../ask.js";
import { get, path, post, put } from "../api.js";
import { exchangePart } from "../parts.js";
import { go } from "../router.js";
import { chosenVhost } from "../store.js";

/** Return the field for a vhost. */
export async function vhostField() {
  const vhosts = await get("vhosts?columns=name");
  const names = vhosts.map((one) => one.name);
  const value = chosenVhost.value || (names.includes("/") ? "/" : names[0]);
  return { name: "vhost", title: "Vhost", kind: "choice", value, options: names.map((name) => [name, name]) };
}

const QUEUE_TYPES = [
  ["classic", "classic: each message is consumed once"],
  ["quorum", "quorum: like classic, with a delivery limit"],
  ["stream", "stream: kept and read by offsets"],
];

export function declareQueue(done, type = "classic") {
  return prepared(async () => ask({
    title: "Declare a queue",
    action: "Declare",
    fields: [
      await vhostField(),
      { name: "name", title: "Name", required: true },
      { name: "type", title: "Type", kind: "choice", value: type, options: QUEUE_TYPES },
      { name: "durable", title: "Durable: outlives a restart", kind: "check", value: true,
        when: (values) => values.type === "classic" },
      { name: "auto_delete", title: "Delete it with its last consumer", kind: "check", value: false,
        when: (values) => values.type === "classic" },
      { name: "arguments", title: "Arguments", kind: "long",
        placeholder: '{"x-max-length": 1000, "x-dead-letter-exchange": "dead"}', hint: "a JSON object, or empty" },
    ],
    run: async ({ vhost, name, type: kind, durable, auto_delete, arguments: given }) => {
      const body = { durable, auto_delete, arguments: { ...objectOf(given, "The arguments"), "x-queue-type": kind } };
      if (kind !== "classic") {
        Object.assign(body, { durable: true, auto_delete: false });
      }
      await put(path`queues/${vhost}/${name}`, body);
      done?.();
      go("queues", [vhost, name]);
      return `Queue '${name}' is declared.`;
    },
  }));
}

const EXCHANGE_TYPES = [
  "direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message", "x-local-random",
  "x-modulus-hash", "x-random", "x-recent-history",
];

export function declareExchange(done) {
  return prepared(async () => ask({
    title: "Declare an exchange",
    action: "Declare",
    fields: [
      await vhostField(),
      { name: "name", title: "Name", required: true },
      { name: "type", title: "Type", kind: "choice", value: "topic", options: EXCHANGE_TYPES.map((one) => [one, one]) },
      { name: "durable", title: "Durable: outlives a restart", kind: "check", value: true },
      { name: "auto_delete", title: "Delete it with its last binding", kind: "check", value: false },
      { name: "internal", title: "Internal: only exchanges publish to it", kind: "check", value: false },
      { name: "arguments", title: "Arguments", kind: "long", placeholder: '{"alternate-exchange": "unrouted"}',
        hint: "a JSON object, or empty; x-delayed-message needs x-delayed-type" },
    ],
    run: async ({ vhost, name, arguments: given, ...rest }) => {
      await put(path`exchanges/${vhost}/${name}`, { ...rest, arguments: objectOf(given, "The arguments") });
      done?.();
      go("exchanges", [vhost, name]);
      return `Exchange '${name}' is declared.`;
    },
  }));
}

/** Open the form for a binding from an exchange, or to a queue if `to` names one. */
export function bind({ vhost, from = "", to = "", done }) {
  ask({
    title: "Bind",
    says: "Messages of the exchange that match the key go to the destination as well.",
    action: "Bind",
    fields: [
      { name: "source", title: "From exchange", value: from, required: true },
      { name: "kind", title: "To", kind: "choice", value: "q", options: [["q", "a queue"], ["e", "an exchange"]] },
      { name: "destination", title: "Name of the destination", value: to, required: true },
      { name: "routing_key", title: "Key", hint: "* stands for one word and # for any, in a topic exchange" },
      { name: "arguments", title: "Arguments", kind: "long", placeholder: '{"x-match": "all", "format": "pdf"}',
        hint: "a JSON object, or empty; a headers exchange matches them" },
    ],
    run: async ({ source, kind, destination, routing_key, arguments: given }) => {
      const where = path`bindings/${vhost}/e/${exchangePart(source)}/${kind}/${destination}`;
      await post(where, { routing_key, arguments: objectOf(given, "The arguments") });
      done();
      return `'${source}' is bound to '${destination}'.`;
    },
  });
}
