// Cancelling messages that a delaying exchange keeps until they are due.

import { counted, moment } from "../../common/format.js";
import { ask } from "../ask.js";
import { path, remove } from "../api.js";

export function cancelDelayed({ vhost, name, row, done }) {
  ask({
    title: "Cancel a scheduled message",
    says: `The message with the key '${row.routing_key}' that is due at ${moment(row.due)} is dropped; no queue will get it.`,
    action: "Cancel it",
    danger: true,
    run: async () => {
      await remove(path`exchanges/${vhost}/${name}/delayed/${row.id}`);
      done();
      return "The message is cancelled.";
    },
  });
}

export function cancelAllDelayed({ vhost, name, count, done }) {
  ask({
    title: `Cancel all scheduled messages of '${name}'`,
    says: `${counted(count, "message")} will be dropped; no queue will get them. This cannot be undone.`,
    action: "Cancel all",
    danger: true,
    run: async () => {
      const answer = await remove(path`exchanges/${vhost}/${name}/delayed`);
      done();
      return `${counted(answer.messages, "message")} cancelled.`;
    },
  });
}
