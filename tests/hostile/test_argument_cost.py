"""Arguments of many small values count what it takes to read, check, encode and book each of them.

On the wire a value has as little as one byte, and none of the methods below is longer than 25 kB.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.scheduler.costs import METHOD_BYTES_PER_COST, METHOD_VALUES_MAX, SLICE
from leveret.limits import SHORT_METHOD_BYTES, TABLE_BYTES_PER_COST
from support.node.core import Node
from support.wire.raw_codec import Typed, method

VALUES = 4000


def deep(levels: int = 30) -> dict[str, Any]:
    """A table of one table in another."""
    table: dict[str, Any] = {}
    for _ in range(levels):
        table = {"a": table}
    return table


TABLES: dict[str, dict[str, Any]] = {
    "voids": {"a": [None] * VALUES},
    "tables": {"a": [{}] * VALUES},
    "decimals": {"a": [Typed("D", (2, number)) for number in range(VALUES)]},
    "keys": {f"{number:x}": Typed("D", (2, number)) for number in range(VALUES)},
    "deep": {f"{number}": deep() for number in range(VALUES // 31)},
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_method_with_many_values_ends_the_slice_that_it_fills(table: dict[str, Any]) -> None:
    node = Node()
    peer = node.connect()
    data = b""
    for number in range(10):
        data += method(1, "queue.declare", queue=f"q{number}", no_wait=True, arguments=table)
    before = int(node.core.scheduler.spent)
    peer.connection.receive(data, node.now())
    taken = int(node.core.scheduler.spent) - before
    declared = len(node.vhost.queues.by_name)
    assert 0 < declared < 10
    each = (len(data) // 10 - SHORT_METHOD_BYTES) // METHOD_BYTES_PER_COST
    assert declared * each <= taken <= SLICE + 2 * each
    node.run()
    assert len(node.vhost.queues.by_name) == 10


def test_long_texts_count_no_more_than_many_values() -> None:
    """They are copied as they are; what one frame may take has them all."""
    node = Node()
    peer = node.connect()
    arguments = {f"{number}": "x" * 1000 for number in range(127)}
    data = method(1, "queue.declare", queue="q", no_wait=True, arguments=arguments)
    assert len(data) > METHOD_BYTES_PER_COST * METHOD_VALUES_MAX
    before = int(node.core.scheduler.spent)
    peer.connection.receive(data, node.now())
    read = len(data) // TABLE_BYTES_PER_COST
    assert int(node.core.scheduler.spent) - before <= read + METHOD_VALUES_MAX + SLICE
    assert "q" in node.vhost.queues.by_name
