"""What a recovered broker holds: its definitions, messages and counts, in a form that compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from leveret.broker.delayed.delayed import DelayedMessages
from leveret.broker.publishers.publishers import publisher_record
from leveret.broker.queue.browse import BrowseFilter, browse
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.sinks.area import area_of
from leveret.broker.stream.offsets import consumer_record
from leveret.broker.stream.stream import Stream
from leveret.broker.vhost.vhost import Vhost
from leveret.chunk import ChunkDamaged, RecordDamaged
from leveret.clock import ManualClock
from leveret.message import Message
from leveret.store.disk import StorageFailure
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.format import FORMAT_PATH, JOURNAL_DIR, QUARANTINE_DIR, STATE_DIR, UnknownFormat
from leveret.store.segments.segments import ChunkRef, read_chunk
from leveret.store.survey.survey import Survey
from replay.account import (
    Content,
    Holding,
    Key,
    content,
    identity,
    in_words,
    offset_identity,
    staged_in,
)
from support.node.core import Node
from support.node.delayed import kept as delayed_messages

PAGE_MESSAGES = 1000


@dataclass
class Found:
    """What a recovery put back, and what it said; `wrong` are its own contradictions."""

    holding: Holding
    damages: list[str] = field(default_factory=list)
    torn: int = 0
    clean: bool = False
    orphaned: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def recovered(
    image: Image, clock: ManualClock | None = None, window_bytes: int = -1
) -> tuple[Found, RecordingDisk]:
    """Recover from an image and look at what is there; nothing is journaled yet."""
    disk = RecordingDisk(image)
    node = Node(disk, clock=clock, begin=False, window_bytes=window_bytes)
    found = look(node)
    found.wrong += _thrown_away(image, disk.image())
    return found, disk


def left_out(image: Image) -> list[str]:
    """Return what a survey says that snapshots leave out of what a crash left: never anything.

    It holds the newest one against the generation before it.  The image of a start that was cut off
    may be no store yet.
    """
    survey = Survey(RecordingDisk(image))
    try:
        for _ in survey.run():
            pass
    except UnknownFormat:
        return []
    return [
        f"I7 a check says: {damage}"
        for damage in survey.damages
        if damage.path.startswith(STATE_DIR)
    ]


def look(node: Node) -> Found:
    """Return what a broker holds that a crash must not take."""
    report = node.report
    found = Found(
        Holding(),
        [str(damage) for damage in report.damages],
        len(report.torn),
        report.clean_stop,
        list(node.orphaned),
    )
    for kind, definition in _definitions(node):
        found.holding.definitions[identity(kind, definition)] = in_words(definition)
        if kind == "sink":
            found.holding.decided |= staged_in(definition)
    for vhost in node.broker.vhosts.values():
        for queue in _queues(vhost):
            if queue.recorded:
                found.holding.queues[int(queue.queue_id)] = (vhost.name, queue.name)
                if "x-staging-sink" in queue.arguments:
                    found.holding.staging.add(int(queue.queue_id))
                if queue.target.publishers is not None:
                    for publisher, known in queue.target.publishers.by_name.items():
                        place = (int(queue.queue_id), publisher)
                        found.holding.publishers[place] = int(known.number)
                _look_at(node, queue, found)
    found.damages += [damaged.what for damaged in node.core.damaged]
    return found


def _definitions(node: Node) -> Iterator[tuple[str, dict[str, object]]]:
    broker = node.broker
    for vhost in broker.vhosts.values():
        yield "vhost", vhost.metadata.record()
        for policy in vhost.policies.by_name.values():
            yield "policy", policy.record(vhost.name)
        for policy in vhost.policies.operator_by_name.values():
            yield "operator_policy", policy.record(vhost.name)
        for exchange in vhost.exchanges.by_name.values():
            if exchange.durable and exchange.name and not exchange.name.startswith("amq."):
                yield "exchange", exchange.definition(vhost.name)
            for binding in exchange.bindings.values():
                if binding.durable:
                    yield "binding", binding.definition(vhost.name)
        for queue in _queues(vhost):
            if queue.recorded:
                yield "queue", queue.definition(vhost.name)
                yield from _owned(queue)
        for decision in area_of(vhost).definitions():
            yield "sink", decision
    users = broker.users
    for user in users.by_name.values():
        yield "user", user.definition()
    for (name, at), permission in users.permissions.items():
        yield "permission", permission.definition(name, at)
    for (name, at), of_user in users.topic_permissions.items():
        for exchange_name, topic_permission in of_user.items():
            yield "topic_permission", topic_permission.definition(name, at, exchange_name)
    for name, limits in users.limits.items():
        yield "user_limits", {"user": name, "limits": dict(limits)}
    yield from broker.parameters.records()


def _owned(queue: Queue) -> Iterator[tuple[str, dict[str, object]]]:
    """Whose the names are that users took in a queue."""
    if queue.target.publishers is not None:
        for name, known in queue.target.publishers.by_name.items():
            if known.owner is not None:
                yield "publisher", publisher_record(queue.queue_id, name, known.owner)
    if isinstance(queue, Stream):
        for consumer, owner in queue.offsets.owners.items():
            if owner is not None:
                yield "stream_consumer", consumer_record(queue.queue_id, consumer, owner)


def _queues(vhost: Vhost) -> list[Queue]:
    stores = [exchange.delayed for exchange in vhost.exchanges.by_name.values()]
    return [*vhost.queues.by_name.values(), *[store for store in stores if store is not None]]


def _look_at(node: Node, queue: Queue, found: Found) -> None:
    messages = found.holding.messages
    queue_id = int(queue.queue_id)
    before = len(messages)
    size = 0
    if isinstance(queue, Stream):
        messages.update(_of_stream(node, queue, found))
        for name, offset in queue.offsets.stored.items():
            found.holding.definitions[offset_identity(queue_id, name.encode())] = str(offset)
        return
    if isinstance(queue, DelayedMessages):
        for sequence, message in delayed_messages(queue):
            messages[queue_id, int(sequence)] = (content(message), 0)
            size += int(message.size)
        if any(
            page.away < page.stored.ref.count for page in queue.pages.by_key.values() if page.stored
        ):
            # The bytes of what went of a chunk are not known before it is read.
            size = int(queue.ready_bytes())
    else:
        assert isinstance(queue, WaitingQueue)
        last = -1
        for item in _waiting(queue):
            messages[queue_id, int(item[0])] = (item[1], item[2])
            size += item[3]
            if item[0] <= last:
                found.wrong.append(f"queue '{queue.name}': {item[0]} comes after {last}")
            last = item[0]
    count = len(messages) - before
    if (int(queue.ready_count()), int(queue.ready_bytes())) != (count, size):
        said = f"{queue.ready_count()} messages of {queue.ready_bytes()} bytes"
        found.wrong.append(f"queue '{queue.name}' says {said}, holds {count} of {size}")
    if isinstance(queue, ClassicQueue) and queue.retained is not None:
        for kept in queue.retained.persistent():
            messages[queue_id, int(kept.sequence)] = (content(kept.message), int(kept.count))


def _waiting(queue: WaitingQueue) -> Iterator[tuple[int, Content, int, int]]:
    """Yield sequence, content, count and size of what waits."""
    after: int | None = None
    while True:
        page = browse(queue, BrowseFilter(), after, PAGE_MESSAGES)
        for item in page.items:
            message = item.message
            yield int(item.sequence), content(message), max(int(item.count), 0), int(message.size)
        after = page.after
        if after is None:
            return


def _of_stream(node: Node, stream: Stream, found: Found) -> dict[Key, tuple[Content, int]]:
    """Return a stream's messages, of blocks in memory and in files."""
    messages: dict[Key, tuple[Content, int]] = {}
    queue_id = int(stream.queue_id)
    next_offset = int(stream.first_offset)
    for block in stream.blocks:
        first = int(block.first)
        if block.messages is not None:
            items = list(block.messages)
        else:
            assert block.ref is not None
            items = _stored(node, block.ref, queue_id, found)
        for offset, message in enumerate(items, first):
            if message is not None:
                messages[queue_id, offset] = (content(message), 0)
        next_offset = max(next_offset, first + len(items))
    size = sum(len(kept[2]) + len(kept[3]) for kept, _ in messages.values())
    if not found.damages and size != stream.ready_bytes():
        said = f"{stream.ready_bytes()} bytes, holds {size}"
        found.wrong.append(f"stream '{stream.name}' says {said}")
    if next_offset != stream.next_offset:
        found.wrong.append(f"stream '{stream.name}' ends at {next_offset}: {stream.next_offset}")
    return messages


