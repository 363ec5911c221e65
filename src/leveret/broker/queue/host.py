"""The virtual host as the queues that it holds see it.

Whoever expires, dead-letters or delays a message asks it where that goes, and has it moved there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue


class Destinations:
    """The queues that a message goes to."""

    def __init__(self) -> None:
        #: Each queue once.
        self.queues: list[Queue] = []
        #: How many bindings matched, those to the same queue and by several keys too.
        self.matched: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueHost:
    """What a queue asks of the virtual host that holds it."""

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def drop_unused(self, queue: Queue) -> i64:
        """Delete a queue that nobody used for as long as it asks; return its steps of work."""
        raise RuntimeError("a virtual host deletes its queues")

    def has_exchange(self, name: str) -> bool:
        """Tell whether there is an exchange of that name."""
        return False

    def route_letter(
        self, exchange: str, routing_key: str, more_keys: list[str], properties: bytes
    ) -> Destinations:
        """Return where a dead letter goes from an exchange that is there."""
        return Destinations()

    def destinations(self, exchange: str, message: Message) -> list[Queue]:
        """Return where a message of the broker's own goes; nowhere without the exchange."""
        return []

    def move(
        self, queue: Queue, sequence: i64, message: Message, letter: Message, queues: list[Queue]
    ) -> i64:
        """Take `sequence` out of `queue` and put `letter` into `queues`, by one record.

        `message` is what `queue` held under `sequence`, `letter` what it became.  Returns what came
        of it, as a publish does.
        """
        raise RuntimeError("a virtual host moves messages")
