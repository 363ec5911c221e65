"""A HareMQ client for tests, over a core or a socket, with frames made by the protobuf package.

It shares no code with the broker's codec.  The message classes are made from the descriptors, which
`tests/haremq/test_frames.py` compares with frames of HareMQ's own programs.
"""

from __future__ import annotations

import re
import socket
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from leveret.haremq.connection import HareConnection, HareShared
from leveret.haremq.protobuf_codec import ProtobufCodec, message_classes
from leveret.limits import OUTPUT_BYTES_HIGH
from leveret.session.settings import Peer as PeerAddress
from support.brokers.broker_process import BrokerProcess
from support.node.core import Node

#: The log line of a broker about its listener.
LISTENING = re.compile(r"listening for HareMQ on [\d.]+:(\d+)")

#: The time limit for an expected answer.
SECONDS = 60.0

classes = cache(message_classes)


def make(name: str, **fields: Any) -> Any:
    """Return a message; `properties` are given as a dict."""
    return classes()[name](**fields)


def frame_of(name: str, message: bytes, package: str = "hare_mq.") -> bytes:
    """Return the frame of an encoded message."""
    raw = f"{package}{name}".encode() + b"\0"
    covered = len(raw).to_bytes(4, "big") + raw + message
    return (
        (len(covered) + 4).to_bytes(4, "big") + covered + zlib.adler32(covered).to_bytes(4, "big")
    )


def frame(name: str, package: str = "hare_mq.", **fields: Any) -> bytes:
    """Return the frame of a message."""
    return frame_of(name, make(name, **fields).SerializeToString(), package)


@dataclass
class Got:
    """One message of the broker, and the number of the write that contained it."""

    name: str
    message: Any
    write: int

    @property
    def ok(self) -> bool:
        """Whether an answer reports success."""
        return bool(self.message.ok)


class Inbox:
    """Parses the broker's bytes into messages."""

    def __init__(self, package: str = "hare_mq.") -> None:
        self._data = b""
        self._package = package
        self.writes = 0
        self.got: list[Got] = []

    def feed(self, data: bytes) -> None:
        """Take the bytes of one write."""
        self._data += data
        self.writes += 1
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                return
            covered, checksum = self._data[4:size], self._data[size : size + 4]
            assert zlib.adler32(covered) == int.from_bytes(checksum, "big")
            name_size = int.from_bytes(covered[:4], "big")
            name = covered[4 : 4 + name_size]
            assert name.startswith(self._package.encode())
            assert name.endswith(b"\0")
            short = name[len(self._package) : -1].decode()
            message = classes()[short].FromString(covered[4 + name_size :])
            self.got.append(Got(short, message, self.writes))
            self._data = self._data[4 + size :]


class HareRequests:
    """The requests of a client: `call` sends a request and returns its answer."""

    cid = "c1"
    _rids = 0

    def call(self, name: str, **fields: Any) -> Got:
        """Send a request and return its answer, which must carry its ids."""
        raise RuntimeError("a client says how it sends")

    def rid(self) -> str:
        """Return a new request id."""
        self._rids += 1
        return f"r{self._rids}"

    def open(self, cid: str = "c1") -> bool:
        """Open a channel and make it the default channel of requests."""
        self.cid = cid
        return self.call("openChannelRequest").ok

    def exchange(self, name: str, kind: int = 1, **fields: Any) -> bool:
        """Declare an exchange."""
        values = {"exchange_name": name, "exchange_type": kind, **fields}
        return self.call("declareExchangeRequest", **values).ok

    def queue(self, name: str, **fields: Any) -> bool:
        """Declare a queue."""
        return self.call("declareQueueRequest", queue_name=name, **fields).ok

    def bind(self, exchange: str, queue: str, key: str = "") -> bool:
        """Bind a queue."""
        names = {"exchange_name": exchange, "queue_name": queue}
        return self.call("bindRequest", **names, binding_key=key).ok

    def publish(
        self, exchange: str, body: str, key: str = "", *, id: str = "", mode: int = 1
    ) -> bool:
        """Publish a message."""
        properties = {"id": id, "delivery_mode": mode, "routing_key": key}
        names = {"exchange_name": exchange, "body": body}
        return self.call("basicPublishRequest", **names, properties=properties).ok

    def consume(self, queue: str, *, tag: str = "t", auto_ack: bool = False, **more: Any) -> bool:
        """Consume a queue."""
        fields = {"consumer_tag": tag, "queue_name": queue, "auto_ack": auto_ack, **more}
        return self.call("basicConsumeRequest", **fields).ok

    def cancel(self, queue: str, tag: str = "t") -> bool:
        """End the consumer of the channel."""
        return self.call("basicCancelRequest", consumer_tag=tag, queue_name=queue).ok

    def ack(self, queue: str, message_id: str) -> bool:
        """Ack a message."""
        return self.call("basicAckRequest", queue_name=queue, message_id=message_id).ok


