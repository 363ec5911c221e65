"""The broker, with its vhosts, its connections, and the alarms that block publishers.

The composition root creates it, sets its time, and runs the effects recorded by the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.consumers.consumer import QueueConsumer
from leveret.broker.core import Core
from leveret.broker.eviction import Eviction
from leveret.broker.parameters import RuntimeParameters
from leveret.broker.policies.keys import utf8_size
from leveret.broker.publishers.publish_sessions import PublishSessions
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.link import Link, close_links
from leveret.broker.scheduler.task import Task
from leveret.broker.sinks.area import StagingArea, area_of
from leveret.broker.users.users import ADMINISTRATOR, Users
from leveret.broker.vhost.ids import Ids, StreamIds
from leveret.broker.vhost.limits import checked_limits
from leveret.broker.vhost.metadata import (
    check_metadata,
    merged_metadata,
    vhost_record,
)
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import NotAllowed, NotFound, PreconditionFailed
from leveret.limits import (
    MESSAGE_OVERHEAD_BYTES,
    OVERFULL_BYTES_MAX,
    REQUEST_SHARE,
    SHORT_STRING_BYTES_MAX,
    STREAM_CACHE_BYTES_MAX,
    VHOSTS_MAX,
)
from leveret.store.journal.journal import Journal

#: While connections exceed their memory limit, the connection that uses the most memory in addition
#: to messages is closed if it uses more than this.  No well-behaved client does so when memory is
#: short.
_GREEDY_CONNECTION_BYTES: Final = 65_536

#: The fraction of `memory_bytes_max` that retained acked messages of queues and the histories of
#: exchanges may take together.  No consumer removes them, so they would keep publishers blocked.
#: They may take twice as much for a moment.
RETENTION_SHARE: Final = 8

#: The fraction of `memory_bytes_max` for returned messages that wait for their retry, in memory,
#: for as long as their queue's settings say.
RETRY_SHARE: Final = 8

#: The fraction of `memory_bytes_max` for the marks of all queues and streams, which are data other
#: than messages that is removed only after a time or with its owner.
_MARK_SHARE: Final = 8


def _share_memory(core: Core, bytes_max: i64) -> None:
    """Set the limits that are shares of the memory limit."""
    # Memory of data that is also in files must not keep the alarm on.
    core.memory.retention.bytes_max = bytes_max // RETENTION_SHARE
    core.accounts.mark_bytes_max = bytes_max // _MARK_SHARE
    core.accounts.request_bytes_max = bytes_max // REQUEST_SHARE
    core.memory.retries.bytes_max = bytes_max // RETRY_SHARE
    core.stream_cache.bytes_max = min(STREAM_CACHE_BYTES_MAX, bytes_max // 8)


def _ignore_consumer(consumer: QueueConsumer) -> None:
    """Do nothing with a new consumer."""


class Broker:
    """One node."""

    def __init__(
        self, journal: Journal, memory_bytes_max: i64, stream_ids: StreamIds | None = None
    ) -> None:
        self.core = Core(journal)
        self.ids = Ids(stream_ids)
        self.vhosts: dict[str, Vhost] = {}
        #: Vhosts being deleted.  They cannot be found, but their names are still in use.
        self.dissolving: dict[str, Vhost] = {}
        #: A dict, so that connections resume in the order they opened when an alarm ends.
        self.links: dict[Link, None] = {}
        #: One closed connection of each protocol; all closed ones share its parts
        #: (`ClientSession.untie`).
        self.ended_links: dict[str, Link] = {}
        #: Connections that are in a vhost, by user and by vhost.
        self._links_of_users: dict[str, dict[Link, None]] = {}
        self._links_of_vhosts: dict[str, dict[Link, None]] = {}
        self.users = Users(self.core, self.vhosts, self.links)
        self.eviction = Eviction(self.core, self.vhosts)
        self.parameters = RuntimeParameters(self.core, self.vhosts)
        self.publish_sessions = PublishSessions(self.core)
        #: Called with each new consumer of an AMQP client, for the HTTP API.
        self.consumer_added: Callable[[QueueConsumer], object] = _ignore_consumer
        #: True while a task applies the retention of all streams.
        self._retains = False
        #: Publishers are blocked while clients take more memory than this.
        self.memory_bytes_max: i64 = memory_bytes_max
        _share_memory(self.core, memory_bytes_max)
        #: The disk space that must stay free, and the free space at the last check.
        self.disk_free_bytes_min: i64 = 0
        self.disk_free_bytes: i64 = 0
        self.memory_alarm = False
        #: True while the operator forces a memory alarm.
        self.forced_alarm = False
        self.disk_alarm = False
        #: True while either alarm is on; the reason names both.
        self.blocked = False
        self.blocked_reason = ""

    def vhost(self, name: str) -> Vhost:
        """Return a vhost.

        Raises: NotAllowed (530) if it does not exist (behaviour 6: unknown vhost).
        """
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        return vhost

    def add_vhost(self, name: str) -> Vhost:
        """Return the vhost `name`; if it is new, create and journal it.

        Raises: PreconditionFailed (406) for an invalid name, or too many vhosts.
        """
        vhost = self.vhosts.get(name)
        return self.put_vhost(name, {}, {}) if vhost is None else vhost

    def put_vhost(
        self, name: str, metadata: Arguments, limits: Arguments, maker: str = ""
    ) -> Vhost:
        """Create or change the vhost `name` by one record, and return it.

        Fields that `metadata` does not name keep their values, and so do the limits if `limits` is
        empty.  The user `maker` gets all permissions in a new vhost, as in RabbitMQ.

        Raises: PreconditionFailed (406) for an invalid name, metadata or limits, or too many
        vhosts; then nothing is changed.
        """
        vhost = self.vhosts.get(name)
        if vhost is not None:
            vhost.metadata.set(metadata, limits)
            return vhost
        if not 0 < utf8_size(name) <= SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(f"a vhost's name has 1 to {SHORT_STRING_BYTES_MAX} bytes")
        if name in self.dissolving:
            raise PreconditionFailed(f"vhost '{name}' is being deleted")
        if len(self.vhosts) + len(self.dissolving) >= VHOSTS_MAX:
            raise PreconditionFailed(f"there are at most {VHOSTS_MAX} vhosts")
        check_metadata(metadata)
        record = vhost_record(name, merged_metadata({}, metadata), checked_limits(limits))
        if not maker:
            return self._make_vhost(name, record)
        self.users.check_new_permission()
        self.core.journal.begin_tx()
        try:
            vhost = self._make_vhost(name, record)
            self.users.set_permission(maker, name, ".*", ".*", ".*")
        finally:
            self.core.journal.end_tx()
        return vhost

    def _make_vhost(self, name: str, record: Arguments) -> Vhost:
        self.core.journal.define("vhost", record)
        vhost = self.restore_vhost(name)
        vhost.metadata.restore(record)
        return vhost

    def delete_vhost(self, name: str) -> Task:
        """Delete a vhost with its contents, and close its connections (320).

        From now on the vhost cannot be found, and nothing can be declared in it.  When the task
        ends, the vhost is empty and its name is free.

        Raises: NotFound (404); PreconditionFailed (406) for a protected vhost.
        """
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        if vhost.metadata.protected:
            raise PreconditionFailed(f"vhost '{name}' is protected from deletion")
        self.core.scheduler.changes += 1
        vhost.end()
        # The record includes the deletion of the contents, so that a crash leaves all or nothing.
        self.core.journal.define("vhost", vhost.metadata.record())
        del self.vhosts[name]
        self.dissolving[name] = vhost
        self.users.forget_vhost(name)
        self.parameters.forget_vhost(name)
        return self.core.scheduler.start(self._dissolve(vhost))

    def _dissolve(self, vhost: Vhost) -> Iterator[int]:
        """Delete the contents of a vhost: its connections, then exchanges and queues, one by one.

        A start that reads the record of the deletion completes the deletion.  The deletion of each
        recorded queue has its own record, because a checkpoint in progress may be too late to find
        the queue's vhost.
        """
        name = vhost.name
        links = list(self._links_of_vhosts.get(name, ()))
        yield from close_links(links, f"vhost '{name}' is deleted", vhost=name)
        yield from vhost.dissolve()
        # A queue in a later vhost of the same name does not belong to this vhost.
        last_queue_id = int(self.ids.last_queue_id)
        self.core.journal.delete("vhost", {"name": name, "last_queue_id": last_queue_id})
        self.core.syncs.recorded()
        del self.dissolving[name]
        if self.core.events is not None:
            self.core.events.forget_vhost(name)

    def all_vhosts(self) -> list[Vhost]:
        """Return all vhosts with any contents, including those being deleted."""
        return [*self.vhosts.values(), *self.dissolving.values()]

    def enter(self, link: Link, name: str) -> Vhost:
        """Add an authenticated connection to a vhost, and return the vhost.

        A user without permissions in a vhost does not learn whether it exists, unless they are an
        administrator.

        Raises: NotAllowed (530) for an unknown vhost, one without permissions for the user, or one
        with too many connections, and if the user has too many connections.
        """
        user = link.user
        where = f"access to vhost '{name}' refused for user '{user}'"
        if (user, name) not in self.users.permissions:
            if self.users.has_tag(user, ADMINISTRATOR):
                self.vhost(name)
            raise NotAllowed(where)
        vhost = self.vhost(name)
        if self.core.accounts.is_crowded():
            raise NotAllowed(f"{where}: connections exceed their memory limit")
        most = vhost.limits.by_name.get("max-connections", -1)
        if most >= 0 and len(self._links_of_vhosts.get(name, ())) >= most:
            raise NotAllowed(f"{where}: connection limit ({most}) is reached")
        most = self.users.limit(user, "max-connections")
        if most >= 0 and len(self._links_of_users.get(user, ())) >= most:
            raise NotAllowed(
                f"connection refused for user '{user}': user connection limit ({most}) is reached"
            )
        link.vhost_name = name
        self.core.counts.connections_opened += 1
        self._links_of_users.setdefault(user, {})[link] = None
        self._links_of_vhosts.setdefault(name, {})[link] = None
        return vhost

    def connection_count(self, *, user: str = "", vhost: str = "") -> int:
        """Return how many open connections a user has, or all users have in a vhost."""
        of_user = self._links_of_users.get(user, {})
        return len(of_user) + len(self._links_of_vhosts.get(vhost, {}))

    def leave(self, link: Link) -> None:
        """Stop counting a connection for its user and its vhost, because it ends."""
        if link.vhost_name:
            _take_out(self._links_of_users, link.user, link)
            _take_out(self._links_of_vhosts, link.vhost_name, link)
            self.core.counts.connections_closed += 1
            link.vhost_name = ""

    def check_channel(self, link: Link) -> None:
        """Check that a connection's user may open one more channel.  Raises: NotAllowed (530)."""
        user = link.user
        most = self.users.limit(user, "max-channels")
        if most < 0:
            return
        count: i64 = 0
        links = self._links_of_users.get(user, {})
        self.core.scheduler.spent += len(links)
        for other in links:
            count += other.channel_count()
        if count >= most:
            raise NotAllowed(
                f"number of channels opened for user '{user}' has reached the maximum allowed "
                f"user limit of {most}"
            )

    def restore_vhost(self, name: str) -> Vhost:
        """Return the vhost `name`; if it is new, create it without a record in the journal."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            self.core.scheduler.changes += 1
            vhost = Vhost(self.core, self.ids, name)
            vhost.staging = StagingArea(vhost)
            self.vhosts[name] = vhost
        return vhost

    def memory_bytes(self) -> i64:
        """Return an estimate of the memory that depends on clients: messages and accounts."""
        return self.message_bytes() + self.core.accounts.counted()

    def message_bytes(self) -> i64:
        """Return an estimate of the memory for messages, including those still being received."""
        core = self.core
        held = core.memory.held_bytes + core.memory.held_messages * MESSAGE_OVERHEAD_BYTES
        return held + core.memory.assembling_bytes

    def limit_memory(self, bytes_max: i64) -> None:
        """Block publishers from now on while clients take more memory than `bytes_max`."""
        self.memory_bytes_max = bytes_max
        _share_memory(self.core, bytes_max)

    def is_overfull(self) -> bool:
        """Return whether memory is so far above the watermark that no input may be read."""
        most = self.memory_bytes_max
        return self.memory_bytes() > most + min(most // 2, OVERFULL_BYTES_MAX)

    def wants_chunks(self) -> bool:
        """Return whether a checkpoint would free much: half the memory is used, 1/8 by streams."""
        most = self.memory_bytes_max
        return self.memory_bytes() > most // 2 and self.core.memory.unchunked_bytes > most // 8

    def settle(self, new_round: bool = True) -> None:
        """End a batch of input, deliver messages, and check the memory.

        With `new_round`, unfinished work continues.
        """
        self.core.settle(new_round)
        self.judge_memory()

    def judge_memory(self) -> None:
        """Block publishers above the watermark; unblock them at nine tenths of it."""
        held = self.memory_bytes()
        self.core.memory.overfull = self.is_overfull()
        # Memory that cannot be moved to disk may reduce the messages' share below their window.
        others = self.core.accounts.counted()
        spare = (self.memory_bytes_max - self.eviction.bytes_max) // 2
        self.eviction.judge(held - min(others, max(spare, 0)))
        if not self.memory_alarm and held > self.memory_bytes_max:
            self.memory_alarm = True
            self._notify_alarms()
        elif self.memory_alarm and held <= self.memory_bytes_max * 9 // 10:
            self.memory_alarm = False
            self._notify_alarms()

    def force_alarm(self, on: bool) -> None:
        """Block publishers as if memory were short, or unblock them if it is not."""
        self.forced_alarm = on
        self._notify_alarms()

    def checkpoint_bytes(self) -> i64:
        """Return about how many bytes a checkpoint would write: live messages in no chunk.

        All of them were journaled since the last checkpoint, and all of them are in memory.
        """
        core = self.core
        held = core.memory.held_bytes - core.stream_cache.message_bytes
        return min(core.journal.bytes_since_roll, held)

    def judge_disk(self, free_bytes: i64, owed_bytes: i64 = 0) -> None:
        """Block publishers if too little space is left; unblock them with an eighth more.

        Accepted bytes that are not written yet are subtracted from the free space.  So are the
        bytes that the next checkpoint will write, or the current one (`owed_bytes`), because acks
        and deletes free no space before it.
        """
        self.disk_free_bytes = free_bytes
        least = self.disk_free_bytes_min
        room: i64 = free_bytes - owed_bytes - self.checkpoint_bytes()
        room -= self.core.journal.unsynced_bytes + self.core.spill.unwritten_bytes
        if not self.disk_alarm and room < least:
            self.disk_alarm = True
            self.core.disk_short = True
            self._notify_alarms()
        elif self.disk_alarm and room >= least + least // 8:
            self.disk_alarm = False
            self.core.disk_short = False
            self._notify_alarms()
            for vhost in self.vhosts.values():
                area_of(vhost).go_on()

    def _notify_alarms(self) -> None:
        """Notify the connections when the first alarm starts or the last one ends.

        The reason has RabbitMQ's wording (`rabbit_reader:blocked_by_message`).
        """
        causes: list[str] = []
        if self.memory_alarm or self.forced_alarm:
            causes.append("memory")
        if self.disk_alarm:
            causes.append("disk")
        self.blocked_reason = "low on " + " & ".join(causes) if causes else ""
        blocked = len(causes) > 0
        if blocked != self.blocked:
            self.blocked = blocked
            if self.core.events is not None:
                self.core.events.paused = blocked
            for link in list(self.links):
                link.alarm(blocked, self.blocked_reason)

    def _close_greediest(self) -> None:
        """Close the connection with the most memory if it uses much; the next tick continues."""
        greediest = max(self.links, key=lambda link: link.account.bytes, default=None)
        if greediest is not None and greediest.account.bytes > _GREEDY_CONNECTION_BYTES:
            greediest.force(
                f"this connection takes {greediest.account.bytes} bytes of memory, more than any "
                f"other, and all may take {self.core.accounts.connection_bytes_max} together, not "
                "counting messages"
            )

    def journal_stop(self, time_ms: i64) -> None:
        """Journal which messages have been delivered; this is recorded only at a clean stop.

        Long operations are completed first.
        """
        self.core.scheduler.end_tasks()
        journal = self.core.journal
        for vhost in self.vhosts.values():
            for queue in vhost.queues.by_name.values():
                if isinstance(queue, WaitingQueue) and queue.recorded and queue.redelivered_below:
                    journal.define("redelivered", queue.redelivered_definition())
        journal.clean_stop(time_ms)

    def tick(self) -> None:
        """Do the time-dependent work: memory, and retention of streams."""
        self.publish_sessions.tick()
        self.eviction.ask_again()
        if self.core.accounts.is_crowded() and not self.publish_sessions.shed():
            self._close_greediest()
        if not self._retains:
            self.core.scheduler.start(self._retain_all())

    def _retain_all(self) -> Iterator[int]:
        """Drop messages beyond their retention from all streams."""
        self._retains = True
        for vhost in list(self.vhosts.values()):
            yield 1
            for stream in vhost.queues.streams():
                if not stream.deleted:
                    stream.retain()
                yield 1
        self._retains = False


def _take_out(index: dict[str, dict[Link, None]], key: str, link: Link) -> None:
    """Remove a connection from an index, and the key with its last connection."""
    links = index[key]
    del links[link]
    if not links:
        del index[key]
