// The topology behind an exchange: its bindings, their destinations, and so on; drawn, and followed for a key.

import { html, useMemo, useState } from "../vendor/htm-preact.js";
import { counted, legible, number } from "../common/format.js";
import { columnsOf } from "../common/layers.js";
import { DataTable } from "../common/table.js";
import { get, path, query } from "./api.js";
import { useLive } from "./live.js";
import { alternateOf, follow, routesAs } from "./matching.js";
import { Arguments, Empty, ExchangeLink, exchangePart, Loaded, Name, Panel, QueueLink } from "./parts.js";
import { link } from "./router.js";

const EXCHANGES_MAX = 40;
const BINDINGS_MAX = 500;
const QUEUES_DRAWN = 60;

/** An exchange with more bindings is a table, and a picture only of what a key reaches. */
const BINDINGS_DRAWN = 12;

/** The destinations of a key that a table names. */
const DESTINATIONS_NAMED = 8;

/** Collect the exchanges and bindings that can be reached from one; `cut` says what was omitted. */
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
      links.set(`${name}\nalternate`, { from: `e:${name}`, to: `e:${other}`, keys: ["(what none takes)"], alternate: true, lit });
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

const WIDTH = 190;
/** The height of a node, and the part of it for each link that ends at it. */
const HEIGHT = 34;
const END = 18;
/** The space between two columns: for curves, then for the keys of links to the second. */
const CURVES = 68;
const KEYS = 136;
const GAP = CURVES + KEYS;
/** The space between two nodes of a column, and the height of a lane in which a link passes a column. */
const SPACE = 12;
const LANE = 8;
const MARGIN = 8;
const LETTER = 6.9;

/**
 * Place each node and route each link.
 *
 * A link that passes a column has a lane in it, so that it goes behind no node; one that leads back
 * or to the same column turns around on the right-hand side.
 */
function placed(nodes, links) {
  const ends = new Map(nodes.map((node) => [node.id, links.filter((one) => one.to === node.id).length]));
  const items = nodes.map((node) => ({ ...node, layer: node.column, height: Math.max(HEIGHT, END * ends.get(node.id)) }));
  const at = new Map(items.map((item) => [item.id, item]));
  const steps = [];
  for (const one of links) {
    const [from, to] = [at.get(one.from).column, at.get(one.to).column];
    const [first, last] = to > from ? [from + 1, to - 1] : [to + 1, from];
    const passed = Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => ({
      id: `lane\n${one.from}\n${one.to}\n${one.alternate}\n${first + place}`, layer: first + place, height: LANE,
    }));
    items.push(...passed);
    one.lanes = to > from ? passed : passed.reverse();
    const way = [one.from, ...passed.map((lane) => lane.id), one.to];
    way.slice(1).forEach((id, place) => steps.push({ from: way[place], to: id }));
  }
  const columns = columnsOf(items, steps);
  const tall = (column) => column.reduce((sum, item) => sum + item.height + SPACE, -SPACE);
  const height = Math.max(...columns.map(tall)) + 2 * MARGIN;
  columns.forEach((column, index) => {
    const space = (height - 2 * MARGIN - tall(column)) / column.length;
    let y = MARGIN + space / 2;
    for (const item of column) {
      Object.assign(item, { x: MARGIN + index * (WIDTH + GAP), y });
      y += item.height + SPACE + space;
    }
  });
  endpoints(links, at);
  align(columns, links.filter((one) => at.get(one.to).column > at.get(one.from).column), height);
  endpoints(links, at);
  columns.forEach((column) => column.length === 1 && column[0].kind && stretch(column[0], links, at));
  const back = links.some((one) => at.get(one.to).column <= at.get(one.from).column);
  return { nodes: items.filter((item) => item.kind), at, width: columns.length * (WIDTH + GAP) - GAP + 2 * MARGIN + (back ? CURVES : 0), height };
}

/** Set the ends of each link on its nodes (`y1`, `y2`): the ends at one node are in an order with few crossings. */
function endpoints(links, at) {
  const middle = (item) => item.y + item.height / 2;
  const before = (one) => middle(one.lanes[one.lanes.length - 1] ?? at.get(one.from));
  for (const node of at.values()) {
    const own = links.filter((one) => one.to === node.id).sort((one, other) => before(one) - before(other));
    own.forEach((one, place) => (one.y2 = node.y + (node.height * (place + 0.5)) / own.length));
    links.filter((one) => one.from === node.id).forEach((one) => (one.y1 = middle(node)));
  }
}

