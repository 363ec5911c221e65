// The page of `deadletter`: why, where and when messages were dead-lettered.

import { html, useMemo } from "../vendor/htm-preact.js";
import { BarList } from "../common/bars.js";
import { bytes, counted, moment, number } from "../common/format.js";
import { Graph } from "../common/graph.js";
import { BarPlot } from "../common/plot.js";
import { DataTable } from "../common/table.js";
import { CutNote, exchangeName, JobFigure, JobPart, keyName, perSpan, recordsOf, Short, showJob } from "./shell.js";

/** Queues and kinds of error in the picture; the others are combined. */
const DRAWN_MOST = 10;

function summed(rows, nameOf) {
  const sums = new Map();
  for (const row of rows) {
    sums.set(nameOf(row), (sums.get(nameOf(row)) ?? 0) + row.letters);
  }
  return [...sums].sort((one, other) => other[1] - one[1]);
}

/** Return the picture: from the queues of the dead letters to the reasons, and to the kinds of error. */
function reasonsGraph(groups) {
  const layer = (of, at, prefix, kind) => {
    const sums = summed(groups, of);
    const kept = new Set(sums.slice(0, DRAWN_MOST).map(([name]) => name));
    const idOf = (row) => (kept.has(of(row)) ? `${prefix} ${of(row)}` : `${prefix}…`);
    const nodes = sums.slice(0, DRAWN_MOST).map(([name, letters]) => ({ id: `${prefix} ${name}`, label: name || "(no error told)", note: counted(letters, "letter"), kind, layer: at }));
    const rest = sums.slice(DRAWN_MOST).reduce((sum, [, letters]) => sum + letters, 0);
    if (rest > 0) {
      nodes.push({ id: `${prefix}…`, label: counted(sums.length - DRAWN_MOST, "other"), note: counted(rest, "letter"), kind: "rest", layer: at });
    }
    return { idOf, nodes };
  };
  const layers = [layer((row) => row.queue, 0, "q", "queue"), layer((row) => row.reason, 1, "r", "warn"), layer((row) => row.kind, 2, "e", "bad")];
  const weights = new Map();
  for (const row of groups) {
    for (const [one, other] of [[0, 1], [1, 2]]) {
      const id = JSON.stringify([layers[one].idOf(row), layers[other].idOf(row)]);
      weights.set(id, (weights.get(id) ?? 0) + row.letters);
    }
  }
  const links = [...weights].map(([id, weight]) => ({ from: JSON.parse(id)[0], to: JSON.parse(id)[1], weight, note: counted(weight, "letter") }));
  return { nodes: layers.flatMap((one) => one.nodes), links };
}

const GROUPS = [
  { key: "queue", title: "Queue" }, { key: "reason", title: "Reason" },
  { key: "kind", title: "Kind of error", render: (row) => html`<${Short} text=${row.kind} empty="(no error told)" />` },
  { key: "fingerprint", title: "Fingerprint" },
  { key: "letters", title: "Letters", align: "right" },
  { key: "bytes", title: "Bytes", align: "right", render: (row) => bytes(row.bytes) },
  { key: "first_at", title: "First", render: (row) => moment(row.first_at) },
  { key: "last_at", title: "Last", render: (row) => moment(row.last_at) },
];

const LETTERS = [
  { key: "queue", title: "Queue" }, { key: "reason", title: "Reason" },
  { key: "stream", title: "Letter", value: (row) => `${row.stream} ${row.offset ?? ""}` },
  { key: "published", title: "Published to", value: (row) => `${exchangeName(row.exchange)} / ${keyName(row.routing_key ?? "")}` },
  { key: "died_times", title: "Deaths", align: "right" },
  { key: "error", title: "Error" }, { key: "body", title: "Body" },
];

function DeadletterBody({ data }) {
  const groups = useMemo(() => recordsOf(data.groups), []);
  const picture = useMemo(() => reasonsGraph(groups), []);
  const { plot } = data;
  const reasons = summed(groups, (row) => row.reason).map(([label, value]) => ({ label, value }));
  return html`<div class="figures">
      <${JobFigure} name="Dead letters" value=${number(data.letters)} warn=${data.letters > 0} />
      <${JobFigure} name="In bodies" value=${bytes(data.bytes)} />
      <${JobFigure} name="Groups" value=${number(data.groups.total)} />
      <${JobFigure} name="Other messages" value=${number(data.others)} note="no dead letters" />
    </div>
    ${plot.seconds.length === 0
      ? html`<p class="panel note">No dead letter has a time, so there is no plot.</p>`
      : html`<${BarPlot} title=${`Letters ${perSpan(data.bar)}`} series=${plot.names.map((label) => ({ label, unit: "" }))} data=${[plot.seconds, ...plot.counts]} step=${plot.step} />`}
    <${BarList} title="Reasons" rows=${reasons} whole=${data.letters} empty="There are no dead letters." />
    <${Graph} title="Where and why" note="queue → reason → kind of error, in the groups below" nodes=${picture.nodes} links=${picture.links} empty="There are no dead letters." />
    <${JobPart} title="Groups" note="queue, reason and kind of error"><${CutNote} table=${data.groups} what="groups with the most letters" />
      <${DataTable} caption="Groups" rows=${groups} columns=${GROUPS} sort=${{ key: "letters", reverse: true }} /><//>
    <${JobPart} title="The last letter of each group">
      <${DataTable} caption="Letters" rows=${groups} columns=${LETTERS} /><//>`;
}

showJob("deadletter", DeadletterBody);
