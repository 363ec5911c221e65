// What is bound to a queue.

import { html } from "../../vendor/htm-preact.js";
import { DataTable } from "../../common/table.js";
import { bind } from "../acts/declare.js";
import { unbind } from "../acts/bindings.js";
import { get, path } from "../api.js";
import { useLive } from "../live.js";
import { Arguments, ExchangeLink, Loaded, Name, Panel } from "../parts.js";

export function QueueBindings({ vhost, name }) {
  const load = (signal) => get(path`queues/${vhost}/${name}/bindings`, signal);
  const live = useLive(load, `bindings ${vhost}\n${name}`, { every: 5000 });
  const columns = [
    { key: "source", title: "From exchange", render: (row) => html`<${ExchangeLink} vhost=${row.vhost} name=${row.source} />` },
    { key: "routing_key", title: "Key", render: (row) => html`<${Name} text=${row.routing_key} empty="(none)" />` },
    { key: "arguments", title: "Arguments", sort: false, render: (row) => html`<${Arguments} of=${row.arguments} />` },
    { key: "act", title: "", sort: false, align: "right",
      render: (row) => row.source !== "" && html`<button type="button" class="quiet" onClick=${() => unbind(row, live.reload)}>Unbind …</button>` },
  ];
  const add = html`<button type="button" onClick=${() => bind({ vhost, to: name, done: live.reload })}>Bind …</button>`;
  return html`<${Panel} title="Bindings" actions=${add}>
    <${Loaded} live=${live}>${(rows) => html`<${DataTable} caption="Bindings" columns=${columns} rows=${rows} empty="No binding" />`}<//>
  <//>`;
}
