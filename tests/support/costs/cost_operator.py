"""Requests of an operator to a world: vhosts with their content, definitions, rewinds.

Each request is the work of an API route between two polls of the sockets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.definitions.exports import definition_rows, sections_of
from leveret.broker.queue.classic import ClassicQueue
from leveret.errors import AmqpError
from leveret.management.routes.lists import SLICE_ROWS
from support.node.importing import Import

if TYPE_CHECKING:
    from support.costs.cost_worlds import World

#: The vhosts that are added and deleted; each has one user with permissions, many have none.
_VHOSTS: Final = tuple(f"more{number}" for number in range(4))

_KINDS: Final = ("direct", "fanout", "topic", "headers", "x-consistent-hash")

_QUEUE_KINDS: Final[tuple[dict[str, Any], ...]] = (
    {}, {}, {"x-queue-type": "stream"}, {"x-message-ttl": 50}, {"x-max-length": 3},
)  # fmt: skip


def _change(world: World, change: Callable[[], object]) -> None:
    """Make a change as a route does; a refused one changes nothing."""

    def refused_or_not() -> None:
        with contextlib.suppress(AmqpError):
            change()

    world.node.measure("admin", refused_or_not)
    world.node.run()


def definitions_of(world: World, count: int) -> dict[str, object]:
    """Definitions of a vhost with `count` queues, all bound to an exchange."""
    draw = world.draw
    durable = {"durable": True, "auto_delete": False}
    queues = [
        {"name": f"d{number}", "arguments": draw.choice(_QUEUE_KINDS), **durable}
        for number in range(count)
    ]
    kind = draw.choice(_KINDS)
    exchange = {"name": kind, "type": kind, "internal": False, "arguments": {}, **durable}
    bindings = [
        {
            "source": kind, "destination": f"d{number}", "destination_type": "queue",
            "routing_key": str(number % 9 + 1), "arguments": {},
        }
        for number in range(count)
    ]  # fmt: skip
    return {"queues": queues, "exchanges": [exchange], "bindings": bindings}


def import_request(world: World) -> None:
    """Import definitions into the default vhost, or into one of `_VHOSTS`."""
    broker = world.node.broker
    name = world.draw.choice(["/", *_VHOSTS])
    count = world.draw.choice([1, 30, world.size])
    definitions = definitions_of(world, count)
    if name != "/":
        _change(world, lambda: broker.put_vhost(name, {}, {}))
        _change(world, lambda: broker.users.set_permission("other", name, ".*", ".*", ".*"))
    _change(world, lambda: Import(broker, definitions, name))


def export_request(world: World) -> None:
    """Export the definitions of the broker, or of one vhost, in parts."""
    broker = world.node.broker
    vhost = world.draw.choice([None, "/"])
    for section in sections_of(vhost):
        rows = definition_rows(broker, vhost, section)
        while _takes_rows(world, rows):
            pass


def _takes_rows(world: World, rows: Iterator[Arguments]) -> bool:
    """Take the next rows of a section; return whether there were any."""
    taken: list[object] = []
    world.node.measure("admin", lambda: taken.extend(islice(rows, SLICE_ROWS)))
    return len(taken) > 0


def vhost_request(world: World) -> None:
    """Enter a vhost, or delete it with its content and connections."""
    draw, broker = world.draw, world.node.broker
    name = draw.choice(_VHOSTS)
    if draw.random() < 0.5:
        _change(world, lambda: broker.put_vhost(name, {}, {}))
        if draw.random() < 0.5:
            _change(world, lambda: broker.users.set_permission("other", name, ".*", ".*", ".*"))
        return
    _change(world, lambda: broker.delete_vhost(name))


def rewind_request(world: World) -> None:
    """Put acked messages back into a queue that retains them."""
    for queue in list(world.node.vhost.queues.by_name.values()):
        if isinstance(queue, ClassicQueue) and queue.retained is not None:
            _change(world, partial(queue.rewind, 0))
            return


def user_request(world: World) -> None:
    """Add a user with permissions, or delete one."""
    users = world.node.broker.users
    name = f"u{world.draw.randrange(10)}"
    if world.draw.random() < 0.6:
        world.node.add_user(name, configure=".*", write=".*", read=".*")
    else:
        _change(world, lambda: users.delete(name))
