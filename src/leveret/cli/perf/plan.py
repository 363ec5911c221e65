"""What a load is: how many producers and consumers, of what messages, for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from leveret.client.uri import Parameters

#: What the sender's time takes at the start of a body.
STAMP_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """One load.  0 stands for "no limit" everywhere but in the numbers of producers and consumers.

    `window` is how many publishes may wait for their confirm, 0 for no confirms; `ack_every` is how
    many deliveries one ack is for, 0 for consumers that do not ack (`no_ack`).
    """

    parameters: Parameters
    queue: str
    producers: int = 1
    consumers: int = 1
    size: int = 16
    window: int = 0
    ack_every: int = 1
    prefetch: int = 0
    persistent: bool = False
    mandatory: bool = False
    predeclared: bool = False
    seconds: float = 0.0
    producer_messages: int = 0
    consumer_messages: int = 0
    rate: float = 0.0
    consumer_rate: float = 0.0
    latency: bool = False
    arguments: dict[str, object] = field(default_factory=dict)

    @property
    def body_bytes(self) -> int:
        """The size of a body: room for the sender's time at least, where latencies are kept."""
        return max(self.size, STAMP_BYTES) if self.latency else self.size
