"""The parts of publishes, put together, are what a channel writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.publish_frames import FRAME_END_OCTET, PublishFrames
from leveret.client.session.output import ClientOutput, publish_frame
from leveret.limits import FRAME_BYTES_MIN
from leveret.wire.basic_properties import BasicProperties
from leveret.wire.methods.basic import BasicPublish

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
TABLES = st.dictionaries(NAMES, st.one_of(st.none(), NAMES, st.integers(-(2**63), 2**63 - 1)))


@given(
    channel=st.integers(1, 65_535),
    exchange=NAMES,
    key=NAMES,
    mandatory=st.booleans(),
    size=st.one_of(st.integers(0, 300), st.integers(4000, 13_000)),
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(1, 2),
)
def test_the_parts_together_are_a_publish(
    channel: int,
    exchange: str,
    key: str,
    mandatory: bool,
    size: int,
    headers: dict[str, object] | None,
    delivery_mode: int | None,
) -> None:
    properties = BasicProperties(headers=headers, delivery_mode=delivery_mode).encode()
    body = bytes(range(256)) * 51
    output = ClientOutput()
    output.frame_max = FRAME_BYTES_MIN
    method = BasicPublish(exchange=exchange, routing_key=key, mandatory=mandatory)
    parts = PublishFrames(channel, FRAME_BYTES_MIN)
    body = body[:size]
    try:
        output.publish(channel, publish_frame(channel, method), properties, body)
    except ValueError:
        with pytest.raises(ValueError, match="bytes of properties"):
            parts.header_start(len(properties))
        return
    written = output.take()
    assert parts.publish(exchange, key, mandatory, properties, body) == written
    if size <= parts.body_bytes_max:
        made = (
            parts.method(exchange, key, mandatory),
            parts.header_start(len(properties)),
            parts.body_size(size),
            properties,
            parts.body_start(size),
            body,
            FRAME_END_OCTET,
        )
        assert b"".join(made) == written


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="maximum is 255 bytes"):
        PublishFrames(1, FRAME_BYTES_MIN).method("e", "k" * 256, False)
