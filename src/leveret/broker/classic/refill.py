"""Giving a classic queue back what the journal held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.backlog.source import Returned
from leveret.broker.classic.retained import KEPT, Retained
from leveret.broker.values.expiration import deadline_of

if TYPE_CHECKING:
    from leveret.broker.classic.classic import ClassicQueue


def refill(queue: ClassicQueue, returned: list[Returned], next_sequence: i64) -> None:
    """Put messages into their places, in the order of their sequences; pages are there before."""
    turn = queue.turn
    turn.held_messages += len(returned)
    kept = [item for item in returned if item.count == KEPT]
    if kept:
        returned = [item for item in returned if item.count != KEPT]
        if queue.retained is None:
            queue.retained = Retained(queue)
            queue.retained.bytes_max = 0
        queue.retained.restore(kept)
    queue.ready.fill(returned, next_sequence)
    ttl = queue.settings.message_ttl_ms
    for item in returned:
        size: i64 = item.message.size
        turn.held_bytes += size
        queue.bytes_ready += size
        queue.bodies_ready += len(item.message.body)
        queue.note_deadline(deadline_of(item.message, ttl), item.sequence)
