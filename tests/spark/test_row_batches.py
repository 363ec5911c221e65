"""Rows that all go to one place become batches with the messages that they would be one by one."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from leveret.client.publish_frames import PublishFrames
from leveret.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from leveret.spark.write.encoder import Encoder, Envelope
from leveret.spark.write.rows import RowProperties
from leveret.spark.write.schema import Layout
from leveret.wire.content.message_batch import BATCH_PROPERTIES, MessageBatch
from leveret.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD

HEADERS = pa.map_(pa.string(), pa.string())
PROPERTIES = pa.struct([("app_id", pa.string()), ("priority", pa.int32())])

Said = tuple[bytes, bytes]


def encoded(rows: pa.RecordBatch, layout: Layout) -> tuple[list[Said], list[int]]:
    """Return the messages that are published, and how many came with each publish."""
    frames = PublishFrames(1, 131_072)
    encoder = Encoder(layout, frames, Envelope(True, "staging", None, one_place=True))
    data = b"".join(piece.frames for piece in encoder.encode(rows))
    found: list[Said] = []
    counts = []
    for properties, body in contents(data):
        messages = [(properties, body)]
        if properties == BATCH_PROPERTIES:
            messages = list(unpacked(MessageBatch(body)))
        counts.append(len(messages))
        found += messages
    return found, counts


def contents(data: bytes) -> Iterator[Said]:
    """Yield the properties and the body of each publish."""
    left, properties, body = 0, b"", b""
    position = 0
    while position < len(data):
        kind, channel, size = struct.unpack_from(">BHI", data, position)
        payload = data[position + 7 : position + 7 + size]
        position += size + 8
        assert (channel, data[position - 1]) == (1, FRAME_END)
        if kind == FRAME_HEADER:
            left, properties, body = int.from_bytes(payload[4:12]), payload[12:], b""
        elif kind == FRAME_BODY:
            left -= size
            body += payload
        if kind != FRAME_METHOD and left == 0:
            yield properties, body


def unpacked(batch: MessageBatch) -> Iterator[Said]:
    sizes = [
        [int.from_bytes(column[at : at + 4], "little") for at in range(0, len(column), 4)]
        for column in (batch.property_sizes, batch.body_sizes)
    ]
    ends = [itertools.pairwise([0, *itertools.accumulate(column)]) for column in sizes]
    for (start, end), (first, last) in zip(*ends, strict=True):
        yield batch.properties[start:end], batch.bodies[first:last]


def batch_of(bodies: list[bytes], **columns: Any) -> pa.RecordBatch:
    """Return rows from the middle of a larger batch."""
    made = {"body": pa.array(bodies, pa.binary()), **columns}
    return pa.RecordBatch.from_pydict(made).slice(1, len(bodies) - 2)


PLAIN = Layout("", "t", by_stream=False, headers=False, properties=False)


@pytest.mark.parametrize("size", [0, 1, 100, 5000, CHUNK_BYTES_MAX - 20, CHUNK_BYTES_MAX])
def test_many_rows_are_published_at_once(size: int) -> None:
    bodies = [bytes([at % 256]) * size for at in range(max(12, min(10_000, 2**23 // (size + 1))))]
    found, counts = encoded(batch_of(bodies), PLAIN)
    properties = RowProperties().encode({})
    assert found == [(properties, body) for body in bodies[1:-1]]
    assert max(counts) <= CHUNK_RECORDS_MAX
    # A row that does not fit is published alone, and so is a small rest.
    assert (len(counts) < len(found)) == (size < CHUNK_BYTES_MAX - 20)


def test_rows_keep_their_own_properties() -> None:
    bodies = [b"%d" % at for at in range(2000)]
    headers = pa.array([[("k", f"{at % 7}")] if at % 3 else None for at in range(2000)], HEADERS)
    said = pa.array([{"app_id": f"{at % 5}"} for at in range(2000)], PROPERTIES)
    layout = Layout("", "t", by_stream=False, headers=True, properties=True)
    found, counts = encoded(batch_of(bodies, headers=headers, properties=said), layout)
    assert counts == [1998]
    for at, message in enumerate(found, 1):
        row = RowProperties(
            (("k", f"{at % 7}"),) if at % 3 else None, ("app_id", "priority"), (f"{at % 5}", None)
        )
        assert message == (row.encode({}), bodies[at])


@pytest.mark.parametrize(
    ("headers", "priority"), [([("CC", "u")], None), ([("x-publishing-id", "1")], None), ([], 3)]
)
def test_rows_that_the_broker_looks_at_are_published_one_by_one(
    headers: list[tuple[str, str]], priority: int | None
) -> None:
    count = 1000
    columns = {
        "headers": pa.array([headers] * count, HEADERS),
        "properties": pa.array([{"priority": priority}] * count, PROPERTIES),
    }
    layout = Layout("", "t", by_stream=False, headers=True, properties=True)
    _, counts = encoded(batch_of([b""] * count, **columns), layout)
    # The sink leaves out the headers of its own names.
    is_own = ("x-publishing-id", "1") in headers
    assert counts == ([count - 2] if is_own else [1] * (count - 2))
