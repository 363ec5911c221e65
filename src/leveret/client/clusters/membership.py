"""One membership in a cluster, over one connection.

A membership joins (connects, declares, takes a place, consumes), works and leaves.  It does not
rejoin; `consumer` begins another membership after a loss.

A member reserves its number by an exclusive queue, its *place*.  The broker grants the queue to one
connection at a time and deletes it when that connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from leveret.client.asynchronous import connect
from leveret.client.clusters.lane import Lane
from leveret.client.clusters.outcome import MemberInUse
from leveret.client.clusters.placement import priorities
from leveret.client.clusters.topology import check_cluster, declare_cluster, delays_retries
from leveret.client.errors import ClientError
from leveret.client.options import without_recovery
from leveret.errors import AmqpError, ResourceLocked
from leveret.limits import CLUSTER_MEMBERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.addresses import Address
    from leveret.client.asynchronous import Channel, Connection, Consumer
    from leveret.client.clusters.handler import Handler
    from leveret.client.clusters.settings import MemberSettings
    from leveret.client.options import ConnectOptions

log = logging.getLogger("leveret.client")

#: The errors of a lost connection, or of a channel closed by the broker.
FAILURES: Final = (OSError, ClientError, AmqpError)

#: How long to wait for a cancelled handler to end, in seconds.
_CANCEL_SECONDS: Final = 1.0

#: The delay between two attempts to take a place, in seconds.
_LOOK_SECONDS: Final = 0.1


class Membership:
    """One membership; created by `join`.  `member` is None in a shared queue without a number."""

    def __init__(
        self,
        connection: Connection,
        settings: MemberSettings,
        make_handler: Callable[[], Handler],
    ) -> None:
        self.member: int | None = None
        self._connection = connection
        self._settings = settings
        self._make_handler = make_handler
        self._stopping = asyncio.Event()
        self._consumers: list[Consumer] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, *, is_new: bool) -> None:
        """Join; return when the broker has confirmed every consumer.

        Unless `is_new`, the cluster must still exist.  Missing parts are declared.

        Raises: ClusterMismatch, ClusterDeleted, MemberInUse; as `declare_cluster` and `consume`.
        """
        names = self._settings.names
        if not is_new:
            await check_cluster(await self._connection.channel(), names)
        channel = await self._connection.channel()
        await declare_cluster(channel, self._settings)
        if names.partitions or self._settings.member is not None:
            self.member = await take_place(self._connection, self._settings)
        await channel.qos(self._settings.held_max)
        if names.partitions:
            assert self.member is not None, "a consumer of partitions has a place"
            await self._consume_partitions(channel, priorities(names.partitions, self.member))
        else:
            await self._consume_shared(channel)

    async def _consume_partitions(self, channel: Channel, wanted: list[int]) -> None:
        """Consume every partition, with this member's priorities."""
        self._consumers = [
            channel.consume(
                queue,
                consumer_tag=f"member-{self.member}-{partition}",
                arguments={"x-priority": wanted[partition]},
            )
            for partition, queue in enumerate(self._settings.names.queues)
        ]
        await asyncio.gather(*(_started(consumer) for consumer in self._consumers))
        for partition, consumer in enumerate(self._consumers):
            self._start(consumer, partition, in_place=True)

    async def _consume_shared(self, channel: Channel) -> None:
        """Consume the queue shared by all members."""
        tag = "" if self.member is None else f"member-{self.member}"
        consumer = channel.consume(self._settings.names.exchange, consumer_tag=tag)
        self._consumers = [await consumer]
        in_place = not delays_retries(self._connection.server_properties)
        for _ in range(self._settings.concurrency):
            self._start(consumer, None, in_place=in_place)

    def _start(self, consumer: Consumer, partition: int | None, *, in_place: bool) -> None:
        """Start a lane."""
        lane = Lane(
            consumer,
            self._make_handler(),
            self._settings,
            self._stopping,
            partition=partition,
            in_place=in_place,
        )
        self._tasks.add(asyncio.ensure_future(lane.run()))

    @property
    def is_handling(self) -> bool:
        """Whether the current task runs a handler."""
        return asyncio.current_task() in self._tasks

    async def wait(self) -> None:
        """Wait for the end of the membership.  Raises: the error that ended it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    def stop(self) -> None:
        """Stop taking messages."""
        self._stopping.set()

    async def end(self, drain_timeout: float) -> None:
        """Leave: take no more messages, wait up to `drain_timeout` for handlers, requeue the rest.

        Never fails: even if the broker misses a request, it notices the end of the connection.
        """
        self.stop()
        with contextlib.suppress(*FAILURES):  # TimeoutError is an OSError
            async with asyncio.timeout(max(drain_timeout, _CANCEL_SECONDS)):
                await asyncio.gather(*(consumer.cancel() for consumer in self._consumers))
        await self._drain(drain_timeout)
        with contextlib.suppress(*FAILURES):
            await self._connection.close()

    async def _drain(self, seconds: float) -> None:
        """Wait for the handlers, and cancel them if they do not return in time."""
        running = {task for task in self._tasks if not task.done()}
        if running:
            _, running = await asyncio.wait(running, timeout=seconds)
        if running:
            log.warning(
                "%d handlers of cluster %r did not return in %s s; their messages are requeued",
                len(running),
                self._settings.names.exchange,
                seconds,
            )
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=_CANCEL_SECONDS)
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.exception()  # marks it as retrieved, because `wait` raises it


async def join(
    uri: Address,
    options: ConnectOptions,
    settings: MemberSettings,
    make_handler: Callable[[], Handler],
    *,
    is_new: bool,
) -> Membership:
    """Connect and join the cluster.

    Raises: as `connect` and `Membership.begin`; the connection is then closed.
    """
    membership = Membership(await connect(uri, **without_recovery(options)), settings, make_handler)
    try:
        await membership.begin(is_new=is_new)
    except BaseException:
        await membership.end(0)
        raise
    return membership


async def take_place(connection: Connection, settings: MemberSettings) -> int:
    """Take the place of the configured member, or the lowest free place; return its number.

    Raises: MemberInUse.
    """
    names, member = settings.names, settings.member
    if member is None:
        for number in range(CLUSTER_MEMBERS_MAX):
            if await _is_taken(connection, names.place(number)):
                return number
        text = f"all {CLUSTER_MEMBERS_MAX} places of cluster {names.exchange!r} are taken"
        raise MemberInUse(text)
    deadline = time.monotonic() + settings.member_timeout
    while not await _is_taken(connection, names.place(member)):
        if time.monotonic() >= deadline:
            raise MemberInUse(
                f"cluster {names.exchange!r} has a member {member}: another connection holds "
                f"{names.place(member)!r}; end that program, or use another number"
            )
        await asyncio.sleep(_LOOK_SECONDS)
    return member


async def _is_taken(connection: Connection, place: str) -> bool:
    """Take a place; return False if another connection has taken it."""
    channel = await connection.channel()
    try:
        await channel.queue_declare(place, exclusive=True)
    except ResourceLocked:
        return False  # the error has closed the channel
    return True


async def _started(consumer: Consumer) -> None:
    """Wait for basic.consume-ok."""
    await consumer
