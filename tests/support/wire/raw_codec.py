"""The raw test client's codec for AMQP 0-9-1.

It shares no code with Leveret, so that one mistake cannot be on both sides; its table of methods is
written from the specification (AMQP 0-9-1 section 1.5 on).  Encoding checks nothing: tests send
illegal input on purpose.  Decoded input must be complete, with no byte left over.
"""

from __future__ import annotations

import decimal
import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END: Final = b"\xce"

#: name class method field:type …  o octet, h short, l long, q long long, s short string,
#: S long string, b bit, t timestamp, T table.
METHODS_TEXT: Final = """
connection.start 10 10 major:o minor:o server_properties:T mechanisms:S locales:S
connection.start-ok 10 11 client_properties:T mechanism:s response:S locale:s
connection.secure 10 20 challenge:S
connection.secure-ok 10 21 response:S
connection.tune 10 30 channel_max:h frame_max:l heartbeat:h
connection.tune-ok 10 31 channel_max:h frame_max:l heartbeat:h
connection.open 10 40 vhost:s reserved1:s reserved2:b
connection.open-ok 10 41 reserved1:s
connection.close 10 50 code:h text:s class_id:h method_id:h
connection.close-ok 10 51
connection.blocked 10 60 reason:s
connection.unblocked 10 61
connection.update-secret 10 70 new_secret:S reason:s
connection.update-secret-ok 10 71
channel.open 20 10 reserved1:s
channel.open-ok 20 11 reserved1:S
channel.flow 20 20 active:b
channel.flow-ok 20 21 active:b
channel.close 20 40 code:h text:s class_id:h method_id:h
channel.close-ok 20 41
access.request 30 10 realm:s exclusive:b passive:b active:b write:b read:b
access.request-ok 30 11 ticket:h
exchange.declare 40 10 _:h exchange:s type:s passive:b durable:b auto_delete:b internal:b\
 no_wait:b arguments:T
exchange.declare-ok 40 11
exchange.delete 40 20 _:h exchange:s if_unused:b no_wait:b
exchange.delete-ok 40 21
exchange.bind 40 30 _:h destination:s source:s routing_key:s no_wait:b arguments:T
exchange.bind-ok 40 31
exchange.unbind 40 40 _:h destination:s source:s routing_key:s no_wait:b arguments:T
exchange.unbind-ok 40 51
queue.declare 50 10 _:h queue:s passive:b durable:b exclusive:b auto_delete:b\
 no_wait:b arguments:T
queue.declare-ok 50 11 queue:s message_count:l consumer_count:l
queue.bind 50 20 _:h queue:s exchange:s routing_key:s no_wait:b arguments:T
queue.bind-ok 50 21
queue.purge 50 30 _:h queue:s no_wait:b
queue.purge-ok 50 31 message_count:l
queue.delete 50 40 _:h queue:s if_unused:b if_empty:b no_wait:b
queue.delete-ok 50 41 message_count:l
queue.unbind 50 50 _:h queue:s exchange:s routing_key:s arguments:T
queue.unbind-ok 50 51
basic.qos 60 10 prefetch_size:l prefetch_count:h global:b
basic.qos-ok 60 11
basic.consume 60 20 _:h queue:s consumer_tag:s no_local:b no_ack:b exclusive:b\
 no_wait:b arguments:T
basic.consume-ok 60 21 consumer_tag:s
basic.cancel 60 30 consumer_tag:s no_wait:b
basic.cancel-ok 60 31 consumer_tag:s
basic.publish 60 40 _:h exchange:s routing_key:s mandatory:b immediate:b
basic.return 60 50 code:h text:s exchange:s routing_key:s
basic.deliver 60 60 consumer_tag:s delivery_tag:q redelivered:b exchange:s routing_key:s
basic.get 60 70 _:h queue:s no_ack:b
basic.get-ok 60 71 delivery_tag:q redelivered:b exchange:s routing_key:s message_count:l
basic.get-empty 60 72 cluster_id:s
basic.ack 60 80 delivery_tag:q multiple:b
basic.reject 60 90 delivery_tag:q requeue:b
basic.recover-async 60 100 requeue:b
basic.recover 60 110 requeue:b
basic.recover-ok 60 111
basic.nack 60 120 delivery_tag:q multiple:b requeue:b
confirm.select 85 10 no_wait:b
confirm.select-ok 85 11
tx.select 90 10
tx.select-ok 90 11
tx.commit 90 20
tx.commit-ok 90 21
tx.rollback 90 30
tx.rollback-ok 90 31
"""

