// The bindings of a queue.

import { html } from "../../vendor/htm-preact.js";
import { DataTable } from "../../common/table.js";
import { bind } from "../acts/declare.js";
import { unbind } from "../acts/bindings.js";
import { get, path, query } from "../api.js";
import { cutNote } from "../list.js";
import { useLive } from "../live.js";
import { Arguments, ExchangeLink, Loaded, Name, Panel } from "../parts.js";

const SHOWN_MAX = 500;

export function QueueBindings({ vhost, name }) {
  const load = (signal) => get(path`queues/${vhost}/${name}/bindings` + query({ page: 1, page_size: SHOWN_MAX }), signal);
  const live = useLive(load, `bindings ${vhost}\n${name}`, { every: 5000 });
  const columns = [
    { key: "source", title: "From exchange", render: (row) => html`<${ExchangeLink} vhost=${row.vhost} name=${row.source} />` },
    { key: "routing_key", title: "Key", render: (row) => html`<${Name} text=${row.routing_key} empty="(none)" />` },
    { key: "arguments", title: "Arguments", sort: false, render: (row) => html`<${Arguments} of=${row.arguments} />` },
    { key: "act", title: "", sort: false, align: "right",
      render: (row) => row.source !== "" && html`<button type="button" class="quiet" onClick=${() => unbind(row, live.reload)}>Unbind …</button>` },
  ];
  const add = html`<button type="button" onClick=${() => bind({ vhost, to: name, done: live.reload })}>Bind …</button>`;
  return html`<${Panel} title="Bindings" note=${live.data && cutNote(live.data)} actions=${add}>
    <${Loaded} live=${live}>${(page) => html`<${DataTable} caption="Bindings" columns=${columns} rows=${page.items} empty="No binding" />`}<//>
  <//>`;
}
