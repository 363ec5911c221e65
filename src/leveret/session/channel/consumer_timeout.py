"""The time limit for acks: a channel whose oldest delivery waits too long is closed with 406.

Deliveries carry no time: that would cost every one of them.  Instead each look at the clock notes
the time and the newest delivery tag of a channel; a delivery is as old as the first note that has
its tag.  So a channel is closed late by as much as notes lie apart: a second, or a 64th of the
shortest timeout where that is longer.  Where thousands of deliveries are old, but their queues have
longer timeouts than others, each look goes on where the one before it ended: a minute later, if
there are a million.

Invariants: notes grow in time and tag; a channel without unacked deliveries has none.

Source: behaviour 64; the text is RabbitMQ's.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.session.channel.unacked import Unacked, UnackedList

_NOTES_PER_TIMEOUT: Final = 64
_NOTES_APART_MS: Final = 1000

#: Deliveries that one look at the clock goes through.
_LOOKED_AT: Final = 16_384


@final
class ConsumerTimeout:
    """The ages of one channel's unacked deliveries."""

    def __init__(self, unacked: UnackedList) -> None:
        self._unacked = unacked
        #: Times (monotonic ms) with the newest tag of that moment.
        self.notes: list[tuple[int, int]] = []
        #: The tag from which on the next look goes through the deliveries.
        self._next_tag: i64 = 0

    def exceeded(self, newest_tag: i64, now_ms: i64, default: i64, shortest: i64) -> i64:
        """Return the timeout that one of the deliveries exceeded, or 0.

        `default` is the timeout where a queue has none of its own, `shortest` the shortest that
        any has.
        """
        self._note(newest_tag, now_ms, shortest)
        notes = self.notes
        if not notes or now_ms - notes[0][0] < shortest:
            # The oldest is too young.
            self._next_tag = 0
            return 0
        found = self._unacked.from_tag(self._next_tag, _LOOKED_AT)
        note: i64 = 0
        for unacked in found:
            while note < len(notes) and notes[note][1] < unacked.tag:
                note += 1
            age: i64 = now_ms - notes[note][0] if note < len(notes) else 0
            if age < shortest:
                self._next_tag = 0
                return 0
            timeout = _timeout(unacked, default)
            if 0 < timeout <= age:
                return timeout
        self._next_tag = found[-1].tag + 1 if len(found) == _LOOKED_AT else 0
        return 0

    def _note(self, newest_tag: i64, now_ms: i64, shortest: i64) -> None:
        """Note how far the channel's deliveries have come, and forget what all are past."""
        notes = self.notes
        oldest = self._unacked.oldest()
        if oldest is None:
            notes.clear()
            return
        past: i64 = 0
        for note in notes:
            if note[1] >= oldest.tag:
                break
            past += 1
        del notes[:past]
        apart: i64 = max(shortest // _NOTES_PER_TIMEOUT, _NOTES_APART_MS)
        if not notes or (newest_tag > notes[-1][1] and now_ms - notes[-1][0] >= apart):
            notes.append((now_ms, newest_tag))


def timed_out(number: i64, timeout_ms: i64) -> PreconditionFailed:
    """Return the error of a channel with a delivery that exceeded `timeout_ms`."""
    return PreconditionFailed(
        f"delivery acknowledgement on channel {int(number)} timed out. "
        f"Timeout value used: {int(timeout_ms)} ms. This timeout value can be "
        "configured, see consumers doc guide to learn more"
    )


def _timeout(unacked: Unacked, default: i64) -> i64:
    """Return the timeout of one delivery, 0 for none: its queue's own, else the setting."""
    own = unacked.queue.settings.consumer_timeout_ms
    return default if own < 0 else own
