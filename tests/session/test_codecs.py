"""What a session reads and writes is the same to Leveret's codec and to one that shares no code."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import FRAME_METHOD, FrameReader, write_method
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicQos,
    ChannelOpen,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    TxCommit,
    decode_method,
)
from support.node.core import Node
from support.store.durable_load import Load
from support.wire.raw_codec import method

ARGUMENTS = {"x-max-age": "1D", "x-max-length-bytes": 1 << 40, "deep": {"list": [True, None, 1]}}

SENT: list[tuple[Method, str, dict[str, Any]]] = [
    (ChannelOpen(), "channel.open", {}),
    (
        QueueDeclare(queue="q", durable=True, arguments=ARGUMENTS),
        "queue.declare",
        {"queue": "q", "durable": True, "arguments": ARGUMENTS},
    ),
    (
        ExchangeDeclare(exchange="x", type="topic", durable=True, internal=True),
        "exchange.declare",
        {"exchange": "x", "type": "topic", "durable": True, "internal": True},
    ),
    (
        QueueBind(queue="q", exchange="x", routing_key="a.#"),
        "queue.bind",
        {"queue": "q", "exchange": "x", "routing_key": "a.#"},
    ),
    (
        BasicConsume(queue="q", consumer_tag="c", exclusive=True),
        "basic.consume",
        {"queue": "q", "consumer_tag": "c", "exclusive": True},
    ),
    (
        BasicPublish(exchange="x", routing_key="ü", mandatory=True),
        "basic.publish",
        {"exchange": "x", "routing_key": "ü", "mandatory": True},
    ),
    (
        BasicAck(delivery_tag=1 << 40, multiple=True),
        "basic.ack",
        {"delivery_tag": 1 << 40, "multiple": True},
    ),
    (BasicGet(queue="q", no_ack=True), "basic.get", {"queue": "q", "no_ack": True}),
    (BasicQos(prefetch_count=65_535, global_=True), "basic.qos",
     {"prefetch_count": 65_535, "global": True}),
    (TxCommit(), "tx.commit", {}),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "name", "values"), SENT, ids=[name for _, name, _ in SENT])
def test_what_clients_send_is_the_same_bytes(
    ours: Method, name: str, values: dict[str, Any]
) -> None:
    writer = BytesWriter()
    write_method(writer, 5, ours)
    assert writer.getvalue() == method(5, name, **values)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_session_writes_is_read_alike(seed: int) -> None:
    """Every method of a long load, frame by frame."""
    node = Node(seed=seed)
    load = Load(node, seed)
    before = [len(peer.sent_by_broker) for peer in load.peers]
    load.run(150)
    load.finish()
    for peer, start in zip(load.peers, before, strict=True):
        ours = read(peer.sent_by_broker[start:])
        theirs = [heard.method for heard in peer.heard]
        assert [(channel, one.NAME) for channel, one in ours] == [
            (one.channel, one.name) for one in theirs
        ]
        for (_, mine), other in zip(ours, theirs, strict=True):
            # A reserved field has a name in the specification and none in our classes.
            for field, value in other.fields.items() - {("cluster_id", "")}:
                assert getattr(mine, field) == value, (mine.NAME, field)


def read(data: bytes) -> list[tuple[int, Method]]:
    """All methods in a piece of output, as Leveret's own codec reads them."""
    reader = FrameReader()
    reader.feed(data)
    found: list[tuple[int, Method]] = []
    while reader.next():
        if reader.kind == FRAME_METHOD:
            found.append((reader.channel, decode_method(reader.data, reader.start, reader.end)))
    assert reader.held() == 0
    return found
