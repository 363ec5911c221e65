// The page of `lifecycle`: the times of messages between stages, their ends, and the stuck ones.

import { html, useMemo } from "../vendor/htm-preact.js";
import { BarList } from "../common/bars.js";
import { counted, duration, moment, number, percent } from "../common/format.js";
import { Graph } from "../common/graph.js";
import { DataTable } from "../common/table.js";
import { CutNote, JobFigure, JobPart, recordsOf, Short, showJob } from "./shell.js";

/** Queues in the picture; the others are combined. */
const QUEUES_DRAWN = 10;

const ENDS = [
  ["acked", "Acked", "queue"], ["dead_lettered", "Dead-lettered", "bad"], ["expired", "Expired", "warn"], ["dropped", "Dropped", "bad"],
  ["cleared", "Purged or deleted", "warn"], ["waiting_on", "Still open", ""], ["stuck", "Stuck", "bad"],
];
const STAGES = [
  ["routing", "Routing", "from the publish to the queue"],
  ["waiting", "Waiting", "from the queue to a consumer"],
  ["handling", "Handling", "from the consumer to its ack"],
];

/** The place of a message before the first stage, and after each. */
const PLACES = ["Published", "In a queue", "With a consumer", "Acked"];

const endsOf = (row) => ({ ...row, waiting_on: Math.max(0, row.open - row.stuck) });
const queueName = (row) => (row.vhost === "/" ? row.queue : `${row.vhost} ${row.queue}`);

/** Return the mean of a stage's median over queues, weighted by their messages. */
function meanMedian(stages, stage) {
  const rows = stages.filter((row) => row.stage === stage);
  const messages = rows.reduce((sum, row) => sum + row.messages, 0);
  const time = rows.reduce((sum, row) => sum + row.messages * row.p50_ms, 0);
  return { messages, time: messages > 0 ? time / messages : 0, worst: Math.max(0, ...rows.map((row) => row.p99_ms)) };
}

function StagePlace({ name, says }) {
  return html`<li class="stage-place"><b>${name}</b> <span class="note">${says}</span></li>`;
}

/** The time spent: from place to place by the stages between them, with the shares of the bar above. */
function StageFlow({ stages, published, toStreams }) {
  const found = STAGES.map(([stage, title, says]) => ({ title, says, ...meanMedian(stages, stage) }));
  const whole = found.reduce((sum, one) => sum + one.time, 0);
  return html`<figure class="panel" aria-label="Where the time goes">
    <figcaption>Where the time goes <span class="note">median of each stage, over all queues by their messages${toStreams > 0 ? `; without ${number(toStreams)} published to streams only` : ""}</span></figcaption>
    <div class="stage-share" aria-hidden="true">${found.map((one, place) => one.time > 0 && html`<span class=${`stage-${place + 1}`}
      title=${`${one.title}: ${duration(one.time)}`} style=${{ width: `${(100 * one.time) / whole}%` }}></span>`)}</div>
    <ol class="stage-row"><${StagePlace} name=${PLACES[0]} says=${counted(published, "message")} />
      ${found.map((one, place) => html`<li class=${`stage stage-${place + 1}`}>
        <span title=${one.says}>${one.title}</span>
        <b>${one.messages > 0 ? duration(one.time) : "–"}</b>
        ${one.messages > 0
          ? html`<span class="note told">${percent(one.time, whole)} of the time</span> <span class="note told">p99 up to ${duration(one.worst)}</span>`
          : html`<span class="note">no message passed it</span>`}
      </li><${StagePlace} name=${PLACES[place + 1]} says=${counted(one.messages, "time")} />`)}</ol>
  </figure>`;
}

/** Return the picture: from queues to the ends of their messages. */
function endsGraph(queues) {
  const kept = queues.slice(0, QUEUES_DRAWN);
  const rest = queues.slice(QUEUES_DRAWN);
  const rows = [...kept];
  if (rest.length > 0) {
    const sum = (field) => rest.reduce((total, row) => total + row[field], 0);
    rows.push({ name: counted(rest.length, "other"), id: "rest", messages: sum("messages"), ...Object.fromEntries(ENDS.map(([field]) => [field, sum(field)])) });
  }
  const from = (row) => `queue ${row.id ?? row.key}`;
  const nodes = rows.map((row) => ({ id: from(row), label: row.name ?? queueName(row), note: counted(row.messages, "message"), kind: row.id ? "rest" : "queue", layer: 0 }));
  const links = [];
  for (const [field, title, kind] of ENDS) {
    const total = rows.reduce((sum, row) => sum + row[field], 0);
    if (total > 0) {
      nodes.push({ id: `end ${field}`, label: title, note: counted(total, "message"), kind, layer: 1 });
      const ends = rows.filter((row) => row[field] > 0);
      links.push(...ends.map((row) => ({ from: from(row), to: `end ${field}`, weight: row[field], kind: kind === "queue" ? "" : kind, note: counted(row[field], "message") })));
    }
  }
  return { nodes, links };
}

