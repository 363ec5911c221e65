"""The settings of a cluster member, from the arguments of `ClusterConsumer`."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.client.clusters.names import ClusterNames
from leveret.limits import CLUSTER_MEMBERS_MAX

#: The maximum prefetch count of `basic.qos`.
PREFETCH_MAX = 65_535


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The settings of a member; times are in seconds.

    Raises: ValueError for an invalid value, with the argument's name.
    """

    names: ClusterNames
    member: int | None = None
    prefetch: int = 10
    concurrency: int = 1
    max_attempts: int = 5
    retry_delay: float = 1.0
    retry_delay_max: float = 60.0
    max_batch: int | None = None
    max_wait: float = 1.0
    handler_timeout: float | None = None
    drain_timeout: float = 30.0
    member_timeout: float = 10.0

    def __post_init__(self) -> None:
        if self.member is not None and not 0 <= self.member < CLUSTER_MEMBERS_MAX:
            raise ValueError(
                f"member is {self.member}: it must be from 0 to {CLUSTER_MEMBERS_MAX - 1}"
            )
        counts = {"prefetch": self.prefetch, "concurrency": self.concurrency}
        counts |= {"max_attempts": self.max_attempts, "max_batch": self.max_batch or 1}
        for name, count in counts.items():
            if not 1 <= count <= PREFETCH_MAX:
                raise ValueError(f"{name} is {count}: it must be from 1 to {PREFETCH_MAX}")
        if self.names.partitions and self.concurrency > 1:
            raise ValueError(
                "concurrency is for clusters without partitions: a partition has one handler at a "
                "time, and partitions are handled in parallel"
            )
        times = {"retry_delay": self.retry_delay, "retry_delay_max": self.retry_delay_max}
        times |= {"max_wait": self.max_wait, "drain_timeout": self.drain_timeout}
        times |= {"handler_timeout": self.handler_timeout or 0}
        times |= {"member_timeout": self.member_timeout}
        for name, seconds in times.items():
            if not 0 <= seconds <= 86_400:
                raise ValueError(f"{name} is {seconds}: it must be from 0 to 86,400 seconds")

    @property
    def held_max(self) -> int:
        """The prefetch count per queue: enough for all handlers together."""
        return min(PREFETCH_MAX, max(self.prefetch, (self.max_batch or 1) * self.concurrency))

    def delay(self, attempt: int) -> float:
        """Return the retry delay after failed attempt number `attempt`, in seconds."""
        return min(attempt * self.retry_delay, self.retry_delay_max)
