// Closing connections; their clients get a reason.

import { ask } from "../ask.js";
import { ApiError, path, remove } from "../api.js";
import { go } from "../router.js";

const FIELDS = [{ name: "reason", title: "Reason for the client", value: "Closed by an operator" }];

/** Return the reason in a form for a header. */
function header(reason) {
  if (!/^[\x20-\x7e]*$/.test(reason)) {
    throw new ApiError(0, "The reason may only have printable ASCII characters.");
  }
  return reason ? { "X-Reason": reason } : {};
}

export function closeConnection(row) {
  ask({
    title: `Close connection '${row.user_provided_name ?? row.name}'`,
    says: `The client of user '${row.user}' loses its ${row.channels} channels. Its unacked messages are delivered again, and many clients reconnect by themselves.`,
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
    says: "Every client that is logged in as this user is disconnected. Their unacked messages are delivered again.",
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
