"""Methods to bytes and back: AMQP 0-9-1 sections 4.2.4 and 4.2.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import FrameError, HardError, NotImplementedFault, SyntaxFault
from leveret.wire.method import Method, payload
from leveret.wire.methods import (
    BasicAck,
    BasicPublish,
    BasicQos,
    ChannelClose,
    ConnectionTune,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
    decode_method,
)
from support.wire.wire_strategies import any_method, short


def decode(raw: bytes) -> Method:
    """Return the method that `raw` is the whole payload of."""
    return decode_method(raw, 0, len(raw))


@given(any_method)
def test_every_method_comes_back_as_it_was(method: Method) -> None:
    again = decode(payload(method))
    assert type(again) is type(method)
    assert again == method
    for name in method.FIELDS:
        assert getattr(again, name) == getattr(method, name)


@given(any_method, st.binary(max_size=9), st.binary(max_size=9))
def test_a_payload_is_read_where_it_lies(method: Method, before: bytes, after: bytes) -> None:
    raw = payload(method)
    data = before + raw + after
    assert decode_method(data, len(before), len(before) + len(raw)) == method


@given(any_method, st.data())
def test_a_payload_that_ends_early_is_refused(method: Method, data: st.DataObject) -> None:
    raw = payload(method)
    size = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises((SyntaxFault, FrameError)) as caught:
        decode(raw[:size])
    if size >= 4:
        assert caught.value.code == 502
        assert (caught.value.class_id, caught.value.method_id) == (
            method.CLASS_ID,
            method.METHOD_ID,
        )
    else:
        assert caught.value.code == 501
    # The end counts, not what lies behind it.
    with pytest.raises(HardError):
        decode_method(raw, 0, size)


@given(any_method, st.binary(min_size=1, max_size=3))
def test_a_payload_that_goes_on_is_refused(method: Method, more: bytes) -> None:
    with pytest.raises(SyntaxFault) as caught:
        decode(payload(method) + more)
    assert (caught.value.class_id, caught.value.method_id) == (method.CLASS_ID, method.METHOD_ID)


@pytest.mark.parametrize(
    "ids", [(0, 0), (11, 10), (60, 41), (60, 0), (40, 41), (65_535, 10), (10, 65_535)]
)
def test_an_unknown_class_or_method_is_540(ids: tuple[int, int]) -> None:
    raw = ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + b"\0\0\0"
    with pytest.raises(NotImplementedFault) as caught:
        decode(raw)
    assert (caught.value.class_id, caught.value.method_id) == ids
    assert caught.value.reply_text == (f"NOT_IMPLEMENTED - there is no method {ids[0]}.{ids[1]}")


def test_a_name_that_is_not_utf_8_is_501() -> None:
    # What real clients rely on: 501 for a name that is not UTF-8.
    raw = b"\x00\x32\x00\x0a\x00\x00" + short(b"\xff\xfe") + b"\x00" + bytes(4)
    with pytest.raises(FrameError) as caught:
        decode(raw)
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (501, 50, 10)


def test_what_is_reserved_is_skipped_and_written_empty() -> None:
    # queue.declare's reserved-1 was an access ticket; connection.open has reserved text and a bit.
    declare = decode(b"\x00\x32\x00\x0a\xab\xcd" + short("q") + b"\x02" + bytes(4))
    assert declare == QueueDeclare(queue="q", durable=True)
    assert payload(declare)[4:6] == b"\x00\x00"
    opened = decode(b"\x00\x0a\x00\x28" + short("/") + short("capabilities") + b"\x01")
    assert payload(opened) == b"\x00\x0a\x00\x28" + short("/") + b"\x00\x00"
    opened = decode(b"\x00\x0a\x00\x29" + short("known hosts"))
    assert payload(opened) == b"\x00\x0a\x00\x29\x00"
    empty = decode(b"\x00\x3c\x00\x48" + short("cluster"))
    assert payload(empty) == b"\x00\x3c\x00\x48\x00"


def test_reserved_text_must_still_be_there() -> None:
    for raw in (b"\x00\x14\x00\x0b\x00\x00\x00\x05id", b"\x00\x3c\x00\x48\x05ab"):
        with pytest.raises(SyntaxFault):
            decode(raw)


def test_bits_are_packed_from_the_lowest() -> None:
    # Section 4.2.5.2: "bits are accumulated into whole octets, lowest first".
    flags = ("passive", "durable", "exclusive", "auto_delete", "no_wait")
    for index, flag in enumerate(flags):
        raw = payload(QueueDeclare(**{flag: True}))  # type: ignore[arg-type]
        assert raw[7] == 1 << index
    # Bits beyond the last one mean nothing.
    assert decode(payload(QueueDeclare())[:7] + b"\xe0" + bytes(4)) == QueueDeclare()


def test_a_delivery_tag_of_2_to_the_63_is_one_that_nobody_gave_out() -> None:
    ack = decode(b"\x00\x3c\x00\x50" + b"\xff" * 8 + b"\x00")
    assert isinstance(ack, BasicAck)
    assert ack.delivery_tag == -1
    assert payload(ack) == b"\x00\x3c\x00\x50" + b"\xff" * 8 + b"\x00"


@pytest.mark.parametrize(
    ("legal", "beyond"),
    [
        (BasicQos(prefetch_size=2**32 - 1), BasicQos(prefetch_size=2**32)),
        (BasicQos(prefetch_count=2**16 - 1), BasicQos(prefetch_count=2**16)),
        (BasicQos(prefetch_count=0), BasicQos(prefetch_count=-1)),
        (ConnectionTune(frame_max=0), ConnectionTune(frame_max=-1)),
        (QueueDeclareOk("q" * 255), QueueDeclareOk("q" * 256)),
        (QueueBind(routing_key="é" * 127), QueueBind(routing_key="é" * 128)),
    ],
)
def test_what_does_not_fit_is_not_written(legal: Method, beyond: Method) -> None:
    assert decode(payload(legal)) == legal
    with pytest.raises(ValueError, match=r"is not a (long|short)|at most 255 bytes"):
        payload(beyond)


def test_a_delivery_tag_beyond_64_bits_is_not_even_kept() -> None:
    assert BasicAck(delivery_tag=2**63 - 1).delivery_tag == 2**63 - 1
    with pytest.raises(ValueError, match="64 bits"):
        BasicAck(delivery_tag=2**63)


def test_a_method_knows_itself() -> None:
    close = ChannelClose(406, "PRECONDITION_FAILED - no", 60, 80)
    assert repr(close) == (
        "channel.close(reply_code=406, reply_text='PRECONDITION_FAILED - no',"
        " class_id=60, method_id=80)"
    )
    assert close == ChannelClose(406, "PRECONDITION_FAILED - no", 60, 80)
    assert close != ChannelClose(405)
    assert close != "channel.close"
    # The order of a table does not count.
    assert QueueDeclare(arguments={"a": 1, "b": 2}) == QueueDeclare(arguments={"b": 2, "a": 1})
    assert len({close, ChannelClose(406, "PRECONDITION_FAILED - no", 60, 80), TxSelect()}) == 2


def test_arguments_are_a_dict_of_their_own() -> None:
    one, other = QueueDeclare(), QueueDeclare()
    one.arguments["x-max-length"] = 1
    assert other.arguments == {}


def test_publish_is_as_the_specification_draws_it() -> None:
    method = BasicPublish(exchange="logs", routing_key="a.b", mandatory=True)
    assert payload(method) == b"\x00\x3c\x00\x28\x00\x00\x04logs\x03a.b\x01"
