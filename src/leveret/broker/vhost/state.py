"""What a virtual host holds, and how its exchanges and queues are found by name.

The operations on it are in `vhost.exchanges`, `vhost.queues` and `vhost`, each built on the one
before.

Invariant: `revision` changes with everything that could change a route, so that routes remembered
under an older revision are dead.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.turn import Link, Turn
from leveret.broker.queue.queue import Queue
from leveret.broker.topology.exchange import Exchange
from leveret.broker.topology.exchanges import make_exchange
from leveret.broker.vhost.replies import Replies
from leveret.broker.vhost.staging_queues import StagingQueues
from leveret.errors import NotFound, ResourceLocked
from leveret.limits import (
    BINDINGS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_VHOST_MAX,
    QUEUES_PER_VHOST_MAX,
)
from leveret.names import Name

_PREDECLARED: Final = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
)


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamIds:
    """Gives each stream an id by which it differs from all others, also of its own name.

    This one counts, so that one seed gives one run; a broker is handed one that draws lots, because
    offsets in checkpoints outlive a data directory.
    """

    def __init__(self) -> None:
        self.given: i64 = 0

    def new_id(self) -> str:
        """Return an id that no stream ever had: 16 hexadecimal digits."""
        self.given += 1
        return f"{self.given:016x}"


class Ids:
    """Numbers for queues, which grow for the life of the data directory, and ids for streams."""

    def __init__(self, stream_ids: StreamIds | None = None) -> None:
        self.last_queue_id: i64 = 0
        self.stream_ids: StreamIds = StreamIds() if stream_ids is None else stream_ids

    def next_queue_id(self) -> i64:
        """Return a number that no queue ever had."""
        self.last_queue_id += 1
        return self.last_queue_id

    def used(self, queue_id: i64) -> None:
        """Never give out `queue_id` or anything below it."""
        self.last_queue_id = max(self.last_queue_id, queue_id)


@mypyc_attr(allow_interpreted_subclasses=True)
class VhostState:
    """The names, tables and limits of one virtual host."""

    def __init__(self, turn: Turn, ids: Ids, name: str) -> None:
        self.turn = turn
        self.ids = ids
        self.name = name
        #: Its staging queues; see `Vhost`.
        self.staging = StagingQueues()
        self.revision: i64 = 1
        self.queues_max: i64 = QUEUES_PER_VHOST_MAX
        self.exchanges_max: i64 = EXCHANGES_PER_VHOST_MAX
        self.bindings_max: i64 = BINDINGS_PER_EXCHANGE_MAX
        #: Keys of topic exchanges must be plain words (`routing.keys`): a setting of the vhost.
        self._strict_keys = False
        #: The group of the journal that holds the newest removal of a definition.
        self.removed_group: i64 = 0
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        #: True when the vhost is deleted: nothing is declared in it any more.
        self.dissolved = False
        self.replies = Replies()
        for exchange_name, kind in _PREDECLARED:
            self.exchanges[exchange_name] = make_exchange(
                exchange_name, kind, True, False, False, {}
            )

    @property
    def strict_keys(self) -> bool:
        """Whether binding and routing keys of topic exchanges must be strict."""
        return self._strict_keys

    @strict_keys.setter
    def strict_keys(self, strict: bool) -> None:
        """Judge what is bound and published from now on; bindings that are there stay."""
        self._strict_keys = strict
        self.revision += 1

    # -- names ------------------------------------------------------------------------------------

    def queue_label(self, name: str) -> str:
        """Return how errors speak of a queue."""
        return f"queue '{name}' in vhost '{self.name}'"

    def exchange_label(self, name: str) -> str:
        """Return how errors speak of an exchange."""
        return f"exchange '{name}' in vhost '{self.name}'"

    def exchange(self, name: Name) -> Exchange:
        """Return an exchange.  Raises: NotFound (404)."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no {self.exchange_label(name)}")
        return exchange

    def queue(self, name: Name, link: Link | None) -> Queue:
        """Return a queue that `link` may use.

        Raises: NotFound (404); ResourceLocked (405) for another link's exclusive queue;
        AccessRefused (403) for another user's staging queue.
        """
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no {self.queue_label(name)}")
        self._check_owner(queue, link)
        return queue

    def _check_owner(self, queue: Queue, link: Link | None) -> None:
        if queue.owner is not None and queue.owner is not link:
            raise self._locked(queue.name)
        if queue.hidden and link is not None:
            queue.check_user(link.as_owner)

    def _locked(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self.queue_label(name)}. It could be "
            "originally declared on another connection or the exclusive property value does not "
            "match that of the original declaration."
        )

    # -- what replies wait for --------------------------------------------------------------------

    def _wait_for_definition(self, durable: bool, group: i64) -> None:
        """Let the reply wait for a definition that another connection made a moment ago."""
        if durable and group > self.turn.journal.durable_group:
            self.turn.reply_group = max(self.turn.reply_group, group)

    def _removed(self) -> None:
        """Note that the method at hand wrote the record of a removal."""
        self.removed_group = self.turn.journal.group
        self.turn.recorded()

    def _wait_for_removal(self) -> None:
        """Let the reply wait for what another connection removed a moment ago: gone is gone."""
        if self.removed_group > self.turn.journal.durable_group:
            self.turn.reply_group = max(self.turn.reply_group, self.removed_group)