def _stored(node: Node, ref: ChunkRef, queue_id: int, found: Found) -> list[Message | None]:
    """Return the messages of a chunk; what does not check is None, and is told."""
    messages: list[Message | None] = [None] * int(ref.count)
    try:
        chunk = read_chunk(node.disk, ref, queue_id)
        for place in range(chunk.count):
            messages[place] = chunk.message(place)
    except (ChunkDamaged, RecordDamaged, StorageFailure) as error:
        found.damages.append(f"{ref}: {error!r}")
    return messages


def _thrown_away(before: Image, after: Image) -> list[str]:
    """Return what a recovery threw away: it may cut a torn tail off, once that is kept apart.

    What an earlier one began to copy to the quarantine, and did not finish, is copied again.
    """
    wrong = []
    kept = {data for path, data in after.files.items() if path.startswith(QUARANTINE_DIR)}
    for path, old in before.files.items():
        new = after.files.get(path)
        if path == f"{FORMAT_PATH}.new" or path.endswith(".tmp"):
            continue
        if new is None:
            wrong.append(f"the recovery removed {path}")
        elif new != old and path != FORMAT_PATH and not path.startswith(QUARANTINE_DIR):
            cut = path.startswith(JOURNAL_DIR) and old.startswith(new) and old[len(new) :] in kept
            if not cut:
                wrong.append(f"the recovery changed {path}")
    return wrong
