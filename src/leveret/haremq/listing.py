"""The answer to a HareMQ query: the objects of the vhost that the user may read, as plain text.

It lists only the first readable exchanges, queues and bindings, but may have to examine all objects
to find them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import LISTED_PER_COST
from leveret.broker.users.permissions import READ
from leveret.broker.vhost.vhost import Vhost
from leveret.limits import HAREMQ_LISTED_MAX, INPUT_BYTES_PER_COST

if TYPE_CHECKING:
    from leveret.haremq.connection import HareConnection


def answer_query(connection: HareConnection, vhost: Vhost, identity: bytes) -> Iterator[int]:
    """List the objects of the vhost, and answer the request if the connection is still open."""
    exchanges: list[str] = yield from _exchanges(connection, vhost)
    queues: list[str] = []
    bindings: list[str] = []
    yield from _list_queues(connection, vhost, queues, bindings)
    if not connection.awaits_reply():
        return
    body = (
        f"exists exchanges: {_first(exchanges, ', ')}\n"
        f"exists queues: {_first(queues, ', ')}\n"
        f"exists bindings: \n    {_first(bindings, chr(10) + '    ')}\n"
    ).encode("utf-8", "replace")
    connection.answers.answer_query(identity, body)
    yield len(body) // INPUT_BYTES_PER_COST


def _exchanges(connection: HareConnection, vhost: Vhost) -> Generator[int, None, list[str]]:
    by_name = vhost.exchanges.by_name
    names = list(by_name)
    found: list[str] = []
    yield len(names) // LISTED_PER_COST
    for name in names:
        exchange = by_name.get(name)
        if exchange is not None and connection.access.allows(READ, exchange.name):
            found.append(name)
        yield 1
        if len(found) > HAREMQ_LISTED_MAX or not connection.awaits_reply():
            break
    return found


def _list_queues(
    connection: HareConnection, vhost: Vhost, found: list[str], bindings: list[str]
) -> Iterator[int]:
    for queues in vhost.queues.by_name.in_parts():
        yield 1 + len(queues) // LISTED_PER_COST
        for queue in queues:
            if not queue.deleted and connection.access.allows(READ, queue.name):
                found.append(queue.name)
                if len(bindings) <= HAREMQ_LISTED_MAX:
                    _list_bindings(connection, vhost, queue, bindings)
            yield 1
            if len(found) > HAREMQ_LISTED_MAX or not connection.awaits_reply():
                return


def _list_bindings(
    connection: HareConnection, vhost: Vhost, queue: Queue, lines: list[str]
) -> None:
    """Add a line for each of the first bindings to a queue."""
    found = vhost.exchanges.bindings_to(queue, HAREMQ_LISTED_MAX + 1)
    # Each binding costs a check of the permissions and a line.
    connection.scheduler.spent += 2 * len(found)
    for binding in found:
        source = binding.source.name
        if connection.access.allows(READ, source):
            lines.append(f"{source}<-->{queue.name}, binding_key: {binding.binding_key}")


def _first(items: list[str], between: str) -> str:
    """Return the first items as one string, which ends with "and more" if there are more."""
    text = between.join(items[:HAREMQ_LISTED_MAX])
    return text + between + "and more" if len(items) > HAREMQ_LISTED_MAX else text
