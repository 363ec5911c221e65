// Users and their permissions: adding, changing, revoking.

import { ask } from "../ask.js";
import { ApiError, path, put, remove } from "../api.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management"];

const tagField = (value) => ({
  name: "tags", title: "Tags", value, list: "tags",
  hint: `with commas: ${TAGS.join(", ")}; none lets a user use AMQP only`,
});

const secret = (title, hint, required) => ({
  name: "password", title, kind: "password", hint, required, autocomplete: "new-password",
});

export function addUser(done) {
  ask({
    title: "Add a user",
    says: "A new user has no access to any vhost until you give them permissions.",
    action: "Add",
    fields: [{ name: "name", title: "Name", required: true }, secret("Password", "", true), tagField("")],
    run: async ({ name, password, tags }) => {
      await put(path`users/${name}`, { password, tags });
      done();
      return `User '${name}' is added.`;
    },
  });
}

export function changeUser(row, done) {
  ask({
    title: `Change user '${row.name}'`,
    action: "Change",
    fields: [secret("New password", "leave it empty to keep the old one", false), tagField(row.tags.join(", "))],
    run: async ({ password, tags }) => {
      if (!password && !row.password_hash) {
        await put(path`users/${row.name}`, { password_hash: "", tags });
      } else {
        const how = password ? { password } : { password_hash: row.password_hash, hashing_algorithm: row.hashing_algorithm };
        await put(path`users/${row.name}`, { ...how, tags });
      }
      done();
      return `User '${row.name}' is changed.`;
    },
  });
}

export function deleteUser(row, done) {
  ask({
    title: `Delete user '${row.name}'`,
    says: "The user's permissions are removed and their connections are closed. Queues and messages stay.",
    action: "Delete",
    danger: true,
    run: async () => {
      await remove(path`users/${row.name}`);
      done();
      return `User '${row.name}' is deleted.`;
    },
  });
}

/** Open the form for a user's permissions in a vhost; with three empty fields they may enter, but do nothing. */
export function changePermission({ user, vhost, right }, done) {
  const pattern = (name, title) => ({ name, title, value: right ? right[name] : ".*", hint: ".* is everything, nothing is nothing" });
  ask({
    title: `Permissions of '${user}' in vhost '${vhost}'`,
    says: right ? "" : `'${user}' has no access to this vhost yet.`,
    action: "Set",
    fields: [
      { name: "enters", title: "May enter the vhost", kind: "check", value: true },
      ...[pattern("configure", "Configure (declare and delete)"), pattern("write", "Write (publish)"), pattern("read", "Read (consume)")]
        .map((field) => ({ ...field, when: (values) => values.enters })),
    ],
    run: async ({ enters, configure, write, read }) => {
      const where = path`permissions/${vhost}/${user}`;
      if (enters) {
        await put(where, { configure, write, read });
      } else if (right) {
        await remove(where);
      } else {
        throw new ApiError(0, "The user already has no access; cancel, or grant access.");
      }
      done();
      return enters ? `Permissions of '${user}' in '${vhost}' are set.` : `'${user}' no longer has access to '${vhost}'.`;
    },
  });
}
