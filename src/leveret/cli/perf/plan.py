"""The description of a load: its producers, consumers, messages and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from leveret.client.uri import Parameters

#: The size of the publish time at the start of a body.
STAMP_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One load.  0 means "no limit", except for the numbers of producers and consumers.

    `window` is the maximum number of unconfirmed publishes, 0 for no confirms; `ack_every` is the
    number of deliveries per ack, 0 for consumers without acks (`no_ack`).
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
        """The size of a body, with space for the publish time if latencies are measured."""
        return max(self.size, STAMP_BYTES) if self.latency else self.size
