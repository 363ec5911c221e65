// The changes that a definitions file would make, compared with the broker's definitions.

/** The identity of an object in a section. */
const IDENTITY = {
  users: ["name"],
  vhosts: ["name"],
  permissions: ["user", "vhost"],
  topic_permissions: ["user", "vhost", "exchange"],
  parameters: ["component", "vhost", "name"],
  global_parameters: ["name"],
  policies: ["vhost", "name"],
  operator_policies: ["vhost", "name"],
  queues: ["vhost", "name"],
  exchanges: ["vhost", "name"],
  bindings: ["vhost", "source", "destination_type", "destination", "routing_key", "arguments"],
};

/** JSON with sorted keys, so that equal objects are equal texts. */
export function canonical(value) {
  if (Array.isArray(value)) {
    return `[${value.map(canonical).join(",")}]`;
  }
  if (value && typeof value === "object") {
    const pairs = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
    return `{${pairs.join(",")}}`;
  }
  return JSON.stringify(value);
}

function identityOf(section, row, vhost) {
  return IDENTITY[section].map((name) => canonical(row[name] ?? (name === "vhost" ? vhost : null))).join(" ");
}

/** Fields of a new object that differ from the old one: `[[name, old, new], …]`. */
function changedFields(old, row) {
  return Object.keys(row)
    .filter((name) => canonical(row[name]) !== canonical(old[name]))
    .map((name) => [name, old[name], row[name]]);
}

/** In these sections existing objects stay unchanged, even if they differ in the file. */
const STAYS = ["queues", "exchanges"];

function kindOf(section, old) {
  if (!old) {
    return "added";
  }
  return STAYS.includes(section) ? "stays" : "changed";
}

/**
 * Compare the definitions in a file with those of the broker.
 *
 * Returns rows `{section, name, kind, fields}`, where kind is "added", "changed" or "stays" (it
 * differs in the file, but an import does not change it); and the number of the `same`, and the
 * `unknown` sections.  An import adds and changes definitions; it removes nothing.
 */
export function difference(present, wanted, vhost = "/") {
  const rows = [];
  let same = 0;
  const unknown = [];
  for (const [section, list] of Object.entries(wanted)) {
    if (!Array.isArray(list)) {
      continue;
    }
    if (!Object.hasOwn(IDENTITY, section)) {
      unknown.push(section);
      continue;
    }
    const known = new Map((present[section] ?? []).map((row) => [identityOf(section, row, vhost), row]));
    for (const row of list) {
      if (row === null || typeof row !== "object") {
        throw new Error(`An entry of “${section}” is not a JSON object.`);
      }
      const old = known.get(identityOf(section, row, vhost));
      const fields = old ? changedFields(old, row).filter(([name]) => name !== "vhost") : [];
      if (old && fields.length === 0) {
        same += 1;
      } else {
        rows.push({ section, name: nameOf(section, row), vhost: row.vhost ?? "", kind: kindOf(section, old), fields, row });
      }
    }
  }
  return { rows, same, unknown };
}

function nameOf(section, row) {
  if (section === "bindings") {
    return `${row.source} → ${row.destination} (${row.routing_key})`;
  }
  return String(row.name ?? row.user ?? "");
}
