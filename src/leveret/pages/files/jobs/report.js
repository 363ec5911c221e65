// The page of `report`: traffic over time, by key and by window.

import { html } from "../vendor/htm-preact.js";
import { BarList } from "../common/bars.js";
import { bytes, duration, moment, number, rate } from "../common/format.js";
import { BarPlot } from "../common/plot.js";
import { DataTable } from "../common/table.js";
import { CutNote, exchangeName, JobFigure, JobPart, keyName, perSpan, recordsOf, Short, showJob } from "./shell.js";

const address = (row) => `${exchangeName(row.exchange)} / ${keyName(row.routing_key)}`;

function trafficColumns(seconds) {
  const ms = (field, title) => ({ key: field, title, align: "right", render: (row) => duration(row[field]) });
  const size = (field, title) => ({ key: field, title, align: "right", render: (row) => bytes(row[field]) });
  return [
    { key: "exchange", title: "Exchange", render: (row) => html`<${Short} text=${row.exchange} empty="(default exchange)" />` },
    { key: "routing_key", title: "Routing key", render: (row) => html`<${Short} text=${row.routing_key} empty="(empty key)" />` },
    { key: "messages", title: "Messages", align: "right" },
    { key: "rate", title: "Rate", align: "right", value: (row) => row.messages / seconds, render: (row) => rate(row.messages / seconds) },
    size("bytes", "Bytes"), size("size_p50", "Size p50"), size("size_p99", "Size p99"),
    ms("latency_p50_ms", "Latency p50"), ms("latency_p99_ms", "Latency p99"),
  ];
}

function ReportBody({ data }) {
  const [keys, windows] = [recordsOf(data.keys), recordsOf(data.windows)];
  const { plot } = data;
  const window = { key: "window_start", title: "Window", render: (row) => moment(row.window_start) };
  return html`<div class="figures">
      <${JobFigure} name="Messages" value=${number(data.messages)} />
      <${JobFigure} name="In bodies" value=${bytes(data.bytes)} />
      <${JobFigure} name="Mean rate" value=${rate(data.messages / data.seconds)} />
      <${JobFigure} name="Keys" note="with their exchanges" value=${number(data.keys.total)} />
    </div>
    ${plot.seconds.length === 0
      ? html`<p class="panel note">No message has a time, so there is no plot.</p>`
      : html`<${BarPlot} title=${`Messages ${perSpan(data.bar)}`} series=${plot.names.map((label) => ({ label, unit: "" }))}
          data=${[plot.seconds, ...plot.counts]} step=${plot.step} height=${280} />`}
    <${BarList} title="Messages of each key" rows=${keys.map((row) => ({ label: address(row), value: row.messages }))} whole=${data.messages}
      empty="There are no messages." />
    <${JobPart} title="Keys"><${CutNote} table=${data.keys} what="keys with the most messages" />
      <${DataTable} caption="Keys" rows=${keys} columns=${trafficColumns(data.seconds)} sort=${{ key: "messages", reverse: true }} /><//>
    <${JobPart} title=${`Windows of ${data.window}`}><${CutNote} table=${data.windows} what="rows with the most messages" />
      <${DataTable} caption="Windows" rows=${windows} columns=${[window, ...trafficColumns(data.window_seconds)]} sort=${{ key: "window_start", reverse: false }} /><//>`;
}

showJob("report", ReportBody);
