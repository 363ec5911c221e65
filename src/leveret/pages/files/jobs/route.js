// The page of `route`: the routes of traffic in a topology, unroutable messages, and unused bindings.

import { html, useMemo, useState } from "../vendor/htm-preact.js";
import { BarList } from "../common/bars.js";
import { bytes, counted, number, percent } from "../common/format.js";
import { Graph } from "../common/graph.js";
import { DataTable } from "../common/table.js";
import { CutNote, exchangeName, JobFigure, JobPart, keyName, recordsOf, Short, showJob } from "./shell.js";

/** Bindings in the picture: more could not be distinguished. */
const LINKS_DRAWN = 60;

const idOf = (kind, name) => `${kind} ${name}`;

/** Return the picture of the bindings with the most messages, of those with a word in them. */
function topologyGraph(bindings, queues, wanted) {
  const word = wanted.trim().toLowerCase();
  const found = bindings.filter((one) => [one.source, one.destination, one.binding_key].some((text) => text.toLowerCase().includes(word)));
  const loads = new Map(queues.map((row) => [row.queue, row]));
  const nodes = new Map();
  const add = (kind, name) => {
    const load = kind === "queue" ? loads.get(name) : undefined;
    const looks = kind === "queue" ? (load?.hot ? "queue warn" : "queue") : "exchange";
    const note = kind === "queue" ? `${counted(load?.messages ?? 0, "message")}${load?.hot ? ", hot" : ""}` : "exchange";
    nodes.set(idOf(kind, name), { id: idOf(kind, name), label: kind === "queue" ? name : exchangeName(name), note, kind: looks });
  };
  const links = found.slice(0, LINKS_DRAWN).map((one) => {
    add("exchange", one.source);
    add(one.to, one.destination);
    const label = [keyName(one.binding_key), one.arguments].filter(Boolean).join(" ");
    return { from: idOf("exchange", one.source), to: idOf(one.to, one.destination), label, weight: one.messages, note: `${label}: ${counted(one.messages, "message")}` };
  });
  return { nodes: [...nodes.values()], links, left: found.length - links.length };
}

function Picture({ bindings, queues, total }) {
  const [wanted, setWanted] = useState("");
  const { nodes, links, left } = useMemo(() => topologyGraph(bindings, queues, wanted), [wanted]);
  const says = left > 0 ? `the ${number(links.length)} bindings with the most messages; ${number(left)} more are in the table` : `${number(links.length)} of ${number(total)} bindings`;
  return html`<div class="table-filter"><input type="search" aria-label="Show bindings with" placeholder="Show bindings with …" value=${wanted}
      spellcheck=${false} onInput=${(event) => setWanted(event.currentTarget.value)} /></div>
    <${Graph} title="Topology" note=${`${says}; a line is as thick as its traffic, a dashed one has none`} nodes=${nodes} links=${links} empty="No binding has this in it." />`;
}

function queueColumns(against, messages) {
  const signed = (count) => (count > 0 ? `+${number(count)}` : number(count));
  const compared = [
    { key: "before", title: "Before", align: "right" },
    { key: "change", title: "Change", align: "right", value: (row) => row.messages - row.before, render: (row) => signed(row.messages - row.before) },
  ];
  return [
    { key: "queue", title: "Queue" },
    { key: "messages", title: "Messages", align: "right" },
    { key: "share", title: "Share", align: "right", value: (row) => row.messages, render: (row) => percent(row.messages, messages) },
    ...(against === null ? [] : compared),
    { key: "bytes", title: "Bytes", align: "right", render: (row) => bytes(row.bytes) },
    { key: "hot", title: "Hot", value: (row) => (row.hot ? "hot" : ""), render: (row) => row.hot && html`<span class="tag warn">hot</span>` },
  ];
}

const ADDRESS = [
  { key: "exchange", title: "Exchange", render: (row) => html`<${Short} text=${row.exchange} empty="(default exchange)" />` },
  { key: "routing_key", title: "Routing key", render: (row) => html`<${Short} text=${row.routing_key} empty="(empty key)" />` },
];
const MESSAGES = { key: "messages", title: "Messages", align: "right" };
const MOVED = [...ADDRESS, MESSAGES, { key: "gains", title: "Comes to" }, { key: "losses", title: "No longer to" }];
const LOST = [...ADDRESS, { key: "reason", title: "Why" }, MESSAGES];
const BINDINGS = [
  { key: "source", title: "Exchange", render: (row) => html`<${Short} text=${row.source} empty="(default exchange)" />` },
  { key: "to", title: "To" }, { key: "destination", title: "Destination" },
  { key: "binding_key", title: "Binding key", render: (row) => html`<${Short} text=${row.binding_key} empty="(empty key)" />` },
  { key: "arguments", title: "Arguments" },
  { ...MESSAGES, render: (row) => (row.messages === 0 && !row.judged ? "not judged" : number(row.messages)) },
];
const MOST_FIRST = { key: "messages", reverse: true };

function RouteBody({ data }) {
  const [queues, bindings] = useMemo(() => [recordsOf(data.queues), recordsOf(data.bindings)], []);
  return html`<div class="figures">
      <${JobFigure} name="Messages" value=${number(data.messages)} />
      ${data.bytes > 0 && html`<${JobFigure} name="In bodies" value=${bytes(data.bytes)} />`}
      <${JobFigure} name="Distinct keys" value=${number(data.keys)} />
      <${JobFigure} name="Unroutable" value=${number(data.unroutable_messages)} note=${percent(data.unroutable_messages, data.messages)} warn=${data.unroutable_messages > 0} />
      <${JobFigure} name="Unused bindings" value=${number(data.unused)} note=${`of ${number(data.bindings.total)}${data.not_judged > 0 ? `; ${number(data.not_judged)} for dead letters not judged` : ""}`} />
      <${JobFigure} name="Hot queues" value=${number(data.hot)} warn=${data.hot > 0} />
      ${data.against !== null && html`<${JobFigure} name="Go elsewhere" value=${number(data.moved_messages)} note="than before" />`}
    </div>
    <${Picture} bindings=${bindings} queues=${queues} total=${data.bindings.total} />
    <${BarList} title="Messages of queues" rows=${queues.filter((row) => row.messages > 0).map((row) => ({ label: row.queue, value: row.messages }))} whole=${data.messages} empty="No queue gets a message." />
    <${JobPart} title="Queues"><${CutNote} table=${data.queues} what="queues with the most messages" />
      <${DataTable} caption="Queues" rows=${queues} columns=${queueColumns(data.against, data.messages)} sort=${MOST_FIRST} empty="The topology has no queue." /><//>
    ${data.against !== null && html`<${JobPart} title="Other queues than in" note=${data.against}><${CutNote} table=${data.moved} what="keys with the most messages" />
      <${DataTable} caption="Moved keys" rows=${recordsOf(data.moved)} columns=${MOVED} sort=${MOST_FIRST} empty="Every message goes where it goes there." /><//>`}
    <${JobPart} title="Unroutable"><${CutNote} table=${data.unroutable} what="keys with the most messages" />
      <${DataTable} caption="Unroutable keys" rows=${recordsOf(data.unroutable)} columns=${LOST} sort=${MOST_FIRST} empty="Every message reaches a queue." /><//>
    <${JobPart} title="Bindings" note="those without messages are unused, unless dead letters may reach them"><${CutNote} table=${data.bindings} what="bindings, the unused and the busiest first" />
      <${DataTable} caption="Bindings" rows=${bindings} columns=${BINDINGS} sort=${{ key: "messages", reverse: false }} empty="The topology has no binding." /><//>`;
}

showJob("route", RouteBody);
