"""The answer to a HareMQ query: what the user may read of its vhost, as text for a person.

It lists the first exchanges, queues and bindings only, but may look at all of them to find those
that the user may read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import LISTED_PER_COST
from leveret.broker.values.permission import READ
from leveret.broker.vhost.vhost import Vhost
from leveret.limits import HAREMQ_LISTED_MAX, INPUT_BYTES_PER_COST

if TYPE_CHECKING:
    from leveret.session.haremq.connection import HareConnection


@final
class Listing:
    """One answer."""

    def __init__(self, connection: HareConnection, vhost: Vhost) -> None:
        self._connection = connection
        self._vhost = vhost
        self._exchanges: list[str] = []
        self._queues: list[str] = []
        self._bindings: list[str] = []

    def answer(self, identity: bytes) -> Iterator[int]:
        """List what there is, and answer the request, if anybody listens."""
        connection = self._connection
        yield from self._list_exchanges()
        yield from self._list_queues()
        if not connection.awaits_reply():
            return
        body = (
            f"exists exchanges: {_first(self._exchanges, ', ')}\n"
            f"exists queues: {_first(self._queues, ', ')}\n"
            f"exists bindings: \n    {_first(self._bindings, chr(10) + '    ')}\n"
        ).encode("utf-8", "replace")
        connection.answers.answer_query(identity, body)
        yield len(body) // INPUT_BYTES_PER_COST

    def _list_exchanges(self) -> Iterator[int]:
        connection = self._connection
        by_name = self._vhost.exchanges.by_name
        names = list(by_name)
        yield len(names) // LISTED_PER_COST
        for name in names:
            exchange = by_name.get(name)
            if exchange is not None and connection.access.allows(READ, exchange.name):
                self._exchanges.append(name)
            yield 1
            if len(self._exchanges) > HAREMQ_LISTED_MAX or not connection.awaits_reply():
                break

    def _list_queues(self) -> Iterator[int]:
        connection = self._connection
        by_name = self._vhost.queues.by_name
        part: i64 = 0
        while part < by_name.parts():
            # The first one last.
            queues = by_name.part(part)
            queues.reverse()
            yield 1 + len(queues) // LISTED_PER_COST
            part += 1
            while queues:
                queue = queues.pop()
                if not queue.deleted and connection.access.allows(READ, queue.name):
                    self._queues.append(queue.name)
                    if len(self._bindings) <= HAREMQ_LISTED_MAX:
                        self._list_bindings(queue)
                yield 1
                if len(self._queues) > HAREMQ_LISTED_MAX or not connection.awaits_reply():
                    return

    def _list_bindings(self, queue: Queue) -> None:
        """Add a line for each of the first bindings to a queue."""
        connection = self._connection
        found = self._vhost.exchanges.first_bindings_to(queue, HAREMQ_LISTED_MAX + 1)
        connection.scheduler.spent += len(found)
        for binding in found:
            source = binding.source.name
            if connection.access.allows(READ, source):
                line = f"{source}<-->{queue.name}, binding_key: {binding.binding_key}"
                self._bindings.append(line)


def _first(items: list[str], between: str) -> str:
    """Return the first items as one text, which says where there are more."""
    text = between.join(items[:HAREMQ_LISTED_MAX])
    return text + between + "and more" if len(items) > HAREMQ_LISTED_MAX else text
