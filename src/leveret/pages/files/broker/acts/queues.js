// Actions on a queue; a destructive one names the data that will be lost.

import { counted, number } from "../../common/format.js";
import { ask } from "../ask.js";
import { ApiError, path, post, query, remove } from "../api.js";
import { go } from "../router.js";

/** How many messages the broker moves in one request. */
const AT_ONCE = 1000;

export function purgeQueue(row, done) {
  ask({
    title: `Purge queue '${row.name}'`,
    says: `${counted(row.messages_ready, "waiting message")} will be dropped for good. The ${number(row.messages_unacknowledged)} unacked ones stay.`,
    action: "Purge",
    danger: true,
    run: async () => {
      await remove(path`queues/${row.vhost}/${row.name}/contents`);
      done();
      return `Queue '${row.name}' is purged.`;
    },
  });
}

export function deleteQueue(row) {
  const held = row.messages > 0 ? `${counted(row.messages, "message")} in it will be lost` : "It is empty";
  const users = row.consumers > 0 ? `, and ${counted(row.consumers, "consumer")} will be cancelled` : "";
  ask({
    title: `Delete ${row.type === "stream" ? "stream" : "queue"} '${row.name}'`,
    says: `${held}${users}. Its bindings will be removed. This cannot be undone.`,
    action: "Delete",
    danger: true,
    fields: [
      { name: "empty", title: "Only if it is empty", kind: "check", value: false },
      { name: "unused", title: "Only if it has no consumers", kind: "check", value: false },
    ],
    run: async ({ empty, unused }) => {
      const only = query({ "if-empty": empty || undefined, "if-unused": unused || undefined });
      await remove(path`queues/${row.vhost}/${row.name}` + only);
      go("queues");
      return `Queue '${row.name}' is deleted.`;
    },
  });
}

/** Move the requested number of messages, a thousand at a time; return how many were moved. */
async function moveAll(row, body, count) {
  const where = path`queues/${row.vhost}/${row.name}/move`;
  let moved = 0;
  let answer = { left: true };
  while (answer.left && moved < count) {
    try {
      answer = await post(where, { ...body, count: Math.min(AT_ONCE, count - moved) });
    } catch (error) {
      throw unmoved(error, body.to, moved);
    }
    moved += answer.messages;
    if (answer.messages === 0) {
      break;
    }
  }
  return moved;
}

/** Return the error of a move, including the number of messages already moved. */
function unmoved(error, to, moved) {
  const says = error.status === 404 ? `There is no queue '${to}' in this vhost.` : error.message;
  return new ApiError(error.status, moved > 0 ? `${says} (${counted(moved, "message")} moved before.)` : says);
}

export function moveMessages(row, done) {
  ask({
    title: `Move messages of queue '${row.name}'`,
    says: `Up to ${counted(row.messages_ready, "waiting message")} will leave this queue, in their order, for another queue of the vhost.`,
    action: "Move",
    danger: true,
    fields: [
      { name: "to", title: "To queue", required: true },
      { name: "count", title: "How many", kind: "number", min: 1, placeholder: "all" },
    ],
    run: async ({ to, count }) => {
      const moved = await moveAll(row, { to }, count === "" ? row.messages_ready : Number(count));
      done();
      return `${counted(moved, "message")} moved to '${to}'.`;
    },
  });
}

/** Return a time in the format of a datetime-local input, in the reader's zone. */
function localMoment(ms) {
  const at = new Date(ms - new Date(ms).getTimezoneOffset() * 60000);
  return at.toISOString().slice(0, 16);
}

export function rewindQueue(row, done) {
  ask({
    title: `Rewind queue '${row.name}'`,
    says: `Of the ${counted(row.messages_retained ?? 0, "message")} that were acked and are retained, those published since the time below are put back, and consumers will get them a second time.`,
    action: "Rewind",
    danger: true,
    fields: [
      { name: "since", title: "Published since (your time zone)", kind: "datetime-local", required: true,
        value: localMoment(Date.now() - 3600000) },
    ],
    run: async ({ since }) => {
      const body = { timestamp: new Date(since).getTime() };
      const answer = await post(path`queues/${row.vhost}/${row.name}/rewind`, body);
      done();
      return `${counted(answer.messages, "message")} put back into '${row.name}'.`;
    },
  });
}

/** Put the dead letters back that were dead-lettered in the queue of `of` for its reason. */
export function returnLetters(row, of, done) {
  ask({
    title: "Put dead letters back",
    says: `${counted(of.messages, "message")} in '${row.name}', dead-lettered in '${of.queue}' (${of.reason}), will move from this queue to '${of.queue}'.`,
    action: "Put back",
    run: async () => {
      const body = { to: of.queue, reason: of.reason, queue: of.queue };
      const moved = await moveAll(row, body, row.messages_ready);
      done();
      return `${counted(moved, "message")} put back into '${of.queue}'.`;
    },
  });
}
