"""Hostile bytes as method payloads: nothing but a `HardError` is ever raised.

Tables, properties and frames have their own such tests beside what they are held against.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import FrameError, HardError, NotImplementedFault, SyntaxFault
from leveret.wire.method import Method, payload
from leveret.wire.methods import decode_method
from leveret.wire.spec import METHODS
from support.wire.wire_strategies import any_method, long, short, spoiled

ids = st.sampled_from(
    [
        method.class_id.to_bytes(2, "big") + method.method_id.to_bytes(2, "big")
        for method in METHODS.values()
    ]
)
hostile = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda head, rest: head + rest, ids, st.binary(max_size=80)),
    spoiled(any_method.map(payload)),
)


def outcome(raw: bytes) -> Method | HardError:
    """Return the method or its error; any other error goes on and fails the test."""
    try:
        return decode_method(raw, 0, len(raw))
    except (FrameError, SyntaxFault, NotImplementedFault) as error:
        return error


@given(hostile)
def test_hostile_payloads_raise_hard_errors_only(raw: bytes) -> None:
    ids = (0, 0) if len(raw) < 4 else (raw[0] << 8 | raw[1], raw[2] << 8 | raw[3])
    found = outcome(raw)
    if isinstance(found, Method):
        # What is taken can be written again; reserved fields and unused bits are not kept.
        assert outcome(payload(found)) == found
        assert ids == (found.CLASS_ID, found.METHOD_ID)
    else:
        assert (found.class_id, found.method_id) == ids


@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_a_payload_without_ids_is_501(end: int) -> None:
    with pytest.raises(FrameError):
        decode_method(b"\x00\x3c\x00\x28", 0, end)


def test_a_huge_string_that_is_not_there_costs_nothing() -> None:
    # connection.secure-ok with a response of 4 GiB, and connection.start-ok with such a table.
    for raw in (
        b"\x00\x0a\x00\x15\xff\xff\xff\xff",
        b"\x00\x0a\x00\x0b\xff\xff\xff\xff",
        b"\x00\x0a\x00\x0b\x00\x00\x00\x00" + short("PLAIN") + b"\x7f\xff\xff\xff",
    ):
        with pytest.raises(SyntaxFault):
            decode_method(raw, 0, len(raw))


def test_a_table_bomb_is_refused() -> None:
    inner = b""
    for _ in range(20_000):
        inner = b"A" + long(inner)
    raw = b"\x00\x0a\x00\x0b" + long(b"\x01k" + inner)
    with pytest.raises(SyntaxFault, match="nest deeper"):
        decode_method(raw, 0, len(raw))
