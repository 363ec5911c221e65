// Problems of a node: their meaning and the remedy.

import { bytes, counted, number } from "../common/format.js";
import { link } from "./router.js";

/** Return the alarms of a node in a few words, or "all well". */
export function healthOf(node) {
  const [first, ...others] = alarmsOf(node).map((alarm) => alarm.title.split(":")[0]);
  return first ? `${first}${others.length > 0 ? ` and ${number(others.length)} more` : ""}` : "all well";
}

/** Return the alarms of a node as `{title, says, todo, to}`. */
export function alarmsOf(node) {
  return [memory(node), disk(node), damage(node), letters(node), sockets(node)].filter(Boolean);
}

function memory(node) {
  return (
    node.mem_alarm && {
      title: "Memory alarm: publishers are blocked",
      says: `Clients use ${bytes(node.mem_used)} of memory; publishers are blocked from ${bytes(node.mem_limit)} on. Consumers continue.`,
      todo: "find the queues that use the memory and consume them, purge them or limit them by a policy (max-length, max-length-bytes, message-ttl); or raise the setting memory_bytes_max.",
      to: { title: "The longest queues", to: link("queues", [], { sort: "message_bytes", reverse: "true" }) },
    }
  );
}

function disk(node) {
  return (
    node.disk_free_alarm && {
      title: "Disk alarm: publishers are blocked",
      says: `The disk of the data directory has ${bytes(node.disk_free)} free; publishers are blocked below ${bytes(node.disk_free_limit)}. Consumers continue.`,
      todo: "make room on the disk, purge or delete queues, or shorten the retention of streams (max-length-bytes, max-age).",
      to: { title: "The largest queues", to: link("queues", [], { sort: "message_bytes", reverse: "true" }) },
    }
  );
}

function damage(node) {
  const unknown = node.store_damages - node.store_damages_known;
  return (
    unknown > 0 && {
      title: "Damage was found in the data directory",
      says: `${counted(node.store_damages, "place")} damaged, ${counted(node.store_records_lost, "record")} lost: ${(node.store_damaged_places ?? []).join(", ")}.`,
      todo: "check the disk, then restore a backup or continue with the remaining data. “leveret store” reports the damaged places.",
    }
  );
}

function letters(node) {
  const dropped = (node.letters_dropped_copies ?? 0) + (node.letters_dropped_memory ?? 0);
  return (
    dropped > 0 && {
      title: "Dead letters were dropped",
      says: `${number(dropped)} dead letters could not be kept since the start of the broker.`,
      todo: "consume the queues of dead letters, or limit the number of dead letters.",
      to: { title: "Queues", to: link("queues", [], { name: "dead" }) },
    }
  );
}

function sockets(node) {
  const near = node.fd_total > 0 && node.fd_used > node.fd_total * 0.9;
  return (
    near && {
      title: "Nearly all descriptors are in use",
      says: `${number(node.fd_used)} of ${number(node.fd_total)} are in use; new connections will be refused.`,
      todo: "close unneeded connections, or raise the limit on open files of the process (LimitNOFILE).",
      to: { title: "Connections", to: link("connections") },
    }
  );
}
