// What lies behind an exchange: its bindings, what they lead to, and so on; drawn, and followed by a key.

import { html, useMemo, useState } from "../vendor/htm-preact.js";
import { legible, number } from "../common/format.js";
import { get, path, query } from "./api.js";
import { useLive } from "./live.js";
import { alternateOf, follow, routesAs } from "./matching.js";
import { counted, Empty, exchangePart, Loaded, QueueLink } from "./parts.js";
import { link } from "./router.js";

const EXCHANGES_MAX = 40;
const BINDINGS_MAX = 500;
const QUEUES_DRAWN = 60;

/** Gather the exchanges and bindings that can be reached from one; `cut` tells what was left out. */
async function gather(vhost, start, signal) {
  const exchanges = new Map();
  const bindings = [];
  const left = [start];
  let cut = false;
  while (left.length > 0) {
    const name = left.shift();
    if (exchanges.has(name)) {
      continue;
    }
    if (exchanges.size >= EXCHANGES_MAX) {
      cut = true;
      break;
    }
    const where = path`exchanges/${vhost}/${exchangePart(name)}`;
    const asked = query({ page: 1, page_size: BINDINGS_MAX });
    const [exchange, page] = await Promise.all([get(where, signal), get(`${where}/bindings/source${asked}`, signal)]);
    exchanges.set(name, exchange);
    bindings.push(...page.items);
    cut ||= page.filtered_count > page.items.length;
    const next = page.items.filter((one) => one.destination_type === "exchange").map((one) => one.destination);
    left.push(...next, ...[alternateOf(exchange)].filter(Boolean));
  }
  return { exchanges, bindings, cut };
}

/** Return the nodes and links of a picture; several bindings between the same two are one link. */
export function drawn(topology, start, reached) {
  const depth = depths(topology, start);
  const last = Math.max(...depth.values()) + 1;
  const queues = [...new Set(topology.bindings.filter((one) => one.destination_type === "queue").map((one) => one.destination))];
  const isLit = (name) => Boolean(reached?.queues.has(name));
  const shown = new Set([...queues.filter(isLit), ...queues.filter((name) => !isLit(name))].slice(0, QUEUES_DRAWN));
  const nodes = [...depth].map(([name, column]) => ({ id: `e:${name}`, name, kind: "exchange", column }));
  nodes.push(...queues.filter((name) => shown.has(name)).map((name) => ({ id: `q:${name}`, name, kind: "queue", column: last })));
  const links = new Map();
  for (const one of topology.bindings) {
    const to = `${one.destination_type === "queue" ? "q" : "e"}:${one.destination}`;
    const id = `${one.source}\n${to}`;
    const found = links.get(id) ?? { from: `e:${one.source}`, to, keys: [], lit: undefined };
    found.keys.push(one.routing_key);
    found.lit = found.lit === "yes" ? "yes" : (reached?.bindings.get(one) ?? found.lit);
    links.set(id, found);
  }
  for (const [name, exchange] of topology.exchanges) {
    const other = alternateOf(exchange);
    if (other && depth.has(other)) {
      const lit = reached?.alternates.get(name);
      links.set(`${name}\nalternate`, { from: `e:${name}`, to: `e:${other}`, keys: ["(alternate: what no binding takes)"], lit });
    }
  }
  const known = new Set(nodes.map((one) => one.id));
  const kept = [...links.values()].filter((one) => known.has(one.from) && known.has(one.to));
  return { ...placed(nodes, kept), links: kept, left: queues.length - shown.size };
}

function depths(topology, start) {
  const depth = new Map([[start, 0]]);
  const left = [start];
  while (left.length > 0) {
    const name = left.shift();
    const own = topology.bindings.filter((one) => one.source === name && one.destination_type === "exchange");
    const next = own.map((one) => one.destination);
    next.push(alternateOf(topology.exchanges.get(name)));
    for (const other of next) {
      if (other !== "" && !depth.has(other) && topology.exchanges.has(other)) {
        depth.set(other, depth.get(name) + 1);
        left.push(other);
      }
    }
  }
  return depth;
}