#: Which methods carry content.
WITH_CONTENT: Final = {"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"}

#: The basic class's properties from the highest flag down.
PROPERTIES: Final = {
    "content_type": "s",
    "content_encoding": "s",
    "headers": "T",
    "delivery_mode": "o",
    "priority": "o",
    "correlation_id": "s",
    "reply_to": "s",
    "expiration": "s",
    "message_id": "s",
    "timestamp": "t",
    "type": "s",
    "user_id": "s",
    "app_id": "s",
    "cluster_id": "s",
}


class Shape(NamedTuple):
    """A method's ids and fields."""

    class_id: int
    method_id: int
    fields: list[tuple[str, str]]


def _shapes() -> dict[str, Shape]:
    shapes = {}
    for line in METHODS_TEXT.strip().splitlines():
        name, class_id, method_id, *fields = line.split()
        pairs = [(f.split(":")[0], f.split(":")[1]) for f in fields]
        shapes[name] = Shape(int(class_id), int(method_id), pairs)
    return shapes


SHAPES: Final = _shapes()
NAMES: Final = {(s.class_id, s.method_id): name for name, s in SHAPES.items()}


@dataclass(frozen=True)
class Typed:
    """A field table value with an explicit tag: Typed("b", 1) is a signed octet."""

    tag: str
    value: Any


# -- encoding --------------------------------------------------------------------------------------

_FIXED: Final = {"o": ">B", "h": ">H", "l": ">I", "q": ">Q", "t": ">Q"}
#: RabbitMQ's tags of fixed size in field tables.
_TABLE_FIXED: Final = {
    "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">Q",
    "f": ">f", "d": ">d", "T": ">Q",
}  # fmt: skip


def short_string(value: str | bytes) -> bytes:
    """Encode a short string; bytes are used unchanged."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">B", len(raw)) + raw


def long_string(value: str | bytes) -> bytes:
    """Encode a long string."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(raw)) + raw


#: Tags of plain Python values except integers; bool comes before int.
TAGS: Final = {bool: "t", float: "d", bytes: "x", str: "S", list: "A", dict: "F"}


def tag_of(value: Any) -> Typed:
    """Choose a tag for a plain Python value."""
    if isinstance(value, Typed):
        return value
    for kind, tag in (
        (bool, "t"),
        (float, "d"),
        (bytes, "x"),
        (str, "S"),
        (list, "A"),
        (dict, "F"),
    ):
        if isinstance(value, kind):
            return Typed(tag, value)
    if value is None:
        return Typed("V", None)
    if isinstance(value, int):
        return Typed("I" if -(2**31) <= value < 2**31 else "l", value)
    raise TypeError(f"no tag for {value!r}")


def table_value(value: Any) -> bytes:
    """Encode a tagged value of a field table."""
    tag, inner = (typed := tag_of(value)).tag, typed.value
    prefix = tag.encode()
    if tag in _TABLE_FIXED:
        return prefix + struct.pack(_TABLE_FIXED[tag], inner)
    if tag == "t":
        return prefix + bytes([bool(inner)])
    if tag in "Sx":
        return prefix + long_string(inner)
    if tag == "D":
        return prefix + struct.pack(">Bi", *inner)
    if tag == "A":
        return prefix + long_string(b"".join(map(table_value, inner)))
    if tag == "F":
        return prefix + table(inner)
    return prefix  # V, and any other tag that a test sends without a value


def table(values: dict[str, Any] | bytes) -> bytes:
    """Encode a field table; bytes are used as its content unchanged."""
    if isinstance(values, bytes):
        return long_string(values)
    return long_string(b"".join(short_string(k) + table_value(v) for k, v in values.items()))


def encode_fields(fields: list[tuple[str, str]], values: dict[str, Any]) -> bytes:
    """Encode a method's arguments; missing ones are 0, empty or false."""
    unknown = set(values) - {name for name, _ in fields}
    assert not unknown, f"no such field: {unknown}"
    out, bits = b"", []
    for name, kind in [*fields, ("", "")]:
        value = values.get(name)
        if kind == "b":
            bits.append(bool(value))
            continue
        if bits:
            out += bytes([sum(1 << i for i, bit in enumerate(bits) if bit)])
            bits = []
        if kind in _FIXED:
            out += struct.pack(_FIXED[kind], value or 0)
        elif kind:
            encode = {"s": short_string, "S": long_string, "T": table}[kind]
            out += encode(value if value is not None else b"")
    return out


