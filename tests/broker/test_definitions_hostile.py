"""Definitions from anywhere: whatever a file holds, it is taken whole or refused with a reason."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.definitions.imports import import_definitions
from leveret.errors import PreconditionFailed
from support.node.core import Node
from support.node.exporting import export_definitions

RABBITMQ = json.loads((Path(__file__).parent / "definitions" / "rabbitmq_3_10_8.json").read_text())
SECTIONS = sorted(name for name, rows in RABBITMQ.items() if isinstance(rows, list))

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**65), 2**65),
        st.floats(allow_nan=False),
        st.text(max_size=5),
        st.sampled_from(
            ["/", "shop", "orders", "events", "amq.topic", "(", ".*", "quorum", "QQ=="]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """RabbitMQ's file with some of its fields changed, removed or copied elsewhere."""
    made: dict[str, Any] = copy.deepcopy(RABBITMQ)
    for _ in range(draw(st.integers(1, 4))):
        rows = made[draw(st.sampled_from(SECTIONS))]
        if not isinstance(rows, list) or not rows:
            continue
        row = rows[draw(st.integers(0, len(rows) - 1))]
        if not isinstance(row, dict) or not row:
            continue
        field = draw(st.sampled_from(sorted(row)))
        if draw(st.booleans()):
            row[field] = draw(VALUES)
        else:
            del row[field]
    if draw(st.booleans()):
        made[draw(st.sampled_from(SECTIONS))] = draw(VALUES)
    return made


@settings(deadline=None)
@given(mutated())
def test_it_is_taken_whole_or_changes_nothing(definitions: dict[str, Any]) -> None:
    node = Node()
    before = export_definitions(node.broker)
    node.sync()
    group = node.journal.group
    try:
        import_definitions(node.broker, definitions, b"salt")
    except PreconditionFailed:
        assert export_definitions(node.broker) == before
        node.sync()
        assert node.journal.group == group
        return
    found = export_definitions(node.broker)
    import_definitions(node.broker, definitions, b"salt")
    assert export_definitions(node.broker) == found, "twice is once"
    node.sync()
    other = Node()
    import_definitions(other.broker, found, b"salt")
    assert export_definitions(other.broker) == found
