"""The number of messages lost by damage to the journal, from the sequences without a record.

Each recorded message of a queue has one record, in the order of sequences.  So the record of an
unseen sequence, which is in no intact record, was at a damaged place between the records of its
neighbors.  The message is lost only if it is neither removed nor in a chunk.  A damaged record with
such a sequence causes no other loss.

Invariant: transient messages have sequences but no records, so some may be counted as lost, but at
most one for each damaged record.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.store.damage import Damage
from leveret.store.records.record import (
    BODY_PART,
    CHECKPOINT,
    CLEAN_STOP,
    MOVE,
    PUBLISH,
    PUBLISH_IN_PARTS,
    RECORD_HEADER_BYTES,
    SPILL,
    TX,
    is_kind,
)
from leveret.store.recovery.replay import Replay
from leveret.wire.buffer import read_i32_le, read_i64_le

#: The kinds of records with one message, which begin with its queues.
_OF_MESSAGES: Final = (PUBLISH, PUBLISH_IN_PARTS, MOVE)

#: The kinds of records whose damage loses nothing; for a part of a body, the message counts.
_WITHOUT_LOSS: Final = (BODY_PART, CHECKPOINT, CLEAN_STOP, SPILL)


@final
@mypyc_attr(acyclic=True)
class Span:
    """Unseen sequences of a queue, whose records were in the damaged places `begin` to `end`."""

    def __init__(self, queue_id: i64, first: i64, last: i64, begin: i64, end: i64) -> None:
        self.queue_id: Final[i64] = queue_id
        self.first: Final[i64] = first
        self.last: Final[i64] = last
        self.begin: Final[i64] = begin
        self.end: Final[i64] = end


@final
class Unseen:
    """Tracks the records and the damaged places of all journal files, in order."""

    def __init__(self) -> None:
        self.places: list[Damage] = []
        #: The number of lost messages of each queue.
        self.lost: dict[int, int] = {}
        self._spans: list[Span] = []
        #: The last sequence of each queue with a record, and the number of damaged places before
        #: it.
        self._last: dict[i64, i64] = {}
        self._seen: dict[i64, i64] = {}
        #: The number of messages lost in each damaged place, and their queues.
        self._costs: dict[int, int] = {}
        self._charged: dict[int, set[int]] = {}
        #: The queues that each damaged record seems to contain.
        self._targets: dict[int, list[int]] = {}

    def begins(self, queue_id: i64, next_sequence: i64) -> None:
        """Record that a snapshot covers all sequences of a queue below `next_sequence`."""
        last: i64 = self._last.get(queue_id, next_sequence)
        self._last[queue_id] = min(last, next_sequence - 1)

    def damaged(self, damage: Damage, data: bytes) -> None:
        """Add a damaged place, after the records so far; `data` are the bytes of its file."""
        if damage.records == 1 and damage.kind in _OF_MESSAGES:
            self._targets[len(self.places)] = _targets(damage, data)
        self.places.append(damage)

    def named(self, queue_id: i64, sequence: i64) -> None:
        """Record that a sequence has a record."""
        places: i64 = len(self.places)
        last: i64 = self._last.get(queue_id, -1)
        if places > 0:
            self._close(queue_id, last, sequence)
        if sequence > last:
            self._last[queue_id] = sequence

    def settle(self, places: list[Damage]) -> None:
        """Copy the losses, after `judge`, to another list of the same places."""
        costs = {(place.path, int(place.position)): place.records for place in self.places}
        for place in places:
            key = (place.path, int(place.position))
            if key in costs:
                place.records = costs[key]

    def judge(self, replay: Replay) -> None:
        """Determine the losses in the damaged places, after the last record."""
        for queue_id in replay.queue_ids():
            state = replay.state(queue_id)
            if state is not None:
                self._close(queue_id, self._last.get(queue_id, -1), state.next_sequence)
        for span in self._spans:
            self._explain(span, replay)
        for number, queues in self._targets.items():
            self._charge_ends(number, queues, replay)
        for number, damage in enumerate(self.places):
            cost = self._costs.get(number)
            if cost is not None:
                # A place with unknown contents may have contained other records too.
                unknown = damage.records is None and cost == 0
                damage.records = None if unknown else cost
            elif damage.records == 1 and damage.kind in _WITHOUT_LOSS:
                damage.records = 0

    def _close(self, queue_id: i64, last: i64, sequence: i64) -> None:
        """Add the sequences between two seen ones, if there is a damaged place between them."""
        places: i64 = len(self.places)
        seen: i64 = self._seen.get(queue_id, 0)
        if seen < places and sequence > last + 1:
            self._spans.append(Span(queue_id, last + 1, sequence - 1, seen, places - 1))
        self._seen[queue_id] = places

    def _explain(self, span: Span, replay: Replay) -> None:
        """Attribute the lost messages of a span to the places that may have contained them."""
        state = replay.state(span.queue_id)
        # Only streams use the sequence 0.
        known = state is not None and state.type not in ("stream", "")
        first: i64 = max(span.first, 1) if known else span.first
        size = int(span.last - first + 1)
        if state is None or size <= 0:
            return
        lost = state.unaccounted(first, span.last)
        chosen = self._likely(span, replay)
        for number in chosen:
            bound = _bound(self.places[number])
            cost = lost if bound is None else min(bound, lost)
            size -= 1 if bound is None else bound
            lost -= cost
            self._charge(number, int(span.queue_id), cost)
            if size <= 0:
                break

    def _charge_ends(self, number: int, queues: list[int], replay: Replay) -> None:
        """Attribute the last messages of queues to a damaged record that seems to contain them.

        Such a queue has no later record with a higher sequence.
        """
        for queue_id in queues:
            state = replay.state(queue_id)
            if state is not None and queue_id not in self._charged.get(number, set()):
                self._charge(number, queue_id, 0 if state.deleted else 1)
        untold = len(queues) - len(self._charged.get(number, set()))
        if untold > 0 and number in self._costs:
            # The record contained further queues, whose ids are unreadable.
            self._costs[number] += untold

    def _charge(self, number: int, queue_id: int, cost: int) -> None:
        self._costs[number] = self._costs.get(number, 0) + cost
        self._charged.setdefault(number, set()).add(queue_id)
        self.lost[queue_id] = self.lost.get(queue_id, 0) + cost

    def _likely(self, span: Span, replay: Replay) -> list[int]:
        """Return the places that may have contained a span's sequences, the likeliest first."""
        numbers = list(range(int(span.begin), int(span.end) + 1))
        likely = [number for number in numbers if _may_publish(self.places[number])]
        queue_id = int(span.queue_id)
        named = [number for number in likely if queue_id in self._targets.get(number, [])]
        others = [number for number in likely if number not in named]
        # A record whose queues are all known is not of another queue, so it comes last.
        known = [number for number in others if self._knows_queues(number, replay)]
        likely = named + [number for number in others if number not in known] + known
        return likely or [number for number in numbers if self.places[number].records == 1]

    def _knows_queues(self, number: int, replay: Replay) -> bool:
        """Return whether all queues in a damaged record exist."""
        queues = self._targets.get(number, [])
        return bool(queues) and all(replay.state(queue_id) is not None for queue_id in queues)


def _targets(damage: Damage, data: bytes) -> list[int]:
    """Return the queues that a damaged record of a message seems to contain."""
    at: i64 = damage.position + RECORD_HEADER_BYTES
    end: i64 = min(damage.position + damage.size, len(data))
    if at + 4 > end:
        return []
    count = i64(read_i32_le(data, at))
    if count < 0 or at + 4 + 16 * count > end:
        return []
    return [int(read_i64_le(data, at + 4 + 16 * index)) for index in range(count)]


def _may_publish(damage: Damage) -> bool:
    """Return whether a damaged place may have contained messages."""
    kind = damage.kind
    return (
        damage.records is None
        or kind in _OF_MESSAGES
        or kind == TX
        or (damage.records == 1 and not is_kind(kind))
    )


def _bound(damage: Damage) -> int | None:
    """Return the maximum number of a queue's sequences in a damaged place, or None if unknown."""
    return None if damage.records is None or damage.kind == TX else 1