const WIDTH = 210;
const GAP = 190;
const HEIGHT = 34;
const ROW = 46;

/** Give each node its place: columns by depth, in a column near to what leads to it. */
function placed(nodes, links) {
  const columns = [];
  for (const node of nodes) {
    (columns[node.column] ??= []).push(node);
  }
  const tallest = Math.max(...columns.map((one) => one?.length ?? 0));
  const height = tallest * ROW + 16;
  const at = new Map();
  const sources = new Map();
  for (const one of links) {
    sources.set(one.to, [...(sources.get(one.to) ?? []), one.from]);
  }
  columns.forEach((column, index) => {
    const pulls = new Map(column.map((node) => {
      const from = (sources.get(node.id) ?? []).filter((id) => at.has(id)).map((id) => at.get(id).y);
      return [node.id, from.length ? from.reduce((sum, one) => sum + one, 0) / from.length : 0];
    }));
    const ordered = index === 0 ? column : [...column].sort((one, other) => pulls.get(one.id) - pulls.get(other.id));
    const space = height / ordered.length;
    ordered.forEach((node, row) => {
      node.x = 8 + index * (WIDTH + GAP);
      node.y = space * (row + 0.5) - HEIGHT / 2;
      at.set(node.id, node);
    });
  });
  return { nodes, at, width: columns.length * (WIDTH + GAP) - GAP + 16, height };
}

function short(text, most) {
  const shown = legible(text);
  return [...shown].length > most ? `${[...shown].slice(0, most - 1).join("")}…` : shown;
}

function Picture({ picture, vhost, topology, reached, label }) {
  const asked = reached !== null;
  return html`<div class="picture" tabindex="0" role="group" aria-label=${label}>
    <svg width=${picture.width} height=${picture.height} viewBox=${`0 0 ${picture.width} ${picture.height}`}>
      ${picture.links.map((one) => html`<${Link} one=${one} at=${picture.at} asked=${asked} />`)}
      ${picture.nodes.map((node) => html`<${Node} node=${node} vhost=${vhost} asked=${asked}
        exchange=${topology.exchanges.get(node.name)}
        lit=${node.kind === "queue" ? reached?.queues.get(node.name) : reached?.exchanges.get(node.name)} />`)}
    </svg>
  </div>`;
}

function state(asked, lit) {
  return asked ? (lit ? ` lit ${lit}` : " dim") : "";
}

function Node({ node, vhost, exchange, lit, asked }) {
  const isQueue = node.kind === "queue";
  const to = isQueue ? link("queues", [vhost, node.name]) : link("exchanges", [vhost, exchangePart(node.name)]);
  const name = node.name === "" ? "(default exchange)" : node.name;
  return html`<a href=${to} class=${`node ${node.kind}${state(asked, lit)}`}>
    <title>${`${node.kind} ${legible(name)}`}</title>
    <rect x=${node.x} y=${node.y} width=${WIDTH} height=${HEIGHT} rx=${isQueue ? 3 : HEIGHT / 2} />
    <text x=${node.x + 14} y=${node.y + (isQueue ? 21 : 15)}>${short(name, 24)}</text>
    ${!isQueue && html`<text class="under" x=${node.x + 14} y=${node.y + 28}>${exchange ? routesAs(exchange) : ""}</text>`}
  </a>`;
}

function Link({ one, at, asked }) {
  const [from, to] = [at.get(one.from), at.get(one.to)];
  const [x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2];
  const [x2, y2] = [to.x, to.y + HEIGHT / 2];
  const bend = Math.max(40, Math.abs(x2 - x1) / 2);
  const keys = one.keys.map((key) => (key === "" ? "(no key)" : key)).join(", ");
  return html`<g class=${`link${state(asked, one.lit)}`}>
    <title>${legible(keys)}</title>
    <path d=${`M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`} />
    <text x=${x2 - 8} y=${y2 - 5} text-anchor="end">${short(keys, 20)}</text>
  </g>`;
}