/** Move the lanes of links to the heights of their targets, as far as the order of each column permits. */
function align(columns, links, height) {
  const wanted = new Map(links.flatMap((one) => one.lanes.map((lane) => [lane.id, one.y2 - LANE / 2])));
  for (const column of columns) {
    let free = 0;
    const moved = column.map((item) => {
      const y = Math.max(free, wanted.get(item.id) ?? item.y);
      free = y + item.height + SPACE / 2;
      return y;
    });
    if (free <= height) {
      column.forEach((item, place) => (item.y = moved[place]));
    }
  }
}

/** Stretch a node that is alone in its column over the heights of its targets, so that links to them are straight. */
function stretch(node, links, at) {
  const own = links.filter((one) => one.from === node.id && at.get(one.to).column > node.column);
  own.forEach((one) => (one.y1 = one.lanes.length > 0 ? one.lanes[0].y + LANE / 2 : one.y2));
  const top = Math.max(2, Math.min(node.y, ...own.map((one) => one.y1 - HEIGHT / 2)));
  const bottom = Math.max(node.y + node.height, ...own.map((one) => one.y1 + HEIGHT / 2));
  Object.assign(node, { y: top, height: bottom - top });
}

/** Return the path data of a link, and the position of its keys. */
function wayOf(one, at) {
  const [from, to] = [at.get(one.from), at.get(one.to)];
  const x1 = from.x + WIDTH;
  const curve = (x, y, toX, toY) => `C${(x + toX) / 2},${y} ${(x + toX) / 2},${toY} ${toX},${toY}`;
  let [x, y, way] = [x1, one.y1, `M${x1},${one.y1}`];
  if (to.column > from.column) {
    for (const lane of one.lanes) {
      const passes = lane.y + LANE / 2;
      way += `${curve(x, y, lane.x - KEYS, passes)}L${lane.x + WIDTH},${passes}`;
      [x, y] = [lane.x + WIDTH, passes];
    }
    return { way: `${way}${curve(x, y, to.x - KEYS, one.y2)}L${to.x},${one.y2}`, x: to.x - 10, anchor: "end" };
  }
  const turn = (toX, toY) => `C${x + CURVES},${y} ${toX + CURVES},${toY} ${toX},${toY}`;
  const [next, ...others] = one.lanes;
  if (next === undefined || from === to) {
    // To itself or a neighbour in its column.
    const end = from === to ? to.y + to.height - 6 : one.y2;
    return { way: `${way}${turn(to.x + WIDTH, end)}`, x: to.x + WIDTH + 14, y: end, anchor: "start" };
  }
  way += `${turn(next.x + WIDTH, next.y + LANE / 2)}L${next.x},${next.y + LANE / 2}`;
  [x, y] = [next.x, next.y + LANE / 2];
  for (const lane of others) {
    const passes = lane.y + LANE / 2;
    way += `${curve(x, y, lane.x + WIDTH, passes)}L${lane.x},${passes}`;
    [x, y] = [lane.x, passes];
  }
  return { way: `${way}${curve(x, y, to.x + WIDTH, one.y2)}`, x: to.x + WIDTH + 14, anchor: "start" };
}

function short(text, most) {
  const shown = legible(text);
  return [...shown].length > most ? `${[...shown].slice(0, most - 1).join("")}…` : shown;
}