def frame(kind: int, channel: int, payload: bytes, end: bytes = FRAME_END) -> bytes:
    """Encode a frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(channel: int, name: str, **values: Any) -> bytes:
    """Encode a method frame."""
    shape = SHAPES[name]
    ids = struct.pack(">HH", shape.class_id, shape.method_id)
    return frame(METHOD, channel, ids + encode_fields(shape.fields, values))


def properties(**values: Any) -> bytes:
    """Encode the basic class's property flags and values."""
    flags, out = 0, b""
    for bit, (name, kind) in enumerate(PROPERTIES.items()):
        if name in values:
            flags |= 1 << (15 - bit)
            out += encode_fields([(name, kind)], {name: values[name]})
    return struct.pack(">H", flags) + out


def header(channel: int, size: int, raw: bytes = b"\0\0", class_id: int = 60) -> bytes:
    """Encode a content header; `raw` is from the property flags on."""
    return frame(HEADER, channel, struct.pack(">HHQ", class_id, 0, size) + raw)


def content(channel: int, body: bytes, raw: bytes = b"\0\0", piece: int = 131_064) -> bytes:
    """Encode a content header and its body in frames of at most `piece` bytes."""
    pieces = [body[i : i + piece] for i in range(0, len(body), piece)]
    return header(channel, len(body), raw) + b"".join(frame(BODY, channel, p) for p in pieces)


def publish(
    channel: int,
    exchange: str,
    routing_key: str,
    body: bytes = b"",
    *,
    mandatory: bool = False,
    immediate: bool = False,
    **props: Any,
) -> bytes:
    """Encode a whole publish."""
    head = method(
        channel, "basic.publish", exchange=exchange, routing_key=routing_key,
        mandatory=mandatory, immediate=immediate,
    )  # fmt: skip
    return head + content(channel, body, properties(**props))


# -- decoding --------------------------------------------------------------------------------------


class Reader:
    """Reads values from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        piece = self.data[self.at : self.at + count]
        assert len(piece) == count, f"truncated: {self.data!r}"
        self.at += count
        return piece

    def fixed(self, shape: str) -> Any:
        """A value of fixed size."""
        return struct.unpack(shape, self.take(struct.calcsize(shape)))[0]

    def value(self, kind: str) -> Any:
        """A method's argument other than a bit."""
        if kind in _FIXED:
            return self.fixed(_FIXED[kind])
        if kind == "s":
            return self.take(self.fixed(">B")).decode()
        if kind == "S":
            return self.take(self.fixed(">I"))
        return self.table()

    def table(self) -> dict[str, Any]:
        """A field table; tags are lost."""
        inner = Reader(self.take(self.fixed(">I")))
        values = {}
        while inner.at < len(inner.data):
            name = inner.value("s")
            values[name] = inner.table_value()
        return values

    def table_value(self) -> Any:
        """A tagged value."""
        tag = self.take(1).decode("latin-1")
        if tag in _TABLE_FIXED:
            return self.fixed(_TABLE_FIXED[tag])
        if tag == "t":
            return bool(self.fixed(">B"))
        if tag in "Sx":
            raw = self.value("S")
            return raw.decode() if tag == "S" else raw
        if tag == "D":
            scale = self.fixed(">B")
            return decimal.Decimal(self.fixed(">i")).scaleb(-scale)
        if tag == "F":
            return self.table()
        if tag == "A":
            inner = Reader(self.take(self.fixed(">I")))
            values = []
            while inner.at < len(inner.data):
                values.append(inner.table_value())
            return values
        assert tag == "V", f"unknown tag {tag!r}"
        return None


def decode_fields(fields: list[tuple[str, str]], reader: Reader) -> dict[str, Any]:
    """Decode a method's arguments; all of the payload must be used."""
    values: dict[str, Any] = {}
    bit = 8
    octet = 0
    for name, kind in fields:
        if kind == "b":
            if bit == 8 or not values:
                octet, bit = reader.fixed(">B"), 0
            values[name] = bool(octet >> bit & 1)
            bit += 1
        else:
            bit = 8
            values[name] = reader.value(kind)
    assert reader.at == len(reader.data), f"bytes left over: {reader.data!r}"
    return values


def decode_properties(raw: bytes) -> dict[str, Any]:
    """Decode property flags and values into the properties that are set."""
    reader = Reader(raw)
    flags = reader.fixed(">H")
    set_ = [(n, k) for bit, (n, k) in enumerate(PROPERTIES.items()) if flags >> (15 - bit) & 1]
    return {name: reader.value(kind) for name, kind in set_}
