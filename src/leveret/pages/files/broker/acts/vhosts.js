// Vhosts, and the limits of vhosts and users: creating, changing, deleting.

import { counted } from "../../common/format.js";
import { ask } from "../ask.js";
import { path, put, remove } from "../api.js";

const TYPES = [["", "classic, unless a client says otherwise"], ["classic", "classic"], ["quorum", "quorum"], ["stream", "stream"]];

const fields = (row) => [
  { name: "description", title: "Description", value: row.description ?? "" },
  { name: "tags", title: "Tags", value: (row.tags ?? []).join(", "), hint: "separated by commas" },
  { name: "type", title: "Default queue type", kind: "choice", value: row.default_queue_type ?? "", options: TYPES },
  { name: "safe", title: "Protected from deletion", kind: "check", value: row.protected_from_deletion ?? false },
];

/** Open the form of a vhost; `row` has its initial values, and is an existing vhost if it has a name. */
export function editVhost(row, done) {
  const isNew = row.name === undefined;
  ask({
    title: isNew ? "Add a vhost" : `Change vhost '${row.name}'`,
    says: isNew && "You get all permissions in it; other users have none until you give them some.",
    action: isNew ? "Add" : "Change",
    fields: isNew ? [{ name: "name", title: "Name", required: true }, ...fields(row)] : fields(row),
    run: async ({ name = row.name, description, tags, type, safe }) => {
      // An empty type sets none.
      await put(path`vhosts/${name}`, { description, tags, default_queue_type: type, protected_from_deletion: safe });
      done();
      return `Vhost '${name}' is ${isNew ? "added" : "changed"}.`;
    },
  });
}

export function deleteVhost(row, done) {
  ask({
    title: `Delete vhost '${row.name}'`,
    says: `Its queues with ${counted(row.messages, "message")}, its exchanges, bindings, policies and permissions will be lost, and its connections closed. This cannot be undone.`,
    action: "Delete",
    danger: true,
    run: async () => {
      await remove(path`vhosts/${row.name}`);
      done();
      return `Vhost '${row.name}' is deleted.`;
    },
  });
}

const COMMON = [
  ["max-connections", "Connections"], ["max-queues", "Queues"], ["max-bindings", "Bindings"],
  ["max-messages", "Messages"], ["max-message-bytes", "Bytes of messages"],
];

/** The limits of each kind of object, by name. */
const LIMITS = { vhost: COMMON, user: [COMMON[0], ["max-channels", "Channels"], ...COMMON.slice(1)] };

/** Open the form for the limits of a vhost or a user (`kind`); `now` has those that are set. */
export function changeLimits(kind, name, now, done) {
  ask({
    title: `Limits of ${kind} '${name}'`,
    says: `An empty field sets no limit${kind === "user" ? ", and the default for users applies" : ""}.`,
    action: "Set",
    fields: LIMITS[kind].map(([key, title]) => ({ name: key, title, kind: "number", min: -1, value: String(now[key] ?? "") })),
    run: async (values) => {
      const base = `${kind}-limits/${path`${name}`}`;
      const given = Object.entries(values).filter(([, text]) => text !== "").map(([key, text]) => [key, Number(text)]);
      await put(base, Object.fromEntries(given));
      for (const [key] of LIMITS[kind].filter(([one]) => values[one] === "" && now[one] !== undefined)) {
        await remove(`${base}/${key}`);
      }
      done();
      return `The limits of ${kind} '${name}' are set.`;
    },
  });
}

/** Return limits by their names in words, such as `{queues: 100}`. */
export function limitsInWords(kind, now) {
  const titles = new Map(LIMITS[kind]);
  return Object.fromEntries(Object.entries(now).map(([key, value]) => [titles.get(key)?.toLowerCase() ?? key, value]));
}
