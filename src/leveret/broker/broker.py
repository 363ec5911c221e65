"""The broker: its vhosts, the connections that are there, and the alarm that blocks publishers.

The composition root makes it, feeds it time, and runs the effects that its turn noted.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.classic import ClassicQueue
from leveret.broker.turn import Link, Turn
from leveret.broker.users import User, Users
from leveret.broker.vhost import Ids, Vhost
from leveret.errors import NotAllowed
from leveret.store.journal import Journal

#: What a message in memory costs beyond its body and properties (measured: objects and list slots).
MESSAGE_OVERHEAD_BYTES = 200


class Broker:
    """One node."""

    def __init__(self, journal: Journal, memory_bytes_max: i64) -> None:
        self.turn = Turn(journal)
        self.ids = Ids()
        self.vhosts: dict[str, Vhost] = {}
        self.users = Users()
        #: A dict for its order: what an alarm's end lets go on goes on in the order of arrival.
        self.links: dict[Link, None] = {}
        #: Memory for messages beyond which publishers are blocked.
        self.memory_bytes_max: i64 = memory_bytes_max
        self.blocked = False
        self.blocked_reason = ""

    def vhost(self, name: str) -> Vhost:
        """Return a vhost.  Raises: NotAllowed (530) where there is none (behaviour 6)."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        return vhost

    def add_vhost(self, name: str) -> Vhost:
        """Return the vhost `name`, made and journaled where it is new."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            vhost = self.restore_vhost(name)
            self.turn.journal.define("vhost", {"name": name})
        return vhost

    def put_user(self, user: User) -> None:
        """Add a user, or replace the one of that name, and journal it."""
        self.users.put(user)
        self.turn.journal.define("user", user.definition())

    def restore_vhost(self, name: str) -> Vhost:
        """Return the vhost `name`, made where it is new; nothing is journaled."""
        vhost = self.vhosts.get(name)
        if vhost is None:
            vhost = Vhost(self.turn, self.ids, name)
            self.vhosts[name] = vhost
        return vhost

    def memory_bytes(self) -> i64:
        """Return about how much memory the messages hold."""
        return self.turn.held_bytes + self.turn.held_messages * MESSAGE_OVERHEAD_BYTES

    def wants_chunks(self) -> bool:
        """Tell whether a checkpoint would free much: streams fill memory that is half used."""
        most = self.memory_bytes_max
        return self.memory_bytes() > most // 2 and self.turn.unchunked_bytes > most // 8

    def settle(self) -> None:
        """End a batch: hand out messages, then judge the memory."""
        self.turn.settle()
        self.judge_memory()

    def judge_memory(self) -> None:
        """Block publishers above the watermark; let them go on at nine tenths of it."""
        held = self.memory_bytes()
        if not self.blocked and held > self.memory_bytes_max:
            self.set_alarm(True, "low on memory")
        elif self.blocked and held <= self.memory_bytes_max * 9 // 10:
            self.set_alarm(False, "")

    def set_alarm(self, blocked: bool, reason: str) -> None:
        """Raise or clear the alarm and tell the connections."""
        self.blocked = blocked
        self.blocked_reason = reason
        for link in list(self.links):
            link.alarm(blocked, reason)

    def journal_stop(self, time_ms: i64) -> None:
        """Journal what only a clean stop can tell: which messages had been handed out."""
        journal = self.turn.journal
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if isinstance(queue, ClassicQueue) and queue.recorded and queue.redelivered_below:
                    journal.define("redelivered", queue.redelivered_definition())
        journal.clean_stop(time_ms)

    def tick(self) -> None:
        """Look at the time: streams drop what is too old."""
        for vhost in self.vhosts.values():
            vhost.retain_streams()
