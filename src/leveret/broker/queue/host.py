"""The virtual host as the queues that it holds see it.

Whoever expires, dead-letters or delays a message asks it where that goes, and has it moved there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.queue.target import Destinations, Target
from leveret.broker.values.delay import KnownDelay
from leveret.message import Message

if TYPE_CHECKING:
    from leveret.broker.queue.queue import HoldingQueue, Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueHost:
    """What a queue asks of the virtual host that holds it."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.known_delay: Final = KnownDelay()

    @abstractmethod
    def drop_unused(self, queue: Queue) -> None:
        """Delete a queue that nobody used for as long as it asks."""

    def has_exchange(self, name: str) -> bool:
        """Tell whether there is an exchange of that name."""
        return False

    def route_letter(
        self, exchange: str, routing_key: str, more_keys: list[str], properties: bytes
    ) -> Destinations:
        """Return where a dead letter goes from an exchange that is there."""
        return Destinations([])

    def destinations(self, exchange: str, message: Message) -> list[Target]:
        """Return where a message of the broker's own goes; nowhere without the exchange."""
        return []

    @abstractmethod
    def move(
        self,
        queue: HoldingQueue,
        sequence: i64,
        message: Message,
        letter: Message,
        targets: list[Target],
    ) -> i64:
        """Take `sequence` out of `queue` and put `letter` into `targets`, by one record.

        `message` is what `queue` held under `sequence`, `letter` what it became.  Returns what came
        of it, as a publish does.
        """

    @abstractmethod
    def put(self, letter: Message, targets: list[Target]) -> None:
        """Put `letter`, which comes from no queue and from no publisher, into `targets`."""
