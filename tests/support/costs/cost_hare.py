"""Requests of a HareMQ client to a world: every message of its protocol, valid or not."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Final

from leveret.haremq.connection import HareShared
from leveret.haremq.protobuf_codec import ProtobufCodec
from support.costs.cost_gauge import GaugedNode
from support.wire.hare import HarePeer, frame

#: Arguments of a declare; in this protocol, texts.
_ARGUMENTS: Final[tuple[dict[str, str], ...]] = (
    {}, {}, {"x-max-length": "10"}, {"x-message-ttl": "20"}, {"x-max-length": "many"},
    {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": "1"},
    {f"x{number}": "1" for number in range(4_000)}, {"x-super-stream-partitions": "1024"},
)  # fmt: skip


class QuickHare(HarePeer):
    """A client with measured requests, which ignores the answers."""

    def __init__(self, node: GaugedNode) -> None:
        self.gauged = node
        super().__init__(node, HareShared(ProtobufCodec(), "guest", "/"))
        self.send(frame("openChannelRequest", rid="r", cid="c1"))

    def send(self, *parts: bytes) -> None:
        """Have the broker receive bytes, and run the core until it is idle."""
        data, now_ms = b"".join(parts), self.gauged.now()
        self.gauged.measure("receive", partial(self.connection.receive, data, now_ms))
        self.gauged.run()

    def flush(self) -> None:
        """Take the session's output; this and the following rounds are measured."""
        connection = self.connection
        connection.take_output()
        if connection.finished:
            self.gauged.peers.pop(connection, None)
            connection.lost()
        else:
            connection.flushed(False)

    def _read(self) -> None:
        self.waiting = []


def hare_request(hare: QuickHare, draw: random.Random, queue: str, exchange: str) -> None:
    """Send a random message, once or often; the names are those of a world."""
    name = draw.choices(list(_FIELDS), weights=[weight for weight, _ in _FIELDS.values()])[0]
    names = {"queue_name": queue, "exchange_name": exchange}
    wanted = _FIELDS[name][1]
    fields: dict[str, Any] = {field: names[field] for field in wanted if field in names}
    if "args" in wanted:
        fields |= {"args": draw.choice(_ARGUMENTS), "durable": draw.random() < 0.3}
    if "exchange_type" in wanted:
        fields["exchange_type"] = draw.randint(0, 4)
    if "binding_key" in wanted:
        fields["binding_key"] = draw.choice(["k", "#", "#.a.#.b.#", "1"])
    if "body" in wanted:
        fields["body"] = "b" * draw.choice([0, 100, 50_000])
        key = draw.choice(["k", queue, ".".join("a" * 100)])
        fields["properties"] = {"id": "i", "delivery_mode": draw.randint(0, 2), "routing_key": key}
    if "consumer_tag" in wanted:
        fields |= {"consumer_tag": f"t{draw.randrange(4)}"}
    if "auto_ack" in wanted:
        fields["auto_ack"] = draw.random() < 0.5
    if "message_id" in wanted:
        fields["message_id"] = draw.choice(["i", "none"])
    cid = draw.choice(["c1", "c1", "c1", "none"])
    data = frame(name, rid="r", cid=cid, **fields)
    if draw.random() < 0.03:
        data = data[: len(data) // 2] + draw.randbytes(50)
    hare.send(data * draw.choices([1, 3, 30], weights=[8, 2, 1])[0])


#: The relative frequency of each message, and its randomly chosen fields.
_FIELDS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "openChannelRequest": (1, ()),
    "closeChannelRequest": (1, ()),
    "declareExchangeRequest": (2, ("exchange_name", "exchange_type", "args")),
    "deleteExchangeRequest": (1, ("exchange_name",)),
    "declareQueueRequest": (3, ("queue_name", "args")),
    "deleteQueueRequest": (1, ("queue_name",)),
    "bindRequest": (3, ("exchange_name", "queue_name", "binding_key")),
    "unbindRequest": (1, ("exchange_name", "queue_name")),
    "basicPublishRequest": (5, ("exchange_name", "body")),
    "basicAckRequest": (3, ("queue_name", "message_id")),
    "basicConsumeRequest": (4, ("queue_name", "consumer_tag", "auto_ack")),
    "basicCancelRequest": (1, ("queue_name", "consumer_tag")),
    "basicQueryRequest": (2, ()),
}
