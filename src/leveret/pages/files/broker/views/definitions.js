// Definitions: downloaded as a file, or applied from a file after a comparison.

import { html, useRef, useState } from "../../vendor/htm-preact.js";
import { bytes, counted, legible, number } from "../../common/format.js";
import { DataTable } from "../../common/table.js";
import { get, path, post } from "../api.js";
import { ask } from "../ask.js";
import { difference } from "../difference.js";
import { Empty, Failure, Heading, Name, Panel, Tag } from "../parts.js";
import { chosenVhost, useStore } from "../store.js";

const FILE_BYTES_MAX = 20 * 1024 * 1024;

const whereOf = (vhost) => (vhost ? path`definitions/${vhost}` : "definitions");

export function View() {
  const vhost = useStore(chosenVhost);
  const of = vhost ? `of vhost ${legible(vhost)}` : "of the whole broker";
  return html`<${Heading} title="Definitions" />
    <div class="plots"><${Download} vhost=${vhost} of=${of} /><${Upload} vhost=${vhost} of=${of} key=${vhost} /></div>`;
}

function Download({ vhost, of }) {
  const [state, setState] = useState({});
  const save = async () => {
    setState({ busy: true });
    try {
      const found = await get(whereOf(vhost));
      const file = new Blob([JSON.stringify(found, null, 2)], { type: "application/json" });
      const address = URL.createObjectURL(file);
      const anchor = Object.assign(document.createElement("a"), { href: address, download: nameOfFile(vhost) });
      anchor.click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
      setState({ size: file.size });
    } catch (error) {
      setState({ error });
    }
  };
  return html`<${Panel} title="Download" note=${of}>
    <p>Users with the hashes of their passwords, vhosts, permissions, policies, parameters, exchanges, queues and bindings,
      as one JSON file that RabbitMQ reads too. Messages are not in it.</p>
    <p><button type="button" class="main" disabled=${state.busy} onClick=${save}>Download definitions</button>
      ${state.size !== undefined && html` <span class="note">${bytes(state.size)} saved</span>`}</p>
    ${state.error && html`<${Failure} error=${state.error} />`}<//>`;
}

function nameOfFile(vhost) {
  const day = new Date().toISOString().slice(0, 10);
  const of = vhost ? `_${vhost.replace(/[^A-Za-z0-9]+/g, "_")}` : "";
  return `leveret${of}_${day}.json`;
}

async function read(file) {
  if (file.size > FILE_BYTES_MAX) {
    throw new Error(`The file has ${bytes(file.size)}; the broker accepts at most ${bytes(FILE_BYTES_MAX)}.`);
  }
  let found;
  try {
    found = JSON.parse(await file.text());
  } catch (error) {
    throw new Error(`The file is not JSON: ${error.message}`);
  }
  if (!found || typeof found !== "object" || Array.isArray(found)) {
    throw new Error("The file contains no definitions: they are a JSON object with queues, exchanges and so on.");
  }
  return found;
}

function Upload({ vhost, of }) {
  const [state, setState] = useState({});
  const chosen = useRef(null);
  const choose = async (event) => {
    const file = event.currentTarget.files[0];
    if (!file) {
      return;
    }
    // Another file may be chosen before this one is compared.
    chosen.current = file;
    const told = (outcome) => chosen.current === file && setState(outcome);
    told({ busy: true });
    try {
      const wanted = await read(file);
      const present = await get(whereOf(vhost));
      told({ wanted, compared: difference(present, wanted, vhost || "/") });
    } catch (error) {
      told({ error });
    }
  };
  return html`<${Panel} title="Upload" note=${of} wide=${Boolean(state.compared)}>
    <p>A file is first compared with the existing definitions. It adds and changes objects, but removes none. It is applied as a whole or not at all.</p>
    <p><label class="inline">File <input type="file" accept="application/json,.json" onChange=${choose} /></label></p>
    ${state.busy && html`<p class="note loading">Comparing …</p>`}
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${state.compared && html`<${Compared} ...${state} vhost=${vhost} done=${(report) => setState({ report })} />`}
    ${state.report && html`<${Report} report=${state.report} />`}<//>`;
}

const columns = [
  { key: "kind", title: "Change", render: (row) => html`<${Tag} text=${row.kind} kind=${row.kind === "added" ? "good" : "warn"}
      title=${row.kind === "stays" ? "It exists with other values: an import does not change it" : ""} />` },
  { key: "section", title: "What", render: (row) => row.section.replaceAll("_", " ") },
  { key: "vhost", title: "Vhost", render: (row) => html`<${Name} text=${row.vhost} empty="" />` },
  { key: "name", title: "Name", render: (row) => html`<${Name} text=${row.name} />` },
  { key: "fields", title: "Difference", sort: false, render: (row) => row.fields.length === 0 ? "" : html`<ul class="plain">
      ${row.fields.map(([name, old, now]) => html`<li><code>${legible(name)}</code> <del>${shown(name, old)}</del> → <ins>${shown(name, now)}</ins></li>`)}</ul>` },
];

const shown = (name, value) =>
  /password/.test(name) ? "(another hash)" : value === undefined ? "nothing" : legible(typeof value === "string" ? value : JSON.stringify(value));

function Compared({ wanted, compared, vhost, done }) {
  const { rows, same, unknown } = compared;
  const of = (kind) => rows.filter((one) => one.kind === kind).length;
  const apply = () =>
    ask({
      title: "Apply these definitions",
      says: `${counted(of("added"), "object")} will be added and ${number(of("changed"))} changed.${of("stays") ? ` ${counted(of("stays"), "object")} that exist with other values stay unchanged.` : ""} One fault in the file, and nothing is applied.`,
      action: "Apply",
      danger: true,
      run: async () => {
        done(await post(whereOf(vhost), wanted));
        return "The definitions are applied.";
      },
    });
  const left = unknown.length > 0 && html`<p class="hint">Not known, and left out: ${unknown.map(legible).join(", ")}.</p>`;
  if (rows.length === 0) {
    return html`${left}<${Empty} title="The file changes nothing"><p>All ${number(same)} objects in it already exist.</p><//>`;
  }
  return html`${left}
    <p><strong>${counted(rows.length, "difference")}</strong>; ${counted(same, "object")} are there already.</p>
    <${DataTable} caption="Differences" columns=${columns} rows=${rows} empty="None" />
    <p><button type="button" class="main" onClick=${apply}>Apply …</button></p>`;
}

/** The broker's report: `changed`, `left_out` and `without_effect`, each a number or a list. */
function Report({ report }) {
  const words = { changed: "Changed", left_out: "Left out", without_effect: "Kept without effect" };
  return html`<div class="verdict" role="status">${Object.entries(words).map(([key, title]) => {
    const found = report[key];
    const list = Array.isArray(found) ? found : [];
    return html`<p>${title}: ${number(Array.isArray(found) ? found.length : (found ?? 0))}</p>
      ${list.length > 0 && html`<ul>${list.slice(0, 50).map((one) => html`<li>${legible(typeof one === "string" ? one : JSON.stringify(one))}</li>`)}</ul>`}`;
  })}</div>`;
}
