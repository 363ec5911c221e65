"""A member of a consumer cluster, from `subscribe` to `unsubscribe`.

If the member's connection or channel ends, or its queue is deleted, it rejoins, with a growing
delay between attempts.  It first waits for running handlers, so that two handlers of one member
never work on the same partition.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self, Unpack

from leveret.client.asynchronous import connect
from leveret.client.clusters import topology
from leveret.client.clusters.handler import Handler, is_coroutine_function
from leveret.client.clusters.membership import FAILURES, Membership, join
from leveret.client.clusters.names import ClusterNames
from leveret.client.clusters.outcome import (
    ClusterDeleted,
    ClusterMismatch,
    HandlerStopped,
)
from leveret.client.clusters.settings import MemberSettings
from leveret.client.errors import Closed, ConsumerCancelled
from leveret.client.options import split, without_recovery
from leveret.errors import AccessRefused, AccessRefusedHard, NotAllowed

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.clusters.handler import OnBatch, OnMessage
    from leveret.client.options import ConnectOptions

log = logging.getLogger("leveret.client")

#: Errors that rejoining cannot fix.
_FINAL: Final = (
    ClusterDeleted,
    ClusterMismatch,
    HandlerStopped,
    AccessRefused,
    AccessRefusedHard,
    NotAllowed,
)

#: The delay before the first attempt to rejoin, and the maximum delay, in seconds.
_REJOIN_SECONDS: Final = 0.1
_REJOIN_SECONDS_MAX: Final = 5.0


class ClusterConsumer:
    """A member of cluster `cluster` of topic `topic`; it handles messages while it is subscribed.

    `on_message` is called with a `ClusterMessage`, or with a list of them if `max_batch` is
    given, and returns an `Outcome`; None means `Outcome.ACK`, an exception `Outcome.RETRY`.  For a
    batch it returns one outcome for all messages or a list with one for each.  A coroutine function
    runs in the event loop, and a plain function in a thread.  `async with` subscribes and
    unsubscribes.

    Times are in seconds:

    - `uri` and `options`: as for `leveret.client.connect`.
    - `partitions`: 0 for one queue shared by all members, without order.  Otherwise messages with
      the same key are handled in order: the keys are divided among this number of partitions, and
      the partitions among the members.  Only one member at a time handles a partition.
    - `member`: this member's number, 0 to 255, unique in the cluster.  A member that rejoins with
      its number gets the same partitions.  None takes the lowest free number.
    - `prefetch`: the maximum number of unacked messages per queue.
    - `concurrency`: the number of messages of a shared queue handled at the same time.
    - `max_attempts`, `retry_delay`, `retry_delay_max`: a failed message waits for `retry_delay`
      times the number of its attempts, at most `retry_delay_max`, and is dead-lettered when it
      fails for the `max_attempts`-th time.  In a partition, later messages wait as well.
    - `max_batch`, `max_wait`: the maximum size of a batch, and how long its first message waits
      for others.
    - `handler_timeout`: a coroutine that runs longer is cancelled and counts as failed.
    - `drain_timeout`: how long `unsubscribe` waits for running handlers.
    - `member_timeout`: how long `subscribe` waits for the member number to become free.  The
      broker may not have noticed yet that an earlier program's connection has ended.

    Raises: ValueError or TypeError with the argument's name.
    """

    def __init__(
        self,
        topic: str,
        *,
        cluster: str,
        on_message: OnMessage | OnBatch,
        uri: Address = None,
        partitions: int = 0,
        member: int | None = None,
        prefetch: int = 10,
        concurrency: int = 1,
        max_attempts: int = 5,
        retry_delay: float = 1.0,
        retry_delay_max: float = 60.0,
        max_batch: int | None = None,
        max_wait: float = 1.0,
        handler_timeout: float | None = None,
        drain_timeout: float = 30.0,
        member_timeout: float = 10.0,
        **options: Unpack[ConnectOptions],
    ) -> None:
        if not callable(on_message):
            raise TypeError(f"on_message must be a function, not {type(on_message).__name__}")
        if handler_timeout is not None and not is_coroutine_function(on_message):
            raise ValueError(
                "handler_timeout needs a coroutine function as on_message: a thread that runs a "
                "plain function cannot be stopped"
            )
        self.settings = MemberSettings(
            ClusterNames(topic, cluster, partitions),
            member=member,
            prefetch=prefetch,
            concurrency=concurrency,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            retry_delay_max=retry_delay_max,
            max_batch=max_batch,
            max_wait=max_wait,
            handler_timeout=handler_timeout,
            drain_timeout=drain_timeout,
            member_timeout=member_timeout,
        )
        self._on_message = on_message
        self._uri = uri
        split(options)  # refuses unknown arguments
        self._options = options
        self._subscribing = asyncio.Lock()
        self._membership: Membership | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def member(self) -> int | None:
        """This member's number, or None if it has no number."""
        return None if self._membership is None else self._membership.member

    @property
    def is_subscribed(self) -> bool:
        """Whether this member is in its cluster or about to rejoin."""
        return self._ended is not None and not self._ended.done()

    # -- membership --------------------------------------------------------------------------------

    async def subscribe(self) -> Self:
        """Join the cluster, creating it if needed; return when the broker has confirmed.

        From then on the cluster gets every message of the topic, even while it has no members.

        Raises: OSError, TimeoutError or ConnectionLost if no broker answers; ClusterMismatch;
        MemberInUse; AccessRefused (403).
        """
        async with self._subscribing:
            if not self.is_subscribed:
                self._membership = await self._join(is_new=True)
                self._ended = asyncio.get_running_loop().create_future()
                self._supervisor = asyncio.ensure_future(self._supervise(self._membership))
        return self

    async def unsubscribe(self) -> None:
        """Leave the cluster after running handlers have ended; other messages are requeued.

        The cluster stays bound to the topic, and its backlog grows while it has no members.

        Raises: RuntimeError if a handler calls `unsubscribe`, which would wait for that handler.
        """
        if self._membership is not None and self._membership.is_handling:
            raise RuntimeError(
                "on_message called unsubscribe, which waits for on_message to return: set an "
                "asyncio.Event, and unsubscribe in the task that waits for it"
            )
        if self._membership is not None:
            self._membership.stop()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait([supervisor])
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.end(self.settings.drain_timeout)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def wait(self) -> None:
        """Wait until this member has left, by `unsubscribe` or by an error.

        Raises: the error: ClusterDeleted, ClusterMismatch, HandlerStopped, AccessRefused (403);
        Closed before `subscribe`.
        """
        if self._ended is None:
            raise Closed("the consumer is not subscribed")
        await asyncio.shield(self._ended)

    async def run(self) -> None:
        """Subscribe and wait; unsubscribe when this task is cancelled.  Raises: as both."""
        async with self:
            await self.wait()

    async def __aenter__(self) -> Self:
        return await self.subscribe()

    async def __aexit__(self, *exc: object) -> None:
        await self.unsubscribe()

    async def delete_cluster(self, *, dead_letters: bool = False) -> int:
        """Leave the cluster and delete it with its backlog; return the number of ready messages.

        Other members end with ClusterDeleted.  The dead-letter queue is kept unless `dead_letters`
        is True.

        Raises: as `connect`; AccessRefused (403).
        """
        await self.unsubscribe()
        async with await connect(self._uri, **without_recovery(self._options)) as connection:
            channel = await connection.channel()
            names = self.settings.names
            return await topology.delete_cluster(channel, names, dead_letters=dead_letters)

    # -- rejoining ---------------------------------------------------------------------------------

    async def _join(self, *, is_new: bool) -> Membership:
        """Join once.  Raises: as `subscribe`, and ClusterDeleted unless `is_new`."""
        return await join(
            self._uri, self._options, self.settings, self._make_handler, is_new=is_new
        )

    def _make_handler(self) -> Handler:
        """Return a new handler for one lane."""
        return Handler(
            self._on_message,
            batches=self.settings.max_batch is not None,
            timeout=self.settings.handler_timeout,
        )

    async def _supervise(self, membership: Membership) -> None:
        """Rejoin the cluster until a final error, which `wait` then raises."""
        assert self._ended is not None, "it was subscribed"
        try:
            while True:
                membership = await self._next_membership(membership)
        except asyncio.CancelledError:
            if self._supervisor is not None:  # not cancelled by `unsubscribe`
                self._ended.set_exception(Closed("the consumer's task was cancelled"))
                self._ended.exception()
            raise
        except Exception as error:  # noqa: BLE001  # `wait` raises any error
            log.error("a member of cluster %r ended: %s", self.settings.names.exchange, error)  # noqa: TRY400  # the error is raised by `wait`
            self._ended.set_exception(error)
            self._ended.exception()

    async def _next_membership(self, membership: Membership) -> Membership:
        """Wait for the end of a membership, then rejoin.  Raises: a final error."""
        was_cancelled = False
        try:
            await membership.wait()
        except Exception as error:
            await membership.end(self.settings.drain_timeout)
            if isinstance(error, _FINAL) or not isinstance(error, FAILURES):
                raise
            was_cancelled = isinstance(error, ConsumerCancelled)
            log.warning("cluster %r: rejoining after: %s", self.settings.names.exchange, error)
        delay = _REJOIN_SECONDS
        while True:
            try:
                self._membership = await self._join(is_new=not was_cancelled)
                return self._membership
            except _FINAL:
                raise
            except FAILURES as error:
                text = "cluster %r: could not rejoin, next attempt in %.1f s: %s"
                log.warning(text, self.settings.names.exchange, delay, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _REJOIN_SECONDS_MAX)
