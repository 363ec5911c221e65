"""Channels of the reference broker: what is out, what waits for a confirm or for a commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from model.exchange import Exchange
from model.heard import At
from model.queue import Consumer, Entry, Message, Queue


@dataclass(eq=False)
class Delivery:
    """A message that is out."""

    queue: Queue
    entry: Entry
    consumer: Consumer | None


@dataclass
class Confirm:
    """A publish that is not confirmed.

    `state` is `memory` where no sync is needed, else `recorded`, `sealed` (its group is being
    written), `synced`.  `after` is the place of the return that must come before.
    """

    kind: str
    state: str
    after: int = 0


@dataclass
class Publish:
    """A publish that waits for its commit; `exchange` is none for the default one."""

    message: Message
    queues: list[Queue]
    mandatory: bool
    exchange: Exchange | None


@dataclass
class Settle:
    """Deliveries that are settled at the commit; `how` is ack, reject, requeue or fail."""

    deliveries: dict[int, Delivery]
    how: str


@dataclass(eq=False)
class Channel:
    """A channel.  `mode` is empty, `confirm` or `tx`."""

    at: At
    mode: str = ""
    last_tag: int = 0
    unacked: dict[int, Delivery] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    #: For the consumers to come, and for all of the channel's consumers together.
    prefetch_next: int = 0
    prefetch: int = 0
    published: int = 0
    confirms: dict[int, Confirm] = field(default_factory=dict)
    publishes: list[Publish] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)

    @property
    def consumed(self) -> int:
        """How many deliveries to its consumers are out, those of an open transaction too."""
        held = [one for settle in self.settles for one in settle.deliveries.values()]
        return sum(one.consumer is not None for one in (*held, *self.unacked.values()))

    def due(self) -> list[int]:
        """The publishes whose confirm must have come: those before the first unsynced one."""
        due = []
        for number, confirm in sorted(self.confirms.items()):
            if confirm.state in ("recorded", "sealed"):
                break
            due.append(number)
        return due
