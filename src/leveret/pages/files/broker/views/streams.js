// Streams: their offsets and consumers; super streams with their partitions.

import { html } from "../../vendor/htm-preact.js";
import { bytes, counted, number, rate } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { declareQueue } from "../acts/declare.js";
import { get, path } from "../api.js";
import { useShown } from "../list.js";
import { useLive, useRates } from "../live.js";
import { Empty, Heading, Loaded, Name, NameLink, Panel } from "../parts.js";
import { link } from "../router.js";
import { chosenVhost, useStore } from "../store.js";
import { QueueView } from "./queue.js";

/** How many vhosts are queried at once for their streams. */
const VHOSTS_MAX = 20;

async function load(chosen, signal) {
  const vhosts = chosen ? [chosen] : (await get("vhosts?columns=name", signal)).map((one) => one.name);
  const asked = vhosts.slice(0, VHOSTS_MAX);
  const pages = await Promise.all(
    asked.map(async (vhost) => {
      try {
        return await Promise.all([get(path`streams/${vhost}`, signal), get(path`super-streams/${vhost}`, signal)]);
      } catch (error) {
        // A user who sees a vhost in the list need not be allowed to enter it.
        if (error.status === 401 || error.status === 403) {
          return [[], []];
        }
        throw error;
      }
    }),
  );
  const left = vhosts.length - asked.length;
  return { streams: pages.flatMap((page) => page[0]), supers: pages.flatMap((page) => page[1]), left };
}

const streamLink = (vhost, name) =>
  html`<${NameLink} text=${name} to=${link("streams", [vhost, name])} />`;

/** A stream's next offset grows with each message. */
const COUNTERS = { written: (row) => row.next_offset };

const columns = [
  { key: "name", title: "Stream", render: (row) => streamLink(row.vhost, row.name) },
  { key: "vhost", title: "Vhost", render: (row) => html`<${Name} text=${row.vhost} />` },
  { key: "messages", title: "Messages", align: "right", render: (row) => number(row.messages) },
  { key: "in", title: "In", align: "right", value: (row) => row.rates.written, render: (row) => rate(row.rates.written) },
  { key: "bytes", title: "Size", align: "right", render: (row) => bytes(row.bytes) },
  { key: "first_offset", title: "First offset", align: "right", render: (row) => number(row.first_offset) },
  { key: "next_offset", title: "Next offset", align: "right", render: (row) => number(row.next_offset) },
];

const superColumns = [
  { key: "name", title: "Super stream", render: (row) => html`<${Name} text=${row.name} />` },
  { key: "vhost", title: "Vhost", render: (row) => html`<${Name} text=${row.vhost} />` },
  { key: "partitions", title: "Partitions", sort: false,
    render: (row) => html`<span class="marks">${row.partitions.map((name) => streamLink(row.vhost, name))}</span>` },
  { key: "messages", title: "Messages", align: "right", render: (row) => number(row.messages) },
  { key: "message_bytes", title: "Size", align: "right", render: (row) => bytes(row.message_bytes) },
  { key: "consumers", title: "Consumers", align: "right", render: (row) => number(row.consumers) },
];

export function View({ parts, options }) {
  return parts.length >= 2
    ? html`<${QueueView} view="streams" vhost=${parts[0]} name=${parts[1]} options=${options} key=${parts.join("\n")} />`
    : html`<${Streams} />`;
}

function Streams() {
  const vhost = useStore(chosenVhost);
  const live = useLive((signal) => load(vhost, signal), `streams ${vhost}`, { every: 5000, keep: true });
  const rows = useRates(live, live.data?.streams, (row) => `${row.vhost}\n${row.name}`, COUNTERS);
  const declare = () => declareQueue(live.reload, "stream");
  const [shown, superShown] = [useShown(columns), useShown(superColumns)];
  return html`<${Heading} title="Streams"><button type="button" onClick=${declare}>Declare a stream</button><//>
    <${Loaded} live=${live}>${({ supers, left }) => html`${left > 0 && html`<p class="hint">Shown are the
      streams of the first ${number(VHOSTS_MAX)} vhosts; choose a vhost to see those of the ${counted(left, "other")}.</p>`}
    ${rows.length === 0
      ? html`<${Empty} title="There is no stream yet">
          <p>A stream keeps its messages after they are read; Spark reads it as a table.</p>
          <p><button type="button" onClick=${declare}>Declare a stream</button></p>
        <//>`
      : html`<${DataTable} caption="Streams" columns=${shown} rows=${rows} empty="No stream" />
        ${supers.length > 0 && html`<${Panel} title="Super streams" wide>
          <${DataTable} caption="Super streams" columns=${superShown} rows=${supers} empty="None" /><//>`}`}`}<//>`;
}
