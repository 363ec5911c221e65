"""An import leaves in memory what it imported, which is in the account, and nothing else.

It is tried on a copy of the broker first.  Nothing here waits for the collector of cycles: what is
old is nearly never collected.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.broker.definitions.imports import import_definitions
from leveret.broker.recovery.queue import RestoredQueue
from leveret.errors import PreconditionFailed
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node
from support.node.uncollected import no_collector, objects_of

#: Queues, and half as many bindings more.
MANY = 400

#: The account may differ from what is measured by this factor: builds and versions of Python do.
FACTOR = 2

BAD: dict[str, Any] = {"name": "bad", "vhost": "/", "arguments": {"x-max-length": -1}}


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    with no_collector():
        yield
        tracemalloc.stop()


def definitions(*more: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the definitions of queues and their bindings, and `more` queues."""
    queues = [{"name": f"queue-{number:020}", "vhost": "/"} for number in range(MANY)]
    bindings = [
        {
            "source": "amq.topic" if number % 3 else "amq.direct",
            "vhost": "/",
            "destination": f"queue-{number % MANY:020}",
            "destination_type": "queue",
            "routing_key": f"key.{number}",
        }
        for number in range(MANY * 3 // 2)
    ]
    return {"queues": [*queues, *more], "bindings": bindings}


def in_memory() -> Counter[str]:
    """How many objects of the broker there are, by their types."""
    return objects_of("leveret.")


def taken(node: Node, found: dict[str, list[dict[str, Any]]]) -> None:
    """Import definitions, and have all of it synced."""
    import_definitions(node.broker, found, b"salt")
    node.sync()
    node.tick()


def test_what_it_takes_is_in_the_account() -> None:
    node = Node()
    taken(node, {})
    before = int(node.core.accounts.total())
    tracemalloc.start()
    taken(node, definitions())
    measured = tracemalloc.get_traced_memory()[0]
    booked = int(node.core.accounts.total()) - before
    assert booked / FACTOR < measured < booked * FACTOR


def test_what_is_there_already_takes_nothing() -> None:
    node = Node()
    taken(node, definitions())
    before = in_memory()
    taken(node, definitions())
    # What the copy of the broker has itself is there still.
    assert (in_memory() - before).total() < MANY // 4


def test_what_is_refused_takes_nothing() -> None:
    node = Node()
    taken(node, {})
    before = in_memory()
    with pytest.raises(PreconditionFailed):
        taken(node, definitions(BAD))
    assert (in_memory() - before).total() < MANY // 4


def test_a_start_keeps_nothing_of_what_it_read() -> None:
    node = Node()
    taken(node, definitions())
    again = Node(RecordingDisk(node.image()))
    assert len(again.vhost.queues.by_name) == MANY
    assert in_memory()[RestoredQueue.__name__] == 0
