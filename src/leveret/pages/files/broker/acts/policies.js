// Creating, changing and deleting policies.

import { ask, objectOf, prepared } from "../ask.js";
import { path, put, remove } from "../api.js";
import { vhostField } from "./declare.js";

const APPLIES = ["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"];

const base = (row) => (row.operators ? "operator-policies" : "policies");

/** Open the form of a policy; `row` has its initial values, and is an existing policy if it has a name. */
export function editPolicy(row, done) {
  return prepared(() => askForPolicy(row, done));
}

async function askForPolicy(row, done) {
  const isNew = row.name === undefined;
  const applies = APPLIES.filter((one) => !row.operators || one !== "exchanges");
  const known = isNew ? [await vhostField(), { name: "name", title: "Name", required: true }] : [];
  ask({
    title: isNew ? `Add ${row.operators ? "an operator policy" : "a policy"}` : `Change policy '${row.name}'`,
    says: "It takes effect at once for all matching objects without a policy of a higher priority.",
    action: isNew ? "Add" : "Change",
    fields: [
      ...known,
      { name: "pattern", title: "Pattern of names", value: row.pattern ?? "", required: true, hint: "a regular expression: ^orders\\. fits all that begin with orders." },
      { name: "apply", title: "Applies to", kind: "choice", value: row["apply-to"] ?? "queues", options: applies.map((one) => [one, one]) },
      { name: "priority", title: "Priority", kind: "number", value: String(row.priority ?? 0), hint: "of those that match, the highest is in effect" },
      { name: "definition", title: "Sets", kind: "long", required: true, value: row.definition ? JSON.stringify(row.definition, null, 2) : "",
        placeholder: '{"max-length": 100000, "overflow": "reject-publish"}', hint: "a JSON object" },
    ],
    run: async ({ vhost = row.vhost, name = row.name, pattern, apply, priority, definition }) => {
      const body = { pattern, "apply-to": apply, priority: Number(priority || 0), definition: objectOf(definition, "The definitions") };
      await put(`${base(row)}/${path`${vhost}/${name}`}`, body);
      done();
      return `Policy '${name}' is set.`;
    },
  });
}

export function deletePolicy(row, done) {
  ask({
    title: `Delete ${row.operators ? "operator policy" : "policy"} '${row.name}'`,
    says: "Its settings end at once for all its objects; another matching policy replaces it.",
    action: "Delete",
    danger: true,
    run: async () => {
      await remove(`${base(row)}/${path`${row.vhost}/${row.name}`}`);
      done();
      return `Policy '${row.name}' is deleted.`;
    },
  });
}
