// Closing connections; their clients get a reason.

import { ask } from "../ask.js";
import { ApiError, path, remove } from "../api.js";
import { go } from "../router.js";

const FIELDS = [{ name: "reason", title: "Reason, as the client is told", value: "Closed by an operator" }];

/** Return the reason in a form for a header. */
function header(reason) {
  if (!/^[\x20-\x7e]*$/.test(reason)) {
    throw new ApiError(0, "The reason may have only printable characters of ASCII.");
  }
  return reason ? { "X-Reason": reason } : {};
}

export function closeConnection(row) {
  ask({
    title: `Close connection '${row.user_provided_name ?? row.name}'`,
    says: `The client of user '${row.user}' loses its ${row.channels} channels. What it has not acked is delivered again, and many clients connect again by themselves.`,
    action: "Close it",
    danger: true,
    fields: FIELDS,
    run: async ({ reason }) => {
      await remove(path`connections/${row.name}`, header(reason));
      go("connections");
      return "The connection is closed.";
    },
  });
}

export function closeUser(user) {
  ask({
    title: `Close all connections of user '${user}'`,
    says: "Every client that is logged in as this user is disconnected. What they have not acked is delivered again.",
    action: "Close them",
    danger: true,
    fields: FIELDS,
    run: async ({ reason }) => {
      await remove(path`connections/username/${user}`, header(reason));
      go("connections");
      return `All connections of '${user}' are closed.`;
    },
  });
}
