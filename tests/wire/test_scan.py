"""The scanner of a load: counts are right however the input is cut and the confirms are ordered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import FrameError
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.scan import Latencies, Scanner, write_acks
from leveret.wire.frames import FrameReader, write_body, write_header, write_heartbeat, write_method
from leveret.wire.methods.basic import BasicAck, BasicDeliver, BasicNack, BasicReturn
from leveret.wire.methods.channel import ChannelClose
from leveret.wire.methods.decode import decode_method

NO_PROPERTIES = b"\x00\x00"


def frames(*methods: BasicAck | BasicNack) -> bytes:
    """Return the frames of some methods."""
    writer = BytesWriter()
    for method in methods:
        write_method(writer, 1, method)
    return writer.getvalue()


def deliveries(bodies: list[bytes]) -> bytes:
    """Return a delivery of each body, with a heartbeat before each."""
    writer = BytesWriter()
    for tag, body in enumerate(bodies, 1):
        write_heartbeat(writer)
        write_method(writer, 1, BasicDeliver(consumer_tag="c", delivery_tag=tag, routing_key="k"))
        write_header(writer, 1, 60, len(body), NO_PROPERTIES)
        write_body(writer, 1, body, 4096)
    return writer.getvalue()


def scanned(data: bytes, size: int, latencies: Latencies | None = None, now: int = 0) -> Scanner:
    """Return a scanner that was given `data` in pieces of `size`."""
    scanner = Scanner(4096, latencies)
    for start in range(0, len(data), size):
        scanner.scan(data[start : start + size], now)
    return scanner


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_deliveries_are_counted_whole_and_byte_by_byte(size: int) -> None:
    bodies = [b"", b"x" * 16, b"y" * 10_000]
    scanner = scanned(deliveries(bodies), size)
    assert (scanner.delivered, scanner.delivered_bytes) == (3, 10_016)
    assert scanner.delivery_tag == 3
    assert scanner.others == []


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_latency_is_read_from_the_first_eight_bytes_of_a_body(size: int) -> None:
    sent = [1_000, 2_000, 3_000]
    bodies = [at.to_bytes(8, "big") + b"x" * 5_000 for at in sent]
    latencies = Latencies()
    scanned(deliveries([*bodies, b"short"]), size, latencies, 5_000)
    assert (latencies.count, latencies.least, latencies.most) == (3, 2_000, 4_000)


@given(st.permutations(range(1, 9)), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_each_publish_is_settled_once(
    order: list[int], multiples: set[int], refused: set[int]
) -> None:
    settled: set[int] = set()
    nacked = 0
    methods: list[BasicAck | BasicNack] = []
    for place, tag in enumerate(order):
        multiple = place in multiples
        fresh = (set(range(1, tag + 1)) if multiple else {tag}) - settled
        settled |= fresh
        if place in refused:
            nacked += len(fresh)
            methods.append(BasicNack(delivery_tag=tag, multiple=multiple))
        else:
            methods.append(BasicAck(delivery_tag=tag, multiple=multiple))
        scanner = scanned(frames(*methods), 1_000)
        assert scanner.settled == len(settled)
        assert scanner.nacked == nacked


def test_other_methods_are_kept_and_returns_counted() -> None:
    writer = BytesWriter()
    write_method(writer, 1, BasicReturn(reply_code=312, reply_text="NO_ROUTE"))
    write_header(writer, 1, 60, 3, NO_PROPERTIES)
    write_body(writer, 1, b"abc", 4096)
    write_method(writer, 1, ChannelClose(reply_code=404, reply_text="NOT_FOUND"))
    scanner = scanned(writer.getvalue(), 5)
    assert (scanner.returned, scanner.delivered, scanner.delivered_bytes) == (1, 0, 0)
    ((channel, payload),) = scanner.others
    close = decode_method(payload, 0, len(payload))
    assert isinstance(close, ChannelClose)
    assert (channel, close.reply_code) == (1, 404)


@given(st.binary(max_size=200))
def test_hostile_bytes_raise_a_frame_error_or_nothing(data: bytes) -> None:
    for size in (1, 1_000):
        try:
            scanned(data, size)
        except FrameError:
            continue


def test_a_delivery_that_ends_early_is_a_frame_error() -> None:
    with pytest.raises(FrameError):
        scanned(b"\x01\x00\x01\x00\x00\x00\x06\x00\x3c\x00\x3c\x01c\xce", 100)


def acked(data: bytes) -> list[tuple[int, bool]]:
    """Return tag and multiple of each ack."""
    reader = FrameReader()
    reader.feed(data)
    found = []
    while reader.next():
        method = decode_method(reader.data, reader.start, reader.end)
        assert isinstance(method, BasicAck)
        assert reader.channel == 1
        found.append((method.delivery_tag, method.multiple))
    return found


def test_acks_are_single_or_fall_on_the_multiples() -> None:
    assert acked(write_acks(1, 3, 5, 1)) == [(3, False), (4, False), (5, False)]
    assert acked(write_acks(1, 1, 25, 10)) == [(10, True), (20, True)]
    assert acked(write_acks(1, 26, 30, 10)) == [(30, True)]
    assert acked(write_acks(1, 31, 39, 10)) == []


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=300))
def test_quantiles_are_within_three_percent(values: list[int]) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    ordered = sorted(values)
    for share in (0.0, 0.5, 0.99, 1.0):
        true = ordered[min(int(share * len(ordered)), len(ordered) - 1)]
        assert true <= latencies.quantile(share) <= true * 1.04
    assert (latencies.least, latencies.most) == (ordered[0], ordered[-1])


def test_a_negative_latency_counts_as_none() -> None:
    latencies = Latencies()
    latencies.add(-5)
    assert (latencies.count, latencies.quantile(0.5)) == (1, 0)
