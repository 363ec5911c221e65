// Removing bindings and exchanges.

import { counted } from "../../common/format.js";
import { ask, prepared } from "../ask.js";
import { get, path, query, remove } from "../api.js";
import { exchangePart } from "../parts.js";
import { go } from "../router.js";

export function unbind(row, done) {
  const kind = row.destination_type === "queue" ? "q" : "e";
  ask({
    title: "Unbind",
    says: `Messages of exchange '${row.source}' with the key '${row.routing_key}' will no longer go to ${row.destination_type} '${row.destination}' by this binding.`,
    action: "Unbind",
    danger: true,
    run: async () => {
      const ends = path`bindings/${row.vhost}/e/${exchangePart(row.source)}/${kind}/${row.destination}`;
      await remove(ends + path`/${row.properties_key}`);
      done();
      return `'${row.source}' is no longer bound to '${row.destination}' by this key.`;
    },
  });
}

export function deleteExchange(row) {
  return prepared(async () => {
    const page = await get(path`exchanges/${row.vhost}/${row.name}/bindings/source` + query({ page: 1, page_size: 1 }));
    askToDelete(row, page.total_count);
  });
}

function askToDelete(row, bindings) {
  ask({
    title: `Delete exchange '${row.name}'`,
    says: `Its ${counted(bindings, "binding")} will be removed, and publishes to it will be refused. This cannot be undone.`,
    action: "Delete",
    danger: true,
    fields: [{ name: "unused", title: "Only if nothing is bound to it", kind: "check", value: false }],
    run: async ({ unused }) => {
      await remove(path`exchanges/${row.vhost}/${row.name}` + query({ "if-unused": unused || undefined }));
      go("exchanges");
      return `Exchange '${row.name}' is deleted.`;
    },
  });
}