class HarePeer(HareRequests):
    """The client of a session of the core; two of one listener have the same `shared`."""

    def __init__(
        self,
        node: Node,
        shared: HareShared | None = None,
        *,
        host: str = "127.0.0.1",
        user: str = "guest",
        package: str = "hare_mq.",
    ) -> None:
        self.node = node
        self.shared = shared or HareShared(ProtobufCodec(), user, "/")
        self.package = package
        self.inbox = Inbox(package)
        self.reads = True
        self.waiting: list[bytes] = []
        address = PeerAddress(host, 40_000, "127.0.0.1", 7000, host.startswith("127."))
        self.connection = HareConnection(
            node.broker, node.settings, self.shared, address, node.now()
        )
        # The node treats it as one of its peers, so it has their methods.
        node.peers[self.connection] = self  # type: ignore[assignment]

    def is_open(self) -> bool:
        """Whether the broker has not closed the connection."""
        return self.connection in self.node.peers

    def send(self, *parts: bytes) -> None:
        """Have the broker receive bytes, and run the core until it is idle."""
        self.receive(*parts)
        self.node.run()

    def receive(self, *parts: bytes) -> None:
        """Have the broker receive bytes, without running the core afterwards."""
        data, now_ms = b"".join(parts), self.node.now()
        self.node.judged(lambda: self.connection.receive(data, now_ms), len(data))

    def call(self, name: str, **fields: Any) -> Got:
        """Send a request, sync if its answer waits for it, and return the answer."""
        rid = self.rid()
        cid = fields.pop("cid", self.cid)
        before = len(self.inbox.got)
        self.send(frame(name, self.package, rid=rid, cid=cid, **fields))
        if not self._answers(rid, before):
            self.node.sync()
        (answer,) = self._answers(rid, before)
        assert answer.message.cid == cid
        return answer

    def _answers(self, rid: str, before: int) -> list[Got]:
        """The answers to a request, after the first `before` messages."""
        return [got for got in self.inbox.got[before:] if getattr(got.message, "rid", None) == rid]

    def pushes(self) -> list[Any]:
        """The pushes so far, after the delay of a new consumer."""
        for _ in range(4):
            self.node.clock.advance(1)
            self.node.now()
            self.node.run()
        return self.pushed()

    def pushed(self) -> list[Any]:
        """The pushes so far."""
        return [got.message for got in self.inbox.got if got.name == "basicConsumeResponse"]

    def bodies(self) -> list[str]:
        """The bodies of all pushes so far."""
        return [push.body for push in self.pushes()]

    # -- as a shell --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Take the session's output, as a shell does for its transport."""
        connection = self.connection
        self.waiting += [bytes(part) for part in connection.take_output()]
        if self.reads:
            self._read()
        if connection.finished:
            self.lose()
        else:
            connection.flushed(sum(map(len, self.waiting)) > OUTPUT_BYTES_HIGH)

    def check_read(self) -> None:
        """Do nothing: reading is never paused here."""

    def read_on(self) -> None:
        """Begin to read again."""
        self.reads = True
        self._read()
        self.connection.flushed(False)
        self.node.run()

    def _read(self) -> None:
        for part in self.waiting:
            self.inbox.feed(part)
        self.waiting = []

    def lose(self) -> None:
        """Lose the socket."""
        if self.connection in self.node.peers:
            self.vanish()
            self.node.run()

    def vanish(self) -> None:
        """Lose the socket, without running the core afterwards."""
        del self.node.peers[self.connection]
        self.node.judged(self.connection.lost)


def hare_port(broker: BrokerProcess) -> int:
    """Return the port on which a broker with a free `haremq_port` listens for HareMQ clients."""
    found = LISTENING.search(broker.expect_line("listening for HareMQ on "))
    assert found is not None
    return int(found[1])


class HareClient(HareRequests):
    """A client with a socket."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), SECONDS)
        self.inbox = Inbox()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def call(self, name: str, **fields: Any) -> Got:
        """Send a request and return its answer."""
        rid = self.rid()
        cid = fields.pop("cid", self.cid)
        self.socket.sendall(frame(name, rid=rid, cid=cid, **fields))
        while True:
            for got in self.inbox.got:
                if getattr(got.message, "rid", None) == rid:
                    assert got.message.cid == cid
                    return got
            self.receive()

    def receive(self) -> None:
        """Read the next input.  Raises: EOFError at the end."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError
        self.inbox.feed(data)

    def pushes(self, count: int) -> list[Any]:
        """Wait for `count` pushes in total, and return them."""
        while True:
            found = [got.message for got in self.inbox.got if got.name == "basicConsumeResponse"]
            if len(found) >= count:
                return found
            self.receive()

    def is_closed(self) -> bool:
        """Wait for the end of the connection; fail if bytes arrive instead."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionError:
            return True
        assert data == b"", data
        return True