/** The picture behind an exchange, with the fields of a message that is followed through it. */
export function Topology({ vhost, start }) {
  const live = useLive((signal) => gather(vhost, start, signal), `topology ${vhost}\n${start}`, { every: 10000 });
  const [key, setKey] = useState("");
  const [headers, setHeaders] = useState("");
  const [asked, setAsked] = useState(false);
  const field = (label, value, set, placeholder) => html`<label class="inline">${label}
    <input type="text" value=${value} placeholder=${placeholder} spellcheck=${false} autocomplete="off"
      onInput=${(event) => { set(event.currentTarget.value); setAsked(true); }} /></label>`;
  return html`<form class="line" onSubmit=${(event) => { event.preventDefault(); setAsked(true); }}>
      ${field("Key of a message", key, setKey, "such as orders.eu.new")}
      ${field("Headers", headers, setHeaders, '{"format": "pdf"}')}
      <button class="main">Follow it</button>
      ${asked && html`<button type="button" onClick=${() => { setAsked(false); setKey(""); setHeaders(""); }}>Clear</button>`}
    </form>
    <${Loaded} live=${live}>${(topology) => html`<${Followed} topology=${topology} vhost=${vhost} start=${start}
      asked=${asked} given=${key} headers=${headers} />`}<//>`;
}

function parsedHeaders(text) {
  if (!text.trim()) {
    return {};
  }
  try {
    const found = JSON.parse(text);
    return found && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

function Followed({ topology, vhost, start, asked, given, headers }) {
  const table = parsedHeaders(headers);
  const reached = useMemo(
    () => (asked ? follow(topology, start, given, table ?? {}) : null),
    [topology, start, asked, given, headers],
  );
  const picture = useMemo(() => drawn(topology, start, reached), [topology, start, reached]);
  if (topology.bindings.length === 0 && topology.exchanges.size < 2) {
    return html`<${Empty} title="Nothing is bound to this exchange">
      <p>A message that is published to it is returned to a publisher that asks for it (mandatory), and dropped otherwise.</p>
    <//>`;
  }
  return html`${table === null && html`<p class="hint">The headers are not a JSON object yet; they count as empty.</p>`}
    ${reached && html`<${Verdict} reached=${reached} vhost=${vhost} given=${given} />`}
    <${Picture} picture=${picture} vhost=${vhost} topology=${topology} reached=${reached}
      label=${`Exchanges and queues behind ${legible(start)}`} />
    ${(picture.left > 0 || topology.cut) && html`<p class="note">${picture.left > 0 && `${counted(picture.left, "more queue")} not drawn. `}
      ${topology.cut && `Only the first ${number(BINDINGS_MAX)} bindings of an exchange and ${number(EXCHANGES_MAX)} exchanges are looked at.`}</p>`}`;
}

function Verdict({ reached, vhost, given }) {
  const queues = [...reached.queues];
  const sure = queues.filter(([, how]) => how === "yes");
  const maybe = queues.filter(([, how]) => how === "maybe");
  const list = (of) => of.slice(0, 20).map(([name]) => html`<li><${QueueLink} vhost=${vhost} name=${name} /></li>`);
  if (queues.length === 0) {
    return html`<div class="verdict none" role="status">No queue gets a message with the key “${legible(given)}”: it is
      returned to a publisher that asks for it (mandatory), and dropped otherwise.</div>`;
  }
  return html`<div class="verdict" role="status">
    ${sure.length > 0 && html`<p>A message with the key “${legible(given)}” goes to ${counted(sure.length, "queue")}:</p><ul class="reached">${list(sure)}</ul>`}
    ${maybe.length > 0 && html`<p>It may go to ${counted(maybe.length, "queue")}, of which the exchange chooses:</p><ul class="reached">${list(maybe)}</ul>`}
  </div>`;
}
