"""Deliveries as they are laid out for the wire, read back by a codec that shares no code."""

from __future__ import annotations

import pytest

from leveret.wire.content.output import OUTPUT_APART_BYTES, FrameOutput, deliver_prefix
from support.wire.raw_stream import Inbox

ADDRESS = b"\x02ex\x03key"
NO_PROPERTIES = b"\x00\x00"


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
def test_a_delivery_comes_back_whole(size: int) -> None:
    """In as many body frames as their longest payload asks for."""
    output = FrameOutput(100)
    body = bytes(number % 251 for number in range(size))
    output.write_delivery(7, deliver_prefix("tag"), 5, True, ADDRESS, NO_PROPERTIES, body)
    (got,) = Inbox().feed(b"".join(output.take()))
    assert (got.channel, got.name, got.body) == (7, "basic.deliver", body)
    assert (got.consumer_tag, got.delivery_tag, got.redelivered) == ("tag", 5, True)
    assert (got.exchange, got.routing_key) == ("ex", "key")
    assert output.take() == []


def test_a_long_body_is_not_copied() -> None:
    output = FrameOutput(2 * OUTPUT_APART_BYTES)
    body = bytes(OUTPUT_APART_BYTES)
    output.write_content(1, NO_PROPERTIES, body)
    apart = len(output.writer) + output.parts_bytes
    parts = output.take()
    assert any(part is body for part in parts)
    assert sum(len(part) for part in parts) == apart
    assert output.parts_bytes == 0
