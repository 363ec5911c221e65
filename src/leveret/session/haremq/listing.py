"""The answer to a HareMQ query: what the user may read of its vhost, as text for a person.

It lists the first exchanges, queues and bindings only, but may look at all of them to find those
that the user may read.  So it looks in slices, and the connection parses nothing meanwhile.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.queue.queue import Queue
from leveret.broker.topology.exchange import Exchange
from leveret.broker.values.permission import READ
from leveret.broker.vhost.vhost import Vhost
from leveret.limits import HAREMQ_LISTED_MAX, INPUT_BYTES_PER_STEP
from leveret.session.client_session import ClientWork
from leveret.session.haremq.connection_base import HareConnectionBase

#: Entities that are copied from a table into a list in one step.
_COPIED_PER_STEP: i64 = 64


@final
class Listing(ClientWork):
    """Lists what there is, and answers."""

    def __init__(self, connection: HareConnectionBase, vhost: Vhost, identity: bytes) -> None:
        super().__init__(connection)
        self._connection = connection
        self._vhost = vhost
        self._identity = identity
        self._exchanges: list[str] = []
        self._queues: list[str] = []
        self._bindings: list[str] = []
        # Those that are still to be looked at, the first one last.
        self._exchanges_left: list[Exchange] = list(vhost.exchanges.by_name.values())
        self._exchanges_left.reverse()
        connection.turn.steps += len(self._exchanges_left) // _COPIED_PER_STEP
        self._queues_left: list[Queue] = []
        #: The part of the table of queues that comes next.
        self._part: i64 = 0

    def advance(self, last: i64) -> bool:
        """Look at the next ones."""
        if not self.session.awaits_reply():
            return False
        return self._list_exchanges(last) or self._list_queues(last)

    def _list_exchanges(self, last: i64) -> bool:
        turn = self.session.turn
        left = self._exchanges_left
        while left:
            if turn.steps >= last:
                return True
            exchange = left.pop()
            turn.steps += 1
            if not exchange.deleted and self._connection.access.allows(READ, exchange.name):
                self._exchanges.append(exchange.name)
                if len(self._exchanges) > HAREMQ_LISTED_MAX:
                    left.clear()
        return False

    def _list_queues(self, last: i64) -> bool:
        turn = self.session.turn
        while self._queues_left or self._next_part():
            if turn.steps >= last:
                return True
            queue = self._queues_left.pop()
            turn.steps += 1
            if queue.deleted or not self._connection.access.allows(READ, queue.name):
                continue
            self._queues.append(queue.name)
            if len(self._bindings) <= HAREMQ_LISTED_MAX:
                self._list_bindings(queue)
            if len(self._queues) > HAREMQ_LISTED_MAX:
                return False
        return False

    def _next_part(self) -> bool:
        """Take the next part of the table of queues that has any; return whether there is one."""
        by_name = self._vhost.queues.by_name
        while self._part < by_name.parts():
            self._queues_left = by_name.part(self._part)
            self._queues_left.reverse()
            self._part += 1
            self.session.turn.steps += 1 + len(self._queues_left) // _COPIED_PER_STEP
            if self._queues_left:
                return True
        return False

    def _list_bindings(self, queue: Queue) -> None:
        """Add a line for each of the first bindings to a queue."""
        access = self._connection.access
        found = self._vhost.exchanges.first_bindings_to(queue, HAREMQ_LISTED_MAX + 1)
        self.session.turn.steps += len(found)
        for binding in found:
            source = binding.source.name
            if access.allows(READ, source):
                line = f"{source}<-->{queue.name}, binding_key: {binding.binding_key}"
                self._bindings.append(line)

    def reply(self) -> None:
        """Answer the request, if anybody listens."""
        connection = self._connection
        if not connection.awaits_reply():
            return
        body = (
            f"exists exchanges: {_first(self._exchanges, ', ')}\n"
            f"exists queues: {_first(self._queues, ', ')}\n"
            f"exists bindings: \n    {_first(self._bindings, chr(10) + '    ')}\n"
        ).encode("utf-8", "replace")
        connection.turn.steps += len(body) // INPUT_BYTES_PER_STEP
        connection.answers.answer_query(self._identity, body)


def _first(items: list[str], between: str) -> str:
    """Return the first items as one text, which says where there are more."""
    text = between.join(items[:HAREMQ_LISTED_MAX])
    return text + between + "and more" if len(items) > HAREMQ_LISTED_MAX else text
