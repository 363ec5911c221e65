// The page of `archive`: the messages that one run took from each stream, batch by batch.

import { html, useMemo } from "../vendor/htm-preact.js";
import { bytes, counted, duration, moment, NOTHING, number, rate, ratio } from "../common/format.js";
import { Graph } from "../common/graph.js";
import { LinePlot } from "../common/plot.js";
import { DataTable } from "../common/table.js";
import { CutNote, JobFigure, JobPart, recordsOf, showJob } from "./shell.js";

/** Streams in the picture; the table has all. */
const STREAMS_DRAWN = 20;

const speedOf = (row) => row.records / Math.max(row.seconds, 1e-3);

const STREAMS = [
  { key: "stream", title: "Stream" },
  { key: "first", title: "From offset", align: "right", render: (row) => (row.first === null ? "the earliest" : number(row.first)) },
  { key: "next", title: "Next offset", align: "right" },
  { key: "lag", title: "Lag", align: "right", render: (row) => number(row.lag) },
];
const BATCHES = [
  { key: "number", title: "Batch", align: "right" }, { key: "began", title: "Began", render: (row) => moment(row.began) },
  { key: "seconds", title: "Took", align: "right", render: (row) => duration(row.seconds * 1000) },
  { key: "records", title: "Messages", align: "right" },
  { key: "speed", title: "Rate", align: "right", value: speedOf, render: (row) => rate(speedOf(row)) },
];

/** Return the picture: from each stream to the archive. */
function archiveGraph(data, streams) {
  const drawn = streams.slice(0, STREAMS_DRAWN);
  const offsets = (row) => `offsets ${number(row.first ?? 0)} to ${number(row.next)}`;
  const nodes = drawn.map((row) => ({ id: `stream ${row.stream}`, label: row.stream, note: offsets(row), kind: "queue", layer: 0 }));
  if (nodes.length > 0) {
    nodes.push({ id: "archive", label: data.path, note: `${counted(data.records, "message")} added`, kind: "exchange", layer: 1 });
  }
  const links = drawn.map((row) => ({ from: `stream ${row.stream}`, to: "archive", weight: Math.max(0, row.next - (row.first ?? 0)), note: offsets(row) }));
  return { nodes, links };
}

/** Return the points of the plot: how many messages were added until each batch ended. */
function grownBy(steps, before) {
  let sum = before;
  const ends = steps.map((row) => [row.began / 1000 + row.seconds, (sum += row.records)]);
  return [[steps[0].began / 1000, ...ends.map(([at]) => at)], [before, ...ends.map(([, count]) => count)]];
}

/** The archive's files, and what it does not have yet. */
function ArchiveFigures({ data }) {
  const { lag, measured } = data;
  if (measured === null) {
    return null;
  }
  const age = measured.oldest === null ? "not known" : duration(Math.max(0, data.origin.made - measured.oldest));
  const none = lag === null ? NOTHING : "none";
  return html`
    <${JobFigure} name="Files" value=${number(measured.files)} note=${`${number(measured.files_added)} added`} />
    <${JobFigure} name="Bytes" value=${bytes(measured.bytes)} note=${`${bytes(measured.bytes_added)} added`} />
    <${JobFigure} name="Ratio" value=${measured.bytes_added > 0 ? ratio(data.body_bytes, measured.bytes_added) : NOTHING} note=${`${bytes(data.body_bytes)} in bodies`} />
    <${JobFigure} name="Lag" value=${number(lag)} note="messages, at the last batch" warn=${lag > 0} />
    <${JobFigure} name="Oldest unarchived" value=${lag > 0 ? age : none} note=${lag > 0 && measured.oldest !== null && moment(measured.oldest)} warn=${lag > 0} />`;
}

function ArchiveBody({ data }) {
  const [streams, steps] = useMemo(() => [recordsOf(data.streams), recordsOf(data.steps)], []);
  const picture = archiveGraph(data, streams);
  const took = steps.reduce((sum, row) => sum + row.seconds, 0);
  const summed = steps.reduce((sum, row) => sum + row.records, 0);
  const grown = useMemo(() => (steps.length > 0 ? grownBy(steps, data.records - summed) : []), []);
  return html`<div class="figures">
      <${JobFigure} name="Messages added" value=${number(data.records)} note=${took > 0 && `${rate(summed / took)} on average`} />
      <${JobFigure} name="Batches" value=${number(data.batches)} note=${took > 0 && `${duration(took * 1000)} in all`} />
      <${ArchiveFigures} data=${data} />
    </div>
    <${Graph} title="From streams to the archive" note="a line is as thick as its offsets" nodes=${picture.nodes} links=${picture.links} empty="No stream was read." />
    ${steps.length === 0
      ? html`<p class="panel note">There was nothing new to archive.</p>`
      : html`<${LinePlot} title="Messages added" note="until each batch ended" series=${[{ label: "Messages", unit: "" }]} data=${grown} />`}
    <${JobPart} title="Streams"><${CutNote} table=${data.streams} what="first streams" />
      <${DataTable} caption="Streams" rows=${streams} columns=${STREAMS} empty="No stream was read." /><//>
    <${JobPart} title="Batches"><${CutNote} table=${data.steps} what="last batches" />
      <${DataTable} caption="Batches" rows=${steps} columns=${BATCHES} empty="There was nothing new to archive." /><//>`;
}

showJob("archive", ArchiveBody);
