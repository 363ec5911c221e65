"""Decodes HareMQ's requests with the `protobuf` package, which the extra `haremq` installs.

This module is imported only if the broker listens for HareMQ's clients.  The message classes are
created at run time from `haremq.binpb`, compiled from `haremq.proto`, since generated code would
require one version of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from leveret.errors import FrameError
from leveret.haremq.fields import DURABLE
from leveret.haremq.frames import (
    ACK,
    BIND,
    CANCEL,
    CLOSE_CHANNEL,
    CONSUME,
    DECLARE_EXCHANGE,
    DECLARE_QUEUE,
    DELETE_EXCHANGE,
    DELETE_QUEUE,
    OPEN_CHANNEL,
    PACKAGE,
    PUBLISH,
    QUERY,
    REQUESTS,
    UNBIND,
)
from leveret.haremq.requests import (
    Ack,
    Bind,
    Cancel,
    CloseChannel,
    Consume,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    HareCodec,
    HareRequest,
    OpenChannel,
    Publish,
    Query,
    Unbind,
)

DESCRIPTORS: Final = "haremq.binpb"


def message_classes() -> dict[str, Any]:
    """Return protobuf's class of each message, by its name without the package."""
    found = descriptor_pb2.FileDescriptorSet.FromString(
        files("leveret.haremq").joinpath(DESCRIPTORS).read_bytes()
    )
    # A separate pool, so that names do not collide with other protobuf messages in the process.
    pool = descriptor_pool.DescriptorPool()
    classes: dict[str, Any] = {}
    for file in found.file:
        pool.Add(file)
        for message in file.message_type:
            described = pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}")
            classes[message.name] = message_factory.GetMessageClass(described)
    return classes


class ProtobufCodec(HareCodec):
    """Decodes requests with the protobuf package."""

    def __init__(self) -> None:
        super().__init__()
        classes = message_classes()
        self._classes = {kind: classes[name] for kind, name in REQUESTS.items()}

    def decode(self, kind: int, message: bytes) -> HareRequest:
        """Decode a request of `kind`.  Raises: FrameError (501) if the message is invalid."""
        try:
            found = self._classes[kind].FromString(message)
        except (DecodeError, UnicodeDecodeError):
            raise FrameError(f"{REQUESTS[kind]} cannot be read") from None
        return _DECODERS[kind](found, found.rid.encode(), found.cid.encode())


def _declare_exchange(found: Any, rid: bytes, cid: bytes) -> HareRequest:
    return DeclareExchange(
        rid,
        cid,
        found.exchange_name,
        int(found.exchange_type),
        found.durable,
        found.auto_delete,
        dict(found.args),
    )


def _declare_queue(found: Any, rid: bytes, cid: bytes) -> HareRequest:
    return DeclareQueue(
        rid,
        cid,
        found.queue_name,
        found.exclusive,
        found.durable,
        found.auto_delete,
        dict(found.args),
    )


def _publish(found: Any, rid: bytes, cid: bytes) -> HareRequest:
    properties = found.properties
    # If the properties are absent, and not just empty, the queue alone determines durability.
    mode = int(properties.delivery_mode) if found.HasField("properties") else DURABLE
    return Publish(
        rid,
        cid,
        found.exchange_name.encode(),
        found.body.encode(),
        properties.id.encode(),
        mode,
        properties.routing_key.encode(),
    )


_DECODERS: Final[dict[int, Callable[[Any, bytes, bytes], HareRequest]]] = {
    OPEN_CHANNEL: lambda _, rid, cid: OpenChannel(rid, cid),
    CLOSE_CHANNEL: lambda _, rid, cid: CloseChannel(rid, cid),
    QUERY: lambda _, rid, cid: Query(rid, cid),
    DECLARE_EXCHANGE: _declare_exchange,
    DELETE_EXCHANGE: lambda found, rid, cid: DeleteExchange(rid, cid, found.exchange_name),
    DECLARE_QUEUE: _declare_queue,
    DELETE_QUEUE: lambda found, rid, cid: DeleteQueue(rid, cid, found.queue_name),
    BIND: lambda found, rid, cid: Bind(
        rid, cid, found.exchange_name, found.queue_name, found.binding_key
    ),
    UNBIND: lambda found, rid, cid: Unbind(rid, cid, found.exchange_name, found.queue_name),
    PUBLISH: _publish,
    ACK: lambda found, rid, cid: Ack(
        rid, cid, found.queue_name.encode(), found.message_id.encode()
    ),
    CONSUME: lambda found, rid, cid: Consume(
        rid, cid, found.consumer_tag, found.queue_name, found.auto_ack
    ),
    CANCEL: lambda found, rid, cid: Cancel(rid, cid, found.consumer_tag, found.queue_name),
}
