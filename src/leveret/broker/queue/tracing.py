"""The events of traced messages in queues.

Callers check `core.event_mask` first, because most messages are not traced.
`events.py` processes the events.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.attributes.death_reasons import REASON_EXPIRED
from leveret.broker.attributes.message_events import (
    DEAD_LETTERED,
    DROPPED,
    EXPIRED,
    LETTERS_DROPPED,
)
from leveret.broker.queue.queue import Queue
from leveret.message import Message
from leveret.store.records.returns import acquisitions


def note_event(
    queue: Queue, event: str, sequence: i64, message: Message | None, count: i64 = 0
) -> None:
    """Record an event of a traced message of a queue, or of the queue itself.

    `count` is the message's number of returns, as in `store.records.returns`.
    """
    _note(queue, event, sequence, message, "", acquisitions(count))


def note_death(queue: Queue, sequence: i64, message: Message, reason: str, count: i64) -> None:
    """Record that a traced message is dead-lettered or dropped."""
    event = EXPIRED if reason == REASON_EXPIRED else DROPPED
    if queue.settings.dead_letter_exchange is not None:
        event = DEAD_LETTERED
    _note(queue, event, sequence, message, reason, acquisitions(count))


def note_dropped_copies(
    queue: Queue, sequence: i64, message: Message, reason: str, count: i64
) -> None:
    """Record that copies of a traced message are not made when it is dead-lettered."""
    _note(queue, LETTERS_DROPPED, sequence, message, reason, count)


def _note(
    queue: Queue, event: str, sequence: i64, message: Message | None, reason: str, count: i64
) -> None:
    events = queue.core.events
    vhost = queue.vhost
    if events is not None and vhost is not None and not queue.hidden:
        events.queue_event(event, vhost.name, queue.name, sequence, message, reason, count)
