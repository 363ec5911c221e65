"""Limited batches over streams of any inflow: none waits for ever, and each row comes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.spark.memory_stream import STREAMS, MemoryStream
from support.spark.spark_order import Checkpoint, StreamingRun, as_json

#: Each is a query of up to ten batches.
EXAMPLES = 12

#: What comes to each stream before each batch.
INFLOWS = st.lists(st.lists(st.integers(0, 12), min_size=5, max_size=5), min_size=1, max_size=10)
NAMES = [f"turns-{number}" for number in range(5)]


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    for name in NAMES:
        STREAMS.pop(name, None)


def start(**limits: str) -> StreamingRun:
    """Begin a query over five streams that are empty."""
    for name in NAMES:
        STREAMS[name] = MemoryStream()
    options = {"uri": "amqp://localhost", "superStream": "turns", "startingOffsets": "earliest"}
    return StreamingRun(options | limits, Checkpoint())


def waiting(run: StreamingRun) -> set[str]:
    """Return the streams that hold what the query has not read."""
    offsets = run.checkpoint.offsets
    position = offsets[-1] if offsets else run.initial
    return {name for name in NAMES if STREAMS[name].next_offset > position[name]}


def batch_of(run: StreamingRun) -> list[Any]:
    """Run a batch; planned again from the same start, it is the same."""
    offsets = run.checkpoint.offsets
    position = offsets[-1] if offsets else run.initial
    end = as_json(run.planner.latestOffset(position, run.limit))
    again = as_json(run.planner.latestOffset(position, run.limit))
    assert [*again.items()] == [*end.items()]
    rows = run.batch() or []
    if end != position:
        assert [*run.checkpoint.offsets[-1].items()] == [*end.items()]
    return rows


def follow(run: StreamingRun, inflows: list[list[int]], most: int, bound: int) -> None:
    """Feed the streams and read them; check that all comes once and nobody waits for longer."""
    seen: Counter[tuple[str, int]] = Counter()
    waits = dict.fromkeys(NAMES, 0)
    for inflow in [*inflows, *([[0] * 5] * 1000)]:
        for name, count in zip(NAMES, inflow, strict=True):
            STREAMS[name].append(*[b"x"] * count)
        asking = waiting(run)
        if not asking and not any(inflow):
            break
        rows = batch_of(run)
        assert len(rows) <= most
        seen.update((row["stream"], row["offset"]) for row in rows)
        served = {row["stream"] for row in rows}
        for name in NAMES:
            waits[name] = waits[name] + 1 if name in asking - served else 0
        assert max(waits.values()) < bound
    expected = {(name, n) for name in NAMES for n in range(STREAMS[name].next_offset)}
    assert seen == Counter(expected)


@settings(max_examples=EXAMPLES)
@given(INFLOWS, st.integers(1, 30))
def test_messages_are_shared_so_that_none_starves(inflows: list[list[int]], most: int) -> None:
    """With room for all, each is read in each batch; else in so many batches as all need."""
    run = start(maxOffsetsPerTrigger=str(most))
    follow(run, inflows, most, -(-len(NAMES) // most))


@settings(max_examples=EXAMPLES)
@given(INFLOWS, st.integers(1, 30))
def test_bytes_are_shared_so_that_none_starves(inflows: list[list[int]], most: int) -> None:
    """Each body has one byte."""
    run = start(maxBytesPerTrigger=str(most))
    follow(run, inflows, most, -(-len(NAMES) // most))


def test_a_large_message_has_its_turn() -> None:
    run = start(maxBytesPerTrigger="100")
    STREAMS["turns-4"].append(bytes(1_000_000))
    for name in NAMES[:4]:
        STREAMS[name].append(*[bytes(10)] * 1000)
    found = [{row["stream"] for row in batch_of(run)} for _ in range(2)]
    assert found == [set(NAMES[:4]), {"turns-4"}]


def test_the_order_is_that_of_the_names_where_nobody_waits() -> None:
    run = start(maxOffsetsPerTrigger="2")
    for name in NAMES[1:]:
        STREAMS[name].append(b"a")
    run.batch()
    assert [*run.checkpoint.offsets[-1]] == [NAMES[n] for n in (0, 3, 4, 1, 2)]
    run.batch()
    assert [*run.checkpoint.offsets[-1]] == NAMES