function Picture({ picture, vhost, topology, reached, label }) {
  const asked = reached !== null;
  // Reached nodes and links are drawn over the others.
  const links = [...picture.links].sort((one, other) => Number(Boolean(one.lit)) - Number(Boolean(other.lit)));
  const ways = links.map((one) => [one, wayOf(one, picture.at)]);
  return html`<div class="picture sideways" tabindex="0" role="group" aria-label=${label}>
    <svg width=${picture.width} height=${picture.height} viewBox=${`0 0 ${picture.width} ${picture.height}`}>
      ${ways.map(([one, { way }]) => html`<path class=${`link${state(asked, one.lit)}`} d=${way} />`)}
      ${ways.map(([one, way]) => html`<${Keys} one=${one} way=${way} asked=${asked} />`)}
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
  const middle = node.y + node.height / 2;
  return html`<a href=${to} class=${`node ${node.kind}${state(asked, lit)}`}>
    <title>${`${node.kind} ${legible(name)}`}</title>
    <rect x=${node.x} y=${node.y} width=${WIDTH} height=${node.height} rx=${isQueue ? 3 : HEIGHT / 2} />
    <text x=${node.x + 14} y=${middle + (isQueue ? 4 : -2)}>${short(name, 22)}</text>
    ${!isQueue && html`<text class="under" x=${node.x + 14} y=${middle + 11}>${exchange ? routesAs(exchange) : ""}</text>`}
  </a>`;
}

/** The keys of a link, on a background, so that no line strikes them through. */
function Keys({ one, way, asked }) {
  const keys = one.keys.map((key) => (key === "" ? "(no key)" : key)).join(", ");
  const shown = short(keys, 18);
  const width = [...shown].length * LETTER + 8;
  const y = way.y ?? one.y2;
  return html`<g class=${`key${state(asked, one.lit)}`}>
    <title>${legible(keys)}</title>
    <rect x=${way.anchor === "end" ? way.x - width + 4 : way.x - 4} y=${y - 8} width=${width} height="16" />
    <text x=${way.x} y=${y} text-anchor=${way.anchor}>${shown}</text>
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
      ${field("Routing key", key, setKey, "such as orders.eu.new")}
      ${field("Headers", headers, setHeaders, '{"format": "pdf"}')}
      <button class="main">Trace route</button>
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
  const isMany = topology.bindings.filter((one) => one.source === start).length > BINDINGS_DRAWN;
  const shown = useMemo(() => (isMany && reached ? reachedOf(topology, reached) : topology), [topology, reached, isMany]);
  const picture = useMemo(() => drawn(shown, start, reached), [shown, start, reached]);
  if (topology.bindings.length === 0 && topology.exchanges.size < 2) {
    return html`<${Empty} title="Nothing is bound to this exchange">
      <p>A message that is published to it is returned to a publisher that asks for it (mandatory), and dropped otherwise.
      Bind a queue to it, here or by a client, and its messages are kept.</p>
    <//>`;
  }
  return html`${table === null && html`<p class="hint">The headers are not a JSON object yet; they count as empty.</p>`}
    ${reached && html`<${Verdict} reached=${reached} vhost=${vhost} given=${given} />`}
    ${(!isMany || picture.links.length > 0 && reached) && html`<${Picture} picture=${picture} vhost=${vhost} topology=${shown} reached=${reached}
      label=${`Exchanges and queues behind ${legible(start)}`} />`}
    <div class=${isMany ? "" : "beside-picture"}><${ByKey} topology=${topology} start=${start} reached=${reached} vhost=${vhost} /></div>
    ${((!isMany && picture.left > 0) || topology.cut) && html`<p class="note">${!isMany && picture.left > 0 && `${counted(picture.left, "more queue")} not drawn. `}
      ${topology.cut && `Only the first ${number(BINDINGS_MAX)} bindings of an exchange and ${number(EXCHANGES_MAX)} exchanges are shown.`}</p>`}`;
}

/** Return the part of a topology that a message reaches. */
function reachedOf(topology, reached) {
  return { exchanges: new Map([...topology.exchanges].filter(([name]) => reached.exchanges.has(name))), bindings: [...reached.bindings.keys()] };
}

/** The bindings of an exchange by key, each with its destinations; only those that a message follows, if one is asked for. */
function ByKey({ topology, start, reached, vhost }) {
  const rows = new Map();
  for (const one of topology.bindings.filter((row) => row.source === start && (!reached || reached.bindings.has(row)))) {
    const id = JSON.stringify([one.routing_key, one.arguments]);
    const row = rows.get(id) ?? { routing_key: one.routing_key, arguments: one.arguments, to: [] };
    row.to.push(one);
    rows.set(id, row);
  }
  const names = (row) => row.to.map((one) => one.destination).join(" ");
  const to = (one) => (one.destination_type === "queue"
    ? html`<${QueueLink} vhost=${vhost} name=${one.destination} />` : html`<${ExchangeLink} vhost=${vhost} name=${one.destination} />`);
  const columns = [
    { key: "routing_key", title: "Key", render: (row) => html`<${Name} text=${row.routing_key} empty="(none)" />` },
    { key: "arguments", title: "Arguments", sort: false, text: (row) => JSON.stringify(row.arguments), render: (row) => html`<${Arguments} of=${row.arguments} />` },
    { key: "to", title: "Destinations", value: names, render: (row) => html`<span class="marks">${row.to.slice(0, DESTINATIONS_NAMED).map(to)}
      ${row.to.length > DESTINATIONS_NAMED && html`<span class="note">and ${number(row.to.length - DESTINATIONS_NAMED)} more</span>`}</span>` },
  ];
  const hasArguments = [...rows.values()].some((row) => Object.keys(row.arguments ?? {}).length > 0);
  return html`<${Panel} title=${reached ? "Bindings that it follows" : "Bindings by key"} wide>
    <${DataTable} caption="Bindings by key" columns=${columns.filter((one) => hasArguments || one.key !== "arguments")}
      rows=${[...rows.values()]} sort=${{ key: "routing_key", reverse: false }} empty="No binding fits." /><//>`;
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
