// The page of `replay`: the messages that one run published, from where to where, step by step.

import { html, useMemo } from "../vendor/htm-preact.js";
import { counted, duration, moment, number, percent } from "../common/format.js";
import { Graph } from "../common/graph.js";
import { LinePlot } from "../common/plot.js";
import { DataTable } from "../common/table.js";
import { CutNote, JobFigure, JobPart, recordsOf, showJob } from "./shell.js";

/** Sources in the picture; the table has all. */
const SOURCES_DRAWN = 20;

const figure = (key, title) => ({ key, title, align: "right" });
const SOURCES = [{ key: "source", title: "Source" }, figure("next", "Next offset")];
const STEPS = [
  { key: "source", title: "Source" }, figure("start", "From offset"), figure("end", "To before"), figure("messages", "Messages"),
  figure("known", "Known before"), figure("unroutable", "Unroutable"), { key: "began", title: "Began", render: (row) => moment(row.began) },
  { key: "took", title: "Took", align: "right", value: (row) => row.ended - row.began, render: (row) => duration(row.ended - row.began) },
];
const ENDS = [["published", "", "queue"], ["known", "Published before", "warn"], ["unroutable", "No queue", "bad"]];

/** Return the results of each source's messages, as far as the steps show them. */
function sumsOf(sources, steps) {
  const sums = new Map(sources.slice(0, SOURCES_DRAWN).map((row) => [row.source, { published: 0, known: 0, unroutable: 0 }]));
  for (const row of steps) {
    const sum = sums.get(row.source);
    if (sum) {
      sum.known += row.known;
      sum.unroutable += row.unroutable;
      sum.published += row.messages - row.known - row.unroutable;
    }
  }
  return sums;
}

/** Return the picture: from the sources to the destination, and to the dropped messages. */
function flowGraph(data, sums) {
  const nodes = [...sums.keys()].map((name) => ({ id: `source ${name}`, label: name, note: "source", kind: "exchange", layer: 0 }));
  const shown = ENDS.filter(([field]) => field === "published" || data[field] > 0);
  if (nodes.length > 0) {
    nodes.push(...shown.map(([field, label, kind]) => ({ id: `end ${field}`, label: label || data.destination, note: counted(data[field], "message"), kind, layer: 1 })));
  }
  const links = [...sums].flatMap(([name, sum]) => shown
    .filter(([field]) => field === "published" || sum[field] > 0)
    .map(([field]) => ({ from: `source ${name}`, to: `end ${field}`, weight: sum[field], note: counted(sum[field], "message") })));
  return { nodes, links };
}

/** Return the points of the plot: how many messages were confirmed until each step ended. */
function confirmedBy(steps, messages) {
  const before = messages - steps.reduce((total, row) => total + row.messages, 0);
  let sum = before;
  const ends = steps.map((row) => [row.ended / 1000, (sum += row.messages)]);
  return [[steps[0].began / 1000, ...ends.map(([at]) => at)], [before, ...ends.map(([, count]) => count)]];
}

function ReplayBody({ data }) {
  const [sources, steps] = useMemo(() => [recordsOf(data.sources), recordsOf(data.steps)], []);
  const picture = flowGraph(data, sumsOf(sources, steps));
  const grown = useMemo(() => (steps.length > 0 ? confirmedBy(steps, data.messages) : []), []);
  return html`<div class="figures">
      <${JobFigure} name="Published" value=${number(data.published)} note=${percent(data.published, data.messages)} />
      <${JobFigure} name="Sent in all" value=${number(data.messages)} />
      <${JobFigure} name="Published before" value=${number(data.known)} note="the broker dropped them" />
      <${JobFigure} name="Unroutable" value=${number(data.unroutable)} note="no queue took them" warn=${data.unroutable > 0} />
    </div>
    <p class="note">Published as <code>${data.name}</code></p>
    <${Graph} title="From the sources to the destination" note="as far as the steps below show; a line is as thick as its messages" nodes=${picture.nodes} links=${picture.links} empty="There was nothing to publish." />
    ${steps.length === 0
      ? html`<p class="panel note">There was nothing to publish.</p>`
      : html`<${LinePlot} title="Confirmed messages" note="until each step ended" series=${[{ label: "Messages", unit: "" }]} data=${grown} />`}
    <${JobPart} title="Sources"><${CutNote} table=${data.sources} what="first sources" />
      <${DataTable} caption="Sources" rows=${sources} columns=${SOURCES} empty="There was no source." /><//>
    <${JobPart} title="Steps"><${CutNote} table=${data.steps} what="last steps" />
      <${DataTable} caption="Steps" rows=${steps} columns=${STEPS} empty="There was nothing to publish." /><//>`;
}

showJob("replay", ReplayBody);