function stageBars(queues, stages) {
  const found = new Map(queues.map((row) => [JSON.stringify([row.vhost, row.queue]), { label: queueName(row), value: 0, parts: [] }]));
  const colours = { routing: 2, waiting: 1, handling: 0 };
  for (const row of stages) {
    const bar = found.get(JSON.stringify([row.vhost, row.queue]));
    const place = STAGES.findIndex(([stage]) => stage === row.stage);
    if (bar && place >= 0) {
      bar.parts[place] = { label: STAGES[place][1], value: row.p50_ms, colour: colours[row.stage] };
      bar.value += row.p50_ms;
    }
  }
  return [...found.values()].filter((bar) => bar.value > 0).map((bar) => ({ ...bar, parts: bar.parts.filter(Boolean) })).sort((one, other) => other.value - one.value);
}

/** The age of the oldest waiting message of each queue, the oldest first. */
function oldestBars(queues) {
  const waiting = queues.filter((row) => row.oldest_waiting_ms !== null);
  return waiting.map((row) => ({ label: queueName(row), value: row.oldest_waiting_ms })).sort((one, other) => other.value - one.value);
}

const QUEUE = [{ key: "vhost", title: "Vhost" }, { key: "queue", title: "Queue" }];
/** The columns, without the vhost if there is only one. */
const shownOf = (columns, rows) => (rows.every((row) => row.vhost === rows[0].vhost) ? columns.filter((one) => one.key !== "vhost") : columns);
const count = (key, title) => ({ key, title, align: "right" });
const time = (key, title) => ({ key, title, align: "right", render: (row) => duration(row[key]) });
const OUTCOMES = [
  ...QUEUE, count("messages", "Messages"), count("acked", "Acked"), count("dead_lettered", "Dead-lettered"), count("expired", "Expired"),
  count("dropped", "Dropped"), count("cleared", "Purged"), count("open", "Open"), count("stuck", "Stuck"),
  { key: "oldest_waiting_ms", title: "Oldest", align: "right", render: (row) => duration(row.oldest_waiting_ms) },
  count("redelivered", "Redelivered"), count("cut", "Cut"),
];
const TIMES = [...QUEUE, { key: "stage", title: "Stage" }, count("messages", "Messages"), time("p50_ms", "p50"), time("p95_ms", "p95"), time("p99_ms", "p99"), time("max_ms", "Most")];
const STUCK = [
  ...QUEUE, count("sequence", "Sequence"),
  { key: "exchange", title: "Exchange", render: (row) => html`<${Short} text=${row.exchange} empty="(default exchange)" />` },
  { key: "routing_key", title: "Routing key" }, { key: "message_id", title: "Message id" }, { key: "last_event", title: "Last event" },
  { key: "last_at", title: "At", render: (row) => moment(row.last_at) },
];

function LifecycleBody({ data }) {
  const [queues, stages, stuck] = useMemo(() => [recordsOf(data.queues).map(endsOf), recordsOf(data.stages), recordsOf(data.stuck)], []);
  const picture = useMemo(() => endsGraph(queues), []);
  const bars = useMemo(() => stageBars(queues, stages), []);
  return html`<div class="figures">
      <${JobFigure} name="Events" value=${number(data.events)} />
      <${JobFigure} name="Messages followed" value=${number(data.messages)} />
      <${JobFigure} name="Stuck" value=${number(data.stuck.total)} note=${`no event for ${data.stuck_after}${data.now ? `, at ${moment(data.now)}` : ""}`} warn=${data.stuck.total > 0} />
      <${JobFigure} name="Without a queue" value=${number(data.unroutable)} note=${`of ${counted(data.published, "publish", "publishes")}`} warn=${data.unroutable > 0} />
      ${data.unreadable > 0 && html`<${JobFigure} name="Unreadable" value=${number(data.unreadable)} note="messages that are no events" />`}
    </div>
    <${StageFlow} stages=${stages} published=${data.published - data.published_to_streams} toStreams=${data.published_to_streams} />
    <${BarList} title="Time in each queue" note="median of each stage; the slowest first" rows=${bars} format=${duration} empty="No message has passed a stage."
      legend=${["Handling", "Waiting", "Routing"]} />
    <${BarList} title="Oldest waiting message" note="its age in each queue" rows=${oldestBars(queues)} format=${duration} empty="No message waits." />
    <${Graph} title="How messages ended" note=${`the ${number(Math.min(queues.length, QUEUES_DRAWN))} queues with the most messages; a line is as thick as its messages`} nodes=${picture.nodes} links=${picture.links} empty="No message was followed." />
    <${JobPart} title="Queues"><${CutNote} table=${data.queues} what="queues with the most messages" />
      <${DataTable} caption="Outcomes" rows=${queues} columns=${shownOf(OUTCOMES, queues)} sort=${{ key: "messages", reverse: true }} empty="No message was followed." /><//>
    <${JobPart} title="Stages"><${CutNote} table=${data.stages} what="stages of the queues with the most messages" />
      <${DataTable} caption="Stages" rows=${stages} columns=${shownOf(TIMES, stages)} empty="No stage is known." /><//>
    <${JobPart} title=${`Stuck: no event for ${data.stuck_after}`}><${CutNote} table=${data.stuck} what="oldest" />
      <${DataTable} caption="Stuck messages" rows=${stuck} columns=${shownOf(STUCK, stuck)} empty="No message is stuck." /><//>`;
}

showJob("lifecycle", LifecycleBody);
