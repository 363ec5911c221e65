// The features of queues and exchanges as badges, with RabbitMQ's abbreviations.

import { html } from "../vendor/htm-preact.js";
import { legible } from "../common/format.js";
import { Name } from "./parts.js";
import { link } from "./router.js";

/** The badges of arguments, by the name of the argument without `x-`; a policy may set most of them. */
const BADGES = {
  "message-ttl": "TTL", "max-length": "Lim", "max-length-bytes": "Lim", "dead-letter-exchange": "DLX",
  "max-priority": "Pri", expires: "Exp", "single-active-consumer": "SAC", "alternate-exchange": "AE",
};

/** Arguments that another column shows. */
const SHOWN_ELSEWHERE = ["queue-type"];

/** Return badges and what they mean: `[[badge, meaning], …]`. */
function badgesOf(row) {
  const found = new Map();
  const add = (badge, meaning) => found.set(badge, [...(found.get(badge) ?? []), meaning]);
  const isSet = ([, value]) => value !== false && value !== null;
  if (row.durable) {
    add("D", "durable: survives a restart");
  }
  if (row.auto_delete) {
    add("AD", "auto-delete: deleted when no longer used");
  }
  if (row.exclusive) {
    add("Excl", "exclusive: of one connection, and deleted with it");
  }
  if (row.internal) {
    add("I", "internal: only exchanges publish to it");
  }
  for (const [name, value] of Object.entries(row.arguments ?? {}).filter(isSet)) {
    const short = name.replace(/^x-/, "");
    if (!SHOWN_ELSEWHERE.includes(short)) {
      add(Object.hasOwn(BADGES, short) ? BADGES[short] : "Args", `${name} = ${JSON.stringify(value)}`);
    }
  }
  for (const [name, value] of Object.entries(row.effective_policy_definition ?? {}).filter(isSet)) {
    if (Object.hasOwn(BADGES, name)) {
      add(BADGES[name], `${name} = ${JSON.stringify(value)} (policy)`);
    }
  }
  return [...found];
}

/** The badges of a queue or an exchange, and its policy. */
export function Features({ row }) {
  return html`<span class="marks">
    ${badgesOf(row).map(([badge, meanings]) => html`<abbr class="tag" title=${legible(meanings.join("\n"))}>${badge}</abbr>`)}
    ${row.policy && html`<a class="tag" href=${link("policies", [row.vhost, row.policy])} title="The policy that is in effect"><${Name} text=${row.policy} /></a>`}
  </span>`;
}
